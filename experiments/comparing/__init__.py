"""Comparisons: sweeps, arms and seeds, trained side by side.

- `compare`: a whole comparison: sweeps first, then arms x seeds
- `tuning`: the sweep over every arm's grid, and what it chooses
- `additions`: what may be added to a comparison that has begun
- `jobs`: runs to be trained
- `runner`: several at a time: processes, records, failures
- `processes`: the processes that train
- `warm_worker`: imports once, then forks a process for each run
- `board`: progress bars of many runs
"""
