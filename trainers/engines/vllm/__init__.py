"""Sampling in this process, with vLLM.

- `part`: the registered part; `vllm_options`: its options that `vllm_servers` has too
- `engine`: the engine
- `worker`: loads new weights inside vLLM
"""
