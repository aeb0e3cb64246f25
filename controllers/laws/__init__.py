"""Laws, which turn a belief into an action: pure functions and frozen values.

- `control`: ratios under feedback control
- `choice`: which problems to choose by their believed pass rates
- `selection`: which nodes of a forest to choose
- `shares`: how many slots each category of problems gets, and which of its problems
- `allocation`: how many rollouts of a budget each problem gets
- `slots`: how many open slots of a plan a member may take, which problems may take them, and which may not
"""
