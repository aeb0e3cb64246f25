"""Sampling in this process, with the policy as a `transformers` module.

- `engine`: the engine: batches, with a key-value cache
"""
