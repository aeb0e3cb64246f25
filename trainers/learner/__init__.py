"""Turns groups into new weights.

- `learner`: the learner: updates, schedule, checkpoints
- `objective`: the formulas: advantages, losses, corrections
- `batch`: turns groups into padded arrays, and decides what is left out of the loss
- `scoring`: log-probabilities and entropies of given tokens
- `critic`: the critic of PPO
- `backend`: turns gradients into new weights; `deepspeed`: the same with ZeRO
- `adapters`: LoRA
- `weights`: hands weights to an engine, one tensor at a time
- `options`: settings of the learner
"""
