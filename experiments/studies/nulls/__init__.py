"""Studies how often the contest's procedure calls equal arms different, and detects differences of the promised size.

- `null_contest`: simulates contests of equal arms, and of arms that differ
- `contest_model`: the population that simulated runs are drawn from, fitted to a measured arm
"""
