"""Measures agents on real repositories: whether replays match the recordings, and what episodes cost.

- `__main__`: the command line
- `recordings`: records a scripted agent's episodes in tasks made from source distributions
- `replays`: replays these episodes in another process, at every cut
- `throughput`: episodes and calls per second, work trees, memory
- `generation`: time of a replay over time of generating the same steps
- `barrier`: attempts with and without waiting for each other's commands
- `usage`: processor time and memory of this process and those that it started
- `page`: a page of tables, and the numbers behind it
"""
