"""Sampling in this process with a `transformers` module, by the engine of that name."""
