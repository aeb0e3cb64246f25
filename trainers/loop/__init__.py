"""The training loop, independent of any method: chain, rollouts and learner are passed to it.

- `training`: one run: plan, roll out, observe, update, sync, log
- `fill`: fills a batch: which groups train, which are surplus, how many more to request
- `progress`: the spent budget
- `records`: the records of a step, and their files, truncated to the checkpoint on resume
- `waste`: one-line warnings about a run that wastes its budget
- `samples`: prompts and responses kept for reading
- `events`: the event log of a run with asynchronous rollouts, from which it can be retraced
- `arrays`: binary files for the arrays of checkpoints and of the event log
- `checkpoint`: one folder per step, complete or absent
- `manifest`: sizes and checksums of a checkpoint's files
- `held_out`: held-out pass@1 and pass@k
- `loop_options`: settings: fill, budget, evaluation, checkpoints
"""
