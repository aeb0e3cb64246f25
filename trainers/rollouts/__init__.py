"""Turns requests into scored groups, with an engine and an environment.

- `collector`: rolls out turn by turn: prompt, sample, judge; prefixes are replayed
- `in_flight`: pools of rollouts in progress
- `sampling_process`: a pool that samples and judges in a separate process
- `ray_pool`: a pool that samples and judges in Ray actors
- `file_store`: keeps the arrays of rollouts in files
- `attempts`: rollouts in progress
- `overlapping`: runs tools and engine at once; judges in another thread while the engine samples
- `chat`: turns prompts and observations into tokens, with or without a chat template
- `template`: renders chat templates in a process with limits
- `rollout_options`: options of sampling
"""
