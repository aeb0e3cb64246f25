"""Laws, which turn a belief into an action: pure functions and frozen values.

- `control`: ratios and probabilities under feedback control; the chance that GRESO skips a problem
- `choice`: which problems to choose by their believed pass rates
- `selection`: which nodes of a forest to choose
- `shares`: how many slots each category of problems gets, and which of its problems
- `allocation`: how many rollouts of a budget each problem gets
- `slots`: how many open slots of a plan a member may take, and which problems may take them
"""
