"""The objective of an update: the published formulas as functions of arrays. Nothing here knows a model or a process.

- `advantages`: how much better than its group a rollout did
- `gae`: an advantage and a value target for every token, from a critic
- `loss`: the clipped policy gradient with its variants, and the critic's loss
- `mismatch`: weights against the gap between the engine's probabilities and the learner's
"""
