"""A chain of controllers without a model.

- `simulator`: a learner whose pass rates follow a logistic curve; milliseconds per step
"""
