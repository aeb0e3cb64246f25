"""Sampling in this process, with the policy as a `transformers` module.

- `part`: the registered part
- `engine`: batched sampling with a key-value cache, here or in another process while the learner updates
"""
