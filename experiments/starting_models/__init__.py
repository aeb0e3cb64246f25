"""Makes the starting policies of the lab's runs.

- `warm_start`: trains the lab's small policies on a flawed teacher's texts
- `authors`: flawed authors of sheets, whose habits the task generators learn
- `widen_heads`: copies a model with larger heads, for engines that do not support small ones; made `sums_wide`
- `smollm2`: makes SmolLM2-135M without a model hub, and warms it up on sums or on short answers
"""
