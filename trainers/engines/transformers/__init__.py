"""Sampling in this process, with the policy as a `transformers` module.

- `part`: what is registered
- `engine`: the engine: batches, with a key-value cache; here or in another process, so that the learner can update
"""
