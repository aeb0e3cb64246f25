"""Sampling in this process, with vLLM.

- `part`: what is registered; `vllm_options`: what it shares with the engine of servers
- `engine`: the engine
- `worker`: what runs inside vLLM to take over new weights
"""
