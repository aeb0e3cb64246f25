"""Readers of rollout logs.

An installed package adds another reader through an entry point in the group `halfway.audit_formats`.

- `registry`: readers by name, in the order in which they are tried
- `base`: the base classes of readers, which recognise a file by its columns
- `verl`: verl's rollout dumps
- `areal`: AReaL's trajectories
- `open_instruct`: open-instruct's saved rollouts
- `tinker`: tinker-cookbook's summaries of rollouts
- `trl`: TRL's and ms-swift's completions
- `roll`: ROLL's dumped rollouts
- `nemo_rl`: NeMo-RL's training data
- `prime_rl`: episodes of prime-rl and verifiers
- `trinity`: Trinity-RFT's experiences, as JSON Lines or in a database
- `table`: any table of problems and rewards, such as results of older evaluations of verifiers
- `decision_log`: Halfway's decision log
"""
