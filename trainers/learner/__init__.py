"""Turns groups into new weights.

- `learner`: the learner: updates, schedule, checkpoints
- `batch`: turns groups into sequences, and selects the tokens in the loss
- `microbatches`: divides sequences into optimizer steps, processes and forward passes, as padded tensors
- `sharing`: divides a batch among processes, each with the tokens that it reads
- `passes`: the forward passes of policy, reference and critic, up to the loss
- `objective`: the formulas: advantages, losses, corrections
- `scoring`: log-probabilities and entropies of given tokens
- `critic`: the critic of PPO; `gae`: an advantage and a value target for every token, from its values
- `backend`: optimizer steps; `deepspeed`: the same with ZeRO; `shards`: opens ZeRO's checkpoints
- `adapters`: LoRA
- `weights`: sends weights to an engine, one tensor at a time
- `learner_options`: options of the learner
"""
