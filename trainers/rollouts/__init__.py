"""Turns requests into scored groups, with an engine and an environment.

- `collector`: rolls out turn by turn: prompt, sample, judge; prefixes are replayed
- `in_flight`: rollouts under way, between being drawn and being recorded
- `sampling_process`: one whose rollouts are sampled and judged in a process of their own
- `attempts`: rollouts in progress
- `overlapping`: tools and engine at work at once, judging in another thread while the engine still samples
- `chat`: turns prompts and observations into tokens, with or without a chat template
- `template`: renders chat templates in a process with limits
- `judging`: measures how long an environment takes to answer
- `rollout_options`: settings of sampling
"""
