"""Measurements of agents on real repositories: whether replays equal the recordings, and what episodes cost.

- `__main__`: the command
- `recordings`: a scripted agent's episodes in tasks made of source distributions, kept in a file
- `replays`: the same episodes again, in another process, at every cut
- `throughput`: episodes and calls per second, work trees, memory
- `generation`: time of a replay over time of generating the same steps
- `barrier`: attempts with and without waiting for each other's commands
- `usage`: processor time and memory of this process and those that it started
- `page`: a page of tables beside its numbers
"""
