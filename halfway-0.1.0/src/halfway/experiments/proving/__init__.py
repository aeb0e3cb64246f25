"""Checks the parts of a run on the machines at hand: `halfway prove`, `halfway doctor`.

- `checks`: the finding of a check, and its printed line
- `host`: requirements of a run that this machine lacks; the whole of `halfway doctor`
- `agreement`: engine and learner agree on probabilities, weights, prompts, end tokens and prefixes
- `learner`: updates in one process and in several, saved and loaded, give the same weights
- `servers`: servers get the learner's weights, refuse strangers, come back when killed, and leave nothing behind
- `whole_run`: a run that is killed continues to the same end
- `prove`: runs the parts one after the other, each in its own process with a limit
"""
