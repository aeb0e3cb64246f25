"""Advice from a log: fit a simulated learner to it, play every chain on such learners, rank them at the user's prices.

- `logs`: a log as evidence for the fit
- `candidates`: the chains to choose from
- `play`: a chain on a simulated learner
- `ranking`: fit, play, compare
- `model_error`: how far simulated leads are from measured ones
- `telling`: the ranking as a sentence, as a table, and as a YAML file
- `command`: what `halfway advise` does
"""
