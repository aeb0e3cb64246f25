"""From a belief to an action: pure functions and frozen values.

- `control`: ratios and probabilities that feedback moves
- `choice`: which problems to choose by their believed pass rates
- `selection`: which nodes of a forest to choose
- `shares`: how many slots each category of problems gets, and which of its problems
- `slots`: which problems may take the open slots of a plan
"""
