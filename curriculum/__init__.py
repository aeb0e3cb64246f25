"""The vocabulary and the contract: problems, rollouts, plans, controllers. Importing it loads no torch."""

from curriculum.controller import Chain, PassRateController, chain, propose_until_full
from curriculum.errors import UserError
from curriculum.groups import Group
from curriculum.plan import Decision, Plan, Request, Skip, Verdict
from curriculum.prefix import Prefix, cut
from curriculum.problems import Problem, ProblemSet
from curriculum.registry import Registry
from curriculum.rollouts import Origin, Rollout, Turn, Unit
from curriculum.states import restore_state, save_state
from curriculum.streams import Stream

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
