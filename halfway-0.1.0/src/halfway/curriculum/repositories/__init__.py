"""Tasks on real repositories: sources, checks and judge.

- `task`: a task: a base, a fault, tests
- `environment`: work trees in which a policy works with a shell
- `judge`: judges a changed work tree
- `canaries`: tests with random names that must fail, to detect a tampered test runner
- `rows`: tasks as SWE-bench, SWE-Gym, SWE-smith and R2E-Gym publish them
- `harbor`: tasks as folders of the Harbor framework
- `checking`: checks a task: untouched it must fail, with the reference it must pass
- `archives`: tasks made from source distributions, by `mutation`
- `mutation`: single edits of a function, as faults
"""
