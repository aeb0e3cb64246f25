"""Turns groups into new weights.

- `learner`: the learner: updates, schedule, checkpoints
- `batch`: turns groups into sequences, and decides what is left out of the loss
- `microbatches`: divides sequences into optimizer steps, processes and forward passes, as padded tensors
- `passes`: the forward passes of policy, reference and critic, up to the loss
- `objective`: the formulas: advantages, losses, corrections
- `scoring`: log-probabilities and entropies of given tokens
- `critic`: the critic of PPO
- `backend`: turns gradients into new weights; `deepspeed`: the same with ZeRO; `shards`: opens what ZeRO has written
- `adapters`: LoRA
- `weights`: hands weights to an engine, one tensor at a time
- `learner_options`: settings of the learner
"""
