"""Runs that are killed at random, again and again, and must end as if they had not been.

- `setups`: the runs: waiting, in lockstep, in flight, on two ranks, in flight with a vLLM server, and this with Ray
- `server`, `cluster`: that server, and nodes of Ray
- `engine`: an engine in this process's kind of sampler that takes new weights while it samples
- `judging`: a verifier that judges in processes of its own
- `launches`: a command of `halfway` in forks of this process, watched
- `faults`: what happens to a launch, and to the files that it was writing
- `ends`: what must be equal at the end, or hold
- `trials`: one run from beginning to end
"""
