"""Small heads that read a frozen model's hidden states and guess whether a task is worth a solver's time.

- `activations`: hidden states of a model, in memory or on disk
- `pooling`: many states to one vector
- `heads`: the heads, and probes as files
- `training`: fitting one probe
- `rates`: a probe of the pass rate itself
- `splits`: which rows train, stop and judge a probe
- `scores`: classification, ranking, calibration
- `surface`: the baseline: what is plain to see of a task
- `sweep`: layers x poolings x heads, and the choice of a probe
- `options`: settings of all these
"""
