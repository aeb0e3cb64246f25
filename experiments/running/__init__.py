"""Builds, checks and launches runs.

- `build`: builds a run with all its parts from a configuration
- `parts`: what rolls out, what learns, and how weights pass from one to the other
- `endings`: what SIGTERM and Ctrl-C do to a run
- `retrace`: makes every decision of a run again, from its event log
- `runs`: run directories: their contents, who may write to them, reading a run in progress
- `checks`: what `halfway validate` checks beyond the fields
- `rows`: tests every task on a repository, for `halfway validate --rows`
- `memory`: estimates whether a run fits its machines
- `launch`: makes and runs the commands that start a run on several hosts
- `on_host`: what `launch` starts on another host
- `serve`: starts the engine's servers of a run on this host
- `slurm`: submits a run as a job of Slurm
- `progress_bars`: shows progress in a terminal or a log file
"""
