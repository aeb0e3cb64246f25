"""Sampling in this process, with vLLM.

- `engine`: the engine
- `worker`: what runs inside vLLM to take over new weights
"""
