"""TRL's `GRPOTrainer` as a host, 1.10 to 1.16: no subclass, and no private name of TRL's.

- `hosted`: what `halfway.trl` returns: the trainer's arguments
- `settings`: what of a `GRPOConfig` could not work
- `late_rows`: a data set of empty slots, filled when the loader fetches them
- `rollouts`: `rollout_func`: problems chosen when they are rolled out, replayed tokens masked
- `rewards`: reward functions that tell the session what came back
- `callback`: state in the checkpoint
"""
