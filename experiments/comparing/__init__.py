"""Trains comparisons: the runs of sweeps, arms and seeds, side by side.

- `compare`: runs or continues a whole comparison: first the sweeps, then every arm with every seed
- `tuning`: the sweep over every arm's grid, and the chosen setting
- `additions`: additions to a started comparison
- `jobs`: the runs to train, and their progress bars
- `runner`: trains the unfinished runs, several at a time, and handles their processes, records and failures
- `scheduler_jobs`: jobs of Slurm, or tasks of Ray, instead of processes
- `processes`: the processes that train the runs: forks of one that imports once, or fresh ones
"""
