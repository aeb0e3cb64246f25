"""Copies the records of runs to trackers, under the same names in each.

- `recording`: the names, and the common part of all trackers
- `mlflow_store`: MLflow, by default in a file
- `stepped_stores`: Weights & Biases, and Trackio
- `tracker_process`: trackers in their own process: all but MLflow's file
- `opening`: opens the trackers of a run
"""
