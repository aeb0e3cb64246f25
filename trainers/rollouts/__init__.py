"""From requests to scored groups, by an engine and an environment.

- `collector`: turn by turn: prompt, sample, judge; prefixes are replayed
- `attempts`: rollouts in the making
- `chat`: prompts and observations as tokens, with or without a chat template
- `background`: judging in another thread while more is sampled
- `judging`: how long an environment takes to answer
- `options`: settings of sampling
"""
