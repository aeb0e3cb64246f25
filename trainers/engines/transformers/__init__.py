"""Sampling in this process, with the policy as a `transformers` module.

- `part`: what is registered
- `engine`: the engine: batches, with a key-value cache
"""
