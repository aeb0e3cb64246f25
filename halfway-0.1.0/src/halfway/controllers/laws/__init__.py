"""Laws, which turn a belief into an action: pure functions and frozen values.

- `control`: ratios under feedback control
- `choice`: chooses problems by their believed pass rates
- `selection`: chooses nodes of a forest
- `shares`: divides slots among categories of problems
- `allocation`: divides a budget of rollouts among problems
- `slots`: fills the open slots of a plan
"""
