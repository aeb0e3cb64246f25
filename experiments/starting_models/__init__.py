"""Makes the starting policies of the lab's runs.

- `warm_start`: trains the lab's small policies on a flawed teacher's texts
- `tokenizers`: the lab's tokenizers
- `smollm2`: makes SmolLM2-135M without a model hub, and warms it up on sums
"""
