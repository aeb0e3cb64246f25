"""Whether the contest's procedure calls equal arms different, and how often it finds a difference of the promised size.

- `null_contest`: simulated contests of equal arms, and of arms that differ
- `contest_model`: the population of runs that they are drawn from, fitted to a measured arm
"""
