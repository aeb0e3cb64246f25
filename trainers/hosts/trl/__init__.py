"""TRL's `GRPOTrainer` as a host, versions 1.10 to 1.16, without subclassing and without private names of TRL's.

- `hosted`: makes the trainer's arguments that `halfway.trl` returns
- `settings`: refuses a `GRPOConfig` that cannot work
- `late_rows`: a data set of empty slots, filled when the loader fetches them
- `rollout_func`: `rollout_func`, which chooses problems when they are rolled out and masks replayed tokens
- `observer`: reward functions that record rollouts in the session
- `callback`: saves the session in TRL's checkpoints
"""
