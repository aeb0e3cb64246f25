"""The training loop. It works on types and names no method: chain, rollouts and learner are passed to it.

- `training`: one run: plan, roll out, observe, update, sync, log
- `fill`: how a batch is filled: which groups train, which are surplus, how many more to ask for
- `progress`: what has been spent
- `records`: what is recorded of a step, and the files, cut to the checkpoint on resume
- `waste`: says in one line that a run is being wasted
- `samples`: prompts and responses that are kept to be read
- `events`: the event log of a run whose rollouts do not wait, from which it can be retraced
- `arrays`: binary files of arrays, beside the JSON of checkpoints and of the event log
- `checkpoint`: one folder per step, complete or absent
- `manifest`: sizes and checksums of a checkpoint's files
- `evaluation`: held-out pass@1 and pass@k
- `loop_options`: settings: fill, budget, evaluation, checkpoints
"""
