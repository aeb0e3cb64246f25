"""Probes: small heads on a frozen model's hidden states that predict whether a task is useful for the solver.

- `activations`: hidden states of a model, in memory or on disk
- `heads`: the heads, and probes as files
- `fitting`: fits one probe
- `rates`: a probe of the pass rate itself
- `splits`: training, validation and test rows of a probe
- `scores`: classification, ranking, calibration
- `surface`: the baseline: prediction from a task's surface features
- `sweep`: layers x poolings x heads, and the choice of a probe
- `probe_options`: options of all these
"""
