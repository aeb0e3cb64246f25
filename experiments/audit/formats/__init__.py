"""Readers of rollout logs, one file per trainer.

An installed package adds another reader through an entry point in the group `halfway.audit_formats`.

- `registry`: the registry of readers, and the recognition of a file's format
- `base`: the base classes of readers, and the beginning of a file
- `verl`: verl's rollout dumps, classic and V1
- `trl`: TRL's and ms-swift's completions
- `episodes`: episodes and results of prime-rl and verifiers
- `areal`: AReaL's trajectories
- `nemo_rl`: NeMo-RL's training data
- `open_instruct`: open-instruct's saved rollouts
- `roll`: ROLL's dumped rollouts
- `trinity`: Trinity-RFT's experiences, as JSON Lines or in a database
- `tinker`: rollout summaries of the tinker cookbook
- `table`: any table of problems and rewards
- `decisions`: Halfway's decision log
"""
