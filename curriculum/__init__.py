"""The vocabulary and the contract: problems, rollouts, plans, controllers. Importing it loads no torch."""

from halfway.curriculum.controller import Chain, PassRateController, chain, propose_until_full
from halfway.curriculum.groups import Decision, Group, Request
from halfway.curriculum.plan import Plan, Skip, Verdict
from halfway.curriculum.prefix import Prefix, cut
from halfway.curriculum.problems import Problem, ProblemSet
from halfway.curriculum.rollouts import Origin, Rollout, Turn, Unit
from halfway.curriculum.states import restore_state, save_state
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.registry import Registry

__all__ = [
    "Chain",
    "Decision",
    "Group",
    "Origin",
    "PassRateController",
    "Plan",
    "Prefix",
    "Problem",
    "ProblemSet",
    "Registry",
    "Request",
    "Rollout",
    "Skip",
    "Stream",
    "Turn",
    "Unit",
    "UserError",
    "Verdict",
    "chain",
    "cut",
    "propose_until_full",
    "restore_state",
    "save_state",
]
