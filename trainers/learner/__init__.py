"""From groups to new weights.

- `learner`: the learner: updates, schedule, checkpoints
- `objective`: the formulas: advantages, losses, corrections
- `batch`: from groups to padded arrays, and what is left out
- `scoring`: log-probabilities and entropies of given tokens
- `critic`: values, for PPO
- `backend`: gradients to weights; `deepspeed`: the same with ZeRO
- `adapters`: LoRA
- `weights`: weights on their way into an engine
- `options`: settings of the learner
"""
