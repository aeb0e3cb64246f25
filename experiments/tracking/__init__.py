"""Copies the records of runs to trackers, under the same names in each.

- `recording`: the names, and the common part of all trackers
- `mlflow_store`: MLflow, by default in a file
- `stepped_stores`: Weights & Biases, and Trackio
- `tracker_process`: opens the trackers of a run, all but MLflow's file in their own processes
"""
