"""Sampling with vLLM in this process: `engine` samples, `worker` runs inside vLLM."""
