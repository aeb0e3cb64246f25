"""The vocabulary and the contract: problems, rollouts, plans, controllers, and the session that any trainer can host.
Nothing here loads torch.

The files are the contract:

- `problems`: a problem; the indexed set of problems that a run trains on
- `rollouts`: turns and rollouts: what comes back from the policy
- `groups`: a request, and the group of rollouts that results from it; whether a group teaches
- `plan`: what is about to be rolled out, with verdicts and skips
- `controller`: the contract of a controller, and the chain that composes controllers
- `belief_errors`: how far off the pass rates were that a chain expected, by lag
- `session`: a chain at work in a trainer: requests out, outcomes in
- `prefix`: rollouts that start inside an earlier rollout, or with a hint, and the cut that makes either
- `streams`: named random streams, whose draws nothing else can shift
- `states`: controller states as JSON, and back
- `signals`: how much a group of binary rewards can teach
- `decision_log`: one JSON record per group, as it is written and read: what was decided, and the outcome
- `registries`: problem sources and environments by name

The folders hold what feeds it:

- `tasks`: sources of problems, problem files, verifiers, the lab's small tasks
- `environments`: tasks of one turn and of many
- `boxes`: isolated work trees in which commands run, and the sandbox of unread programs
- `repositories`: tasks on real repositories: sources, mutation, judge, checks
- `support`: registries, errors, optional packages, atomic files
"""

from halfway.curriculum.controller import Chain, PassRateController, chain, propose_until_full
from halfway.curriculum.groups import Decision, Group, LossWeights, Request
from halfway.curriculum.plan import Plan, Skip, Verdict
from halfway.curriculum.prefix import Hint, Prefix, cut, hint_of
from halfway.curriculum.problems import Problem, ProblemSet
from halfway.curriculum.rollouts import Origin, Rollout, Turn, Unit
from halfway.curriculum.session import Session, Ticket
from halfway.curriculum.states import restore_state, save_state
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError, require
from halfway.curriculum.support.registry import Registry

__all__ = [
    "Chain",
    "Decision",
    "Group",
    "Hint",
    "LossWeights",
    "Origin",
    "PassRateController",
    "Plan",
    "Prefix",
    "Problem",
    "ProblemSet",
    "Registry",
    "Request",
    "Rollout",
    "Session",
    "Skip",
    "Stream",
    "Ticket",
    "Turn",
    "Unit",
    "UserError",
    "Verdict",
    "chain",
    "cut",
    "hint_of",
    "propose_until_full",
    "require",
    "restore_state",
    "save_state",
]
