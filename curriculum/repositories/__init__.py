"""Tasks on real repositories: where they come from, when they are valid, who judges.

- `task`: what a task is: a base, a fault, tests
- `environment`: work trees in which a policy works with a shell
- `judge`: whether a changed work tree passes
- `canaries`: tests of unguessable names that have to fail, by which a judge trusts its runner
- `rows`: tasks as SWE-bench, SWE-Gym, SWE-smith and R2E-Gym publish them
- `harbor`: tasks as folders of the Harbor framework
- `checking`: whether a task is valid: untouched it fails, with the reference it passes
- `archives`: tasks made of source distributions, by `mutation`
- `mutation`: single edits of a function, as faults
"""
