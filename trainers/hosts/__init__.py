"""Adapters that run a chain inside other trainers. Only a host's own modules import more than the core.

- `hosting`: the parts shared by all adapters: session, records on disk, metrics, saved state
- `rows`: turns a host's rows into problems, and finds the row of a problem
- `outcomes`: turns a reward into a success, and tokens into a rollout
- `fetching`: hands out tickets to a loader that fetches rows
- `trl`: TRL's `GRPOTrainer`
- `verl`: verl's trainers
- `trinity`: a task selector for Trinity-RFT
- `tinker`: a data set for tinker-cookbook
- `prime_rl`: a task sampler for prime-rl
"""
