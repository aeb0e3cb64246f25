"""Measures what things cost, with `python -m halfway.experiments.benchmarks.NAME`.

- `controllers`: controllers' milliseconds per step for many problems, and their share of a lab step
- `pros`: time, mixing and memory of the belief of PROS
- `engines`: the same run on every engine
- `overlap`: judging responses while others are still sampled
- `sandbox`: generated functions that the sandbox checks per second
- `repositories`: episodes on real repositories: whether replays match the recordings, and throughput
- `trl`: one GRPO step here and in TRL
- `hosts`: the cost of a hosted chain, compared with the plain host
- `hosts_in_turn`: a hosted chain and the plain host in one process, taking turns step by step
- `install_size`: packages, disk and import time of an installation
- `start_up`: the start of a run, cold and in a warm worker
- `audit_throughput`: how fast logs are read, and in how much memory
"""
