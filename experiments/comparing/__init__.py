"""Comparisons: sweeps, arms and seeds, trained side by side.

- `compare`: a whole comparison: first the sweeps, then every arm with every seed
- `tuning`: the sweep over every arm's grid, and the setting it chooses
- `additions`: what may be added to a comparison that has begun
- `jobs`: runs to be trained
- `runner`: trains several runs at a time: processes, records, failures
- `processes`: the processes that train
- `warm_worker`: a process that imports once and then forks for each run
- `board`: progress bars of many runs
"""
