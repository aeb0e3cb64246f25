"""The objective of an update: the published formulas as functions of arrays, without models or processes.

- `advantages`: advantages from the rewards of a group
- `loss`: the clipped policy gradient with its variants, and the critic's loss
- `mismatch`: correction for different probabilities in engine and learner
"""
