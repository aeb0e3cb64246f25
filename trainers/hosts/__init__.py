"""Halfway inside the trainers of others. Importing anything here loads the core only, except for a host's own files.

- `hosting`: what every host's adapter is made of: session, records on disk, metrics, state
- `rows`: a host's rows as problems, and back
- `outcomes`: from a reward to a success, from tokens to a rollout
- `fetching`: tickets for a loader that fetches rows
- `trl`: TRL's `GRPOTrainer`
- `verl`: verl's trainers
- `trinity`: a task selector for Trinity-RFT
- `tinker`: a data set for tinker-cookbook
- `skyrl`: a data set and a generator for SkyRL
- `prime_rl`: a task sampler for prime-rl
"""
