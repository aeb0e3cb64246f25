"""A chain of controllers without a model.

- `simulator`: a learner whose pass rates follow a logistic curve; milliseconds per step
- `skills`: a learner that learns as models do: shared skills, polarisation, forgetting, gradient noise
- `attempts`: the rollouts of such a learner
- `evidence`: what a log says, laid out for the fit
- `fitting`: from a log to the dynamics of its learner
- `kinship`: which problems learn together
- `pairs`: pass counts before and after training
"""
