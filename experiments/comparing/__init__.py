"""Trains comparisons: the runs of sweeps, arms and seeds, side by side.

- `compare`: runs or continues a whole comparison: first the sweeps, then every arm with every seed
- `tuning`: the sweep over every arm's grid, and the setting that it chooses
- `additions`: what may be added to a comparison that has begun
- `jobs`: the runs that are to be trained, and their progress bars
- `runner`: trains the unfinished runs, several at a time, and looks after their processes, records and failures
- `slurm_jobs`: jobs of Slurm in the place of processes; `ray_jobs`: tasks of Ray
- `processes`: the processes that train the runs: forks of one that imports once, or fresh ones
"""
