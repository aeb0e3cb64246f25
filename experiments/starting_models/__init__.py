"""Makes the starting policies of the lab's runs.

- `warm_start`: trains the lab's small policies on a flawed teacher's texts
- `authors`: flawed authors of sheets, whose habits the task generators learn
- `smollm2`: makes SmolLM2-135M without a model hub, and warms it up on sums or on short answers
"""
