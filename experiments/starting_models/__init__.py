"""How the starting policies of the lab's runs were made.

- `warm_start`: supervised training on a flawed teacher's texts
- `tokenizers`: the lab's tokenizers
- `smollm2`: SmolLM2-135M without a model hub
- `widen`: the same model with larger heads, for vLLM
"""
