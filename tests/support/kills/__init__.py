"""Runs that are killed at random, again and again, and must end as if they had not been.

- `setups`: the runs: waiting, in lockstep, in flight, on two ranks, in flight with a vLLM server, and in Ray's actors
- `server`, `cluster`: that server, and nodes of Ray
- `engine`: engines in a sampler: one takes new weights while it samples, one is for Ray's actors
- `judging`: a verifier that judges in processes of its own
- `launches`: a command of `halfway` in forks of this process, watched
- `faults`: what happens to a launch, and to the files that it was writing
- `ends`: what must be equal at the end, or hold
- `trials`: one run from beginning to end
"""
