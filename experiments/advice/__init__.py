"""Gives advice from a log: fits a simulated learner to it, plays every chain on such learners, and ranks the chains.

- `logs`: reads a log as evidence for the fit
- `candidates`: the chains to choose from
- `play`: plays a chain on a simulated learner
- `ranking`: fits the learner, plays the chains, and ranks them
- `model_error`: how far simulated leads are from measured leads
- `telling`: puts the ranking into a sentence, a table, and a YAML file
- `command`: carries out `halfway advise`
"""
