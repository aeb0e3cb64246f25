"""From settings to runs.

- `build`: a configuration becomes a run: where every part meets every other
- `runs`: run directories: what is in them, who may write, reading along
- `checks`: what `halfway validate` checks beside the fields
- `rows`: `halfway validate --rows`: every task on a repository tried
- `memory`: whether a run fits its machines
- `launch`: the commands that start a run on several hosts
- `tracking`: MLflow as a second home of the records
- `progress_bars`: progress in a terminal or a log file
"""
