"""Runs a chain of controllers without a model.

- `simulator`: a learner whose pass rates follow a logistic curve; milliseconds per step
- `skills`: a learner that behaves as models do: shared skills, polarisation, forgetting, gradient noise
- `attempts`: the rollouts of such a learner
"""
