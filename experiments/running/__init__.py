"""Builds, checks and launches runs.

- `build`: builds a run with all its parts from a configuration
- `parts`: rollouts, learner, and the transfer of weights between them
- `stop_signals`: handles SIGTERM and Ctrl-C
- `retrace`: repeats every decision of a run from its event log
- `runs`: run directories: contents, locking, reading a run in progress
- `validation`: checks of `halfway validate` beyond the fields, with `--rows` of every repository task
- `memory_estimate`: estimates whether a run fits its machines
- `launch`: builds and runs the commands that start a run on several hosts, or submits a job of Slurm that does
- `on_host`: runs a command on another host for `launch`
- `progress_bars`: shows progress in a terminal or a log file
"""
