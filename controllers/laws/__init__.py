"""Laws, which turn a belief into an action: pure functions and frozen values.

- `feedback`: ratios under feedback control
- `choose_problems`: by their believed pass rates
- `choose_nodes`: of a forest
- `category_shares`: divides slots among categories of problems
- `rollout_budget`: divides a budget of rollouts among problems
- `slots`: fills the open slots of a plan
"""
