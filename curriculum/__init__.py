"""The core types and contract: problems, rollouts, plans, controllers, and the session that any trainer can host.

Nothing here loads torch. The files are the contract:

- `problems`: a problem; the indexed set of problems that a run trains on
- `rollouts`: turns and rollouts, the output of the policy
- `groups`: a request, and the group of rollouts that results from it
- `plan`: the requests of a step, with verdicts and skips
- `controller`: the contract of a controller, and the chain that composes controllers
- `session`: runs a chain in a trainer: requests out, outcomes in
- `prefix`: starting points inside an earlier rollout or after a hint
- `streams`: named, independent random streams
- `states`: controller states as JSON, and back
- `stored`: arrays of rollouts that lie in a store, and are read when they are used
- `signals`: measures of the learning signal of a group of binary rewards
- `decision_log`: one JSON record per group, with decisions and outcome
- `registries`: problem sources and environments by name

The folders provide its inputs:

- `tasks`: sources of problems, problem files, verifiers, the lab's small tasks
- `environments`: single-turn and multi-turn tasks
- `boxes`: isolated work trees in which commands run, and the sandbox for untrusted programs
- `repositories`: tasks on real repositories: sources, mutation, judge, checks
- `support`: registries, errors, optional packages, atomic files
"""

from halfway.curriculum.controller import Chain, PassRateController, chain, propose_until_full
from halfway.curriculum.groups import Decision, Group, LossWeights, Request
from halfway.curriculum.plan import Plan, Skip, Verdict
from halfway.curriculum.prefix import Hint, Prefix, cut, hint_of
from halfway.curriculum.problems import Message, Problem, ProblemSet
from halfway.curriculum.rollouts import NO_TOKENS, FloatArray, IntArray, Origin, Rollout, Turn, Unit
from halfway.curriculum.session import Session, Ticket
from halfway.curriculum.states import restore_state, save_state
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError, refusal, require
from halfway.curriculum.support.registry import Registry, unknown

__all__ = [
    "NO_TOKENS",
    "Chain",
    "Decision",
    "FloatArray",
    "Group",
    "Hint",
    "IntArray",
    "LossWeights",
    "Message",
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
    "refusal",
    "require",
    "restore_state",
    "save_state",
    "unknown",
]
