"""Shows on the machines at hand that the parts of a run do what they say: `halfway prove`, `halfway doctor`.

- `checks`: what a check found, and what it prints
- `host`: what this machine lacks for a run; all that `halfway doctor` says
- `agreement`: engine and learner agree on probabilities, weights, prompts, end tokens and prefixes
- `learner`: updates in one process and in several, saved and loaded, give the same weights
- `servers`: servers get the learner's weights, refuse strangers, come back when killed, and leave nothing behind
- `whole_run`: a run that is killed continues to the same end
- `prove`: runs the parts one after the other, each in a process of its own with a limit
- `wheels`: collects what a machine without downloads still needs
"""
