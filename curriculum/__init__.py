"""The vocabulary and the contract: problems, rollouts, plans, controllers. Importing it loads no torch."""

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
