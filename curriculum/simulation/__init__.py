"""Runs a chain of controllers without a model.

- `simulator`: a learner whose pass rates follow a logistic curve; milliseconds per step
- `skills`: a learner that behaves as models do: shared skills, polarisation, forgetting, gradient noise
- `attempts`: the rollouts of such a learner
- `evidence`: a log's groups, arranged for the fit
- `fitting`: the dynamics of the learner behind a log
- `kinship`: which problems learn together
- `pairs`: pass counts before and after training
"""
