"""Readers of rollout logs, one file per trainer. An installed package adds another by an entry point in the group
`halfway.audit_formats`.

- `base`: what a reader is; the registry; recognition
- `verl`: verl's rollout dumps, classic and V1
- `trl`: TRL's and ms-swift's completions
- `episodes`: prime-rl and verifiers
- `areal`: AReaL's trajectories
- `nemo_rl`: NeMo-RL's training data
- `open_instruct`: open-instruct's saved rollouts
- `roll`: ROLL's dumped rollouts
- `trinity`: Trinity-RFT's experiences, as lines or in a database
- `tinker`: rollout summaries of the tinker cookbook
- `table`: any table of problems and rewards
- `decisions`: our own decision log
"""
