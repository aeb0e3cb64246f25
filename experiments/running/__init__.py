"""From settings to runs.

- `build`: turns a configuration into a run, where every part meets every other
- `runs`: run directories: their contents, who may write to them, reading a run in progress
- `checks`: what `halfway validate` checks beyond the fields
- `rows`: `halfway validate --rows`: tries every task on a repository
- `memory`: whether a run fits its machines
- `launch`: the commands that start a run on several hosts
- `tracking`: MLflow as a second place for the records
- `progress_bars`: progress in a terminal or a log file
"""
