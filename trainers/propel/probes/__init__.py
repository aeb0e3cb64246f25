"""Small heads that read a frozen model's hidden states and guess whether a task is worth a solver's time.

- `activations`: hidden states of a model, in memory or on disk
- `heads`: the heads, and probes as files
- `training`: fitting one probe
- `rates`: a probe of the pass rate itself
- `splits`: which rows train a probe, stop its training and judge it
- `scores`: classification, ranking, calibration
- `surface`: the baseline: what a task's surface features tell
- `sweep`: layers x poolings x heads, and the choice of a probe
- `probe_options`: settings of all these
"""
