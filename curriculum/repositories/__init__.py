"""Tasks on real repositories: where they come from, when they are tasks, who judges.

- `task`: what a task is: a base, a fault, tests
- `judge`: whether a changed work tree passes
- `archives`: tasks made of source distributions, by `mutation`
- `mutation`: single edits of a function, as faults
"""
