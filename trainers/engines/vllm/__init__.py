"""Sampling in this process, with vLLM.

- `part`: the registered part, and its options that `vllm_servers` has too
- `engine`: the engine
- `worker`: loads new weights inside vLLM
"""
