"""Measurements of cost; each is run by `python -m halfway.experiments.benchmarks.NAME`.

- `controllers`: milliseconds per step for many problems, and share of a lab step
- `pros`: the belief of PROS: sweeps, mixing, memory
- `engines`: the same run on every engine
- `overlap`: judging while others are still sampled
- `sandbox`: generated functions per second
- `repositories`: episodes on real repositories: whether replays are equal, and throughput
- `simulation`: a chain on a simulated learner of a million problems
- `trl`: one step here and in TRL
- `hosts`: a hosted chain beside the plain host
- `hosts_in_turn`: a hosted chain and the plain host in one process, taking turns step by step
- `install_size`: packages, disk and import time of an installation
- `start_up`: the start of a run, cold and in a warm worker
- `audit_throughput`: how fast logs are read, and in how much memory
"""
