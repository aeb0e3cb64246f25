"""The contract of a controller, and the chain that composes controllers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum.groups import Group, require_valid_weights
from halfway.curriculum.plan import Plan
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError

State = TypeVar("State")
MOST_PASSES = 1000

NEEDS: Mapping[str, str] = {
    "tokens": "the tokens of rollouts",
    "entropies": "the entropy of every sampled token",
    "values": "a critic's values of rollouts, see `Turn.values_T`",
    "generated": "generated problems, see `ProblemSet`",
    "solutions": "a reference solution of every problem, see `Problem.solution`",
    "prefixes": "rollouts that begin with a prefix",
    "hints": "rollouts that begin with a hint, or have it in the prompt",
    "rounds": "several rounds of rollouts in a step",
    "rollouts": "groups of different sizes",
    "weights": "weights and advantages of rollouts, see `LossWeights`",
    "stored": "training on groups of earlier steps",
    "waits": "groups that wait over a step, and train on the rollouts of several",
    "measured": "the measured pass rate of every problem, see `PassRateController.inform`",
}
"""Possible needs of a controller, besides "feature:NAME", the feature NAME of every problem."""


class PassRateController(Generic[State]):
    """Steers training toward rollouts that pass about half of the time.

    A controller is a frozen dataclass whose fields are its configuration. It holds no state: `init` creates the state,
    and the caller keeps it and passes it back. It does no input or output, reads no clock, and draws only from the
    given stream. The defaults below change nothing, so a controller overrides only what it needs. `claims` and `needs`
    are class attributes if they are constant, and properties if they depend on options.

    Example:
        A complete controller, which refuses problems with long prompts:

        >>> from halfway.curriculum import Problem, Request, Verdict
        >>> @dataclass(frozen=True)
        ... class ShortPrompts(PassRateController[None]):
        ...     longest: int = 1000
        ...
        ...     def propose(self, plan, state, stream):
        ...         fits = [len(request.problem.prompt) <= self.longest for request in plan.undecided]
        ...         return plan.decide([Verdict(fit, "length") for fit in fits]), state

        Its effect on a plan that another member of a chain has filled:

        >>> problems = [Problem("a", "2+2=", "4"), Problem("b", "the sum of two and two is ", "4")]
        >>> full = Plan(0, wanted=2, num_rollouts=8, requests=tuple(Request(p, 8) for p in problems), member="short")
        >>> plan, _ = ShortPrompts(longest=10).propose(full, None, Stream(0))
        >>> [(request.problem.id, request.decisions) for request in plan.requests]
        [('a', (Decision(member='short', action='length'),))]
        >>> plan.skipped, plan.missing
        ((Skip(problem_id='b', member='short', reason='length'),), 1)
    """

    @property
    def claims(self) -> frozenset[str]:
        """Exclusive roles: at most one member of a chain may hold each.

        "problems": choosing from the data set; "generated": proposing generated problems; "prefixes": attaching
        prefixes; "hints": giving hints; "rounds": extending groups in hand, see `Plan.extend`; "rollouts": changing a
        request's number of rollouts; "stored": training again on earlier groups; "advantages": giving advantages, see
        `Group.with_advantages`; "quotas": scaling the shares of other members, see `Plan.quotas`.
        """
        return frozenset()

    @property
    def needs(self) -> frozenset[str]:
        """Requirements on the trainer and the problem set, see `NEEDS`; a run that does not meet them is refused."""
        return frozenset()

    def init(self, problems: ProblemSet) -> State:
        """The state before the first step."""
        return None  # type: ignore[return-value]

    def propose(self, plan: Plan, state: State, stream: Stream) -> tuple[Plan, State]:
        """Add, drop or replace requests, before the rollouts. May be called several times per step, see `Plan`."""
        return plan, state

    def observe(self, state: State, groups: Sequence[Group], step: int) -> State:
        """Update the state after the rollouts. Called exactly once per step, with every group that was completed since
        the last call and is not held, including zero-variance, surplus and prefixed groups and groups that lost their
        rollouts. `Request.origin` says for which members a group is evidence."""
        return state

    def weigh(self, groups: Sequence[Group], state: State, stream: Stream) -> Sequence[Group]:
        """Set weights and advantages of groups before the update, see `Group.with_weights` and `with_advantages`.

        Returns the same number of groups in the same order, and changes no state. May be called several times per step
        with different groups, and again with an extended group.
        """
        return groups

    def hold(self, groups: Sequence[Group], state: State, step: int, stream: Stream) -> Sequence[bool]:
        """Choose, at the end of a step, the complete groups that stay in hand instead of being observed.

        Such a group waits for the member that extends groups (see `Plan.waiting`), does not train in this step, and is
        passed to `hold` again at every commit. No member observes it while it waits, since a group is evidence only
        once. A member that holds groups needs "waits", and must give up each at some age.
        """
        return [False] * len(groups)

    def inform(self, state: State, rates_P: NDArray[np.float64]) -> State:
        """Receive the policy's current pass rates, measured on every problem of the data set.

        For diagnosis only: the rollouts of the measurement are outside the budget. Called before the first proposal and
        at intervals afterwards, if `needs` has "measured".
        """
        return state

    def predict(self, state: State, groups: Sequence[Group]) -> NDArray[np.float64] | None:
        """Predicted pass rates of new groups, for metrics only (see `belief_errors`).

        NaN = no prediction; None = the controller never predicts.
        """
        return None

    @staticmethod
    def shown(state: object, *names: str) -> dict[str, float]:
        """Metrics that are numbers of a state, by their names."""
        return {name: float(getattr(state, name)) for name in names}

    def metrics(self, state: State) -> Mapping[str, float]:
        """Numbers to plot. The chain prefixes the member's name."""
        return {}


@dataclass(frozen=True)
class Chain(PassRateController[dict[str, Any]]):
    """Controllers in sequence, as one controller. Its state is a dictionary keyed by member name."""

    members: Mapping[str, PassRateController[Any]]

    @property
    def claims(self) -> frozenset[str]:
        return frozenset().union(*(member.claims for member in self.members.values()))

    @property
    def needs(self) -> frozenset[str]:
        return frozenset().union(*(member.needs for member in self.members.values()))

    def init(self, problems: ProblemSet) -> dict[str, Any]:
        return {name: member.init(problems) for name, member in self.members.items()}

    def propose(self, plan: Plan, state: dict[str, Any], stream: Stream) -> tuple[Plan, dict[str, Any]]:
        after = dict(state)
        for name, member in self.members.items():
            plan, after[name] = member.propose(replace(plan, member=name), state[name], stream.for_member(name))
        return plan, after

    def observe(self, state: dict[str, Any], groups: Sequence[Group], step: int) -> dict[str, Any]:
        return {name: member.observe(state[name], groups, step) for name, member in self.members.items()}

    def weigh(self, groups: Sequence[Group], state: dict[str, Any], stream: Stream) -> Sequence[Group]:
        for name, member in self.members.items():
            count = len(groups)
            groups = member.weigh(groups, state[name], stream.for_member(name))
            assert len(groups) == count, f"{name}.weigh was given {count} groups and returned {len(groups)}"
            require_valid_weights(groups, name)
        return groups

    def hold(self, groups: Sequence[Group], state: dict[str, Any], step: int, stream: Stream) -> Sequence[bool]:
        held = [
            member.hold(groups, state[name], step, stream.for_member(name)) for name, member in self.members.items()
        ]
        return [any(verdicts) for verdicts in zip(*held, strict=True)]

    def inform(self, state: dict[str, Any], rates_P: NDArray[np.float64]) -> dict[str, Any]:
        return {name: member.inform(state[name], rates_P) for name, member in self.members.items()}

    def metrics(self, state: dict[str, Any]) -> dict[str, float]:
        return {
            f"{name}/{quantity}": value
            for name, member in self.members.items()
            for quantity, value in member.metrics(state[name]).items()
        }


def members_of(controller: PassRateController[Any]) -> Mapping[str, PassRateController[Any]]:
    """The members of a chain by name; a single controller is called "controller"."""
    return controller.members if isinstance(controller, Chain) else {"controller": controller}


def chain(*members: tuple[str, PassRateController[Any]]) -> Chain:
    """Compose named controllers in the given order.

    Raises:
        UserError: if two members share a name or a claim; the message names both.
    """
    repeated = [name for name, count in Counter(name for name, _ in members).items() if count > 1]
    if repeated:
        raise UserError(
            f"controllers: two members are called {repeated[0]!r}; remove one, or give it another name, in YAML with "
            "{another: {use: CONTROLLER}}"
        )
    for claim in sorted(frozenset().union(*(member.claims for _, member in members))):
        owners = [name for name, member in members if claim in member.claims]
        if len(owners) > 1:
            named = f"{', '.join(owners[:-1])} and {owners[-1]} {'both' if len(owners) == 2 else 'all'}"
            raise UserError(f"controllers: {named} own the {claim}; keep only one of them")
    return Chain(dict(members))


def propose_until_full(
    controller: PassRateController[State], plan: Plan, state: State, stream: Stream
) -> tuple[Plan, State]:
    """Pass a plan through a controller until no request is missing, or a pass adds and drops nothing.

    After `MOST_PASSES`, requests may still be missing, which the caller counts as starvation.
    """
    for i in range(MOST_PASSES):
        before = (len(plan.requests), len(plan.skipped), plan.reserved)
        plan, state = controller.propose(plan, state, stream.at(i))
        plan = plan.free()
        if plan.missing == 0 or before == (len(plan.requests), len(plan.skipped), plan.reserved):
            break
    return plan, state


def belief_errors(controller: PassRateController[Any], state: Any, groups: Sequence[Group]) -> dict[str, float]:
    """Mean absolute difference between expected and observed pass rate, before the groups are observed.

    Returns:
        `error` of a controller that predicts any of the groups with rollouts, stored groups excluded, and, if any of
        these has a lag, `error_lag_K` for each lag of K updates; for a chain, with the member's name as prefix.
    """
    if isinstance(controller, Chain):
        each = ((name, belief_errors(member, state[name], groups)) for name, member in controller.members.items())
        return {f"{name}/{quantity}": value for name, errors in each for quantity, value in errors.items()}
    scored = [group for group in groups if group.size and group.request.stored is None]
    expected_G = controller.predict(state, scored) if scored else None
    if expected_G is None or np.isnan(expected_G).all():
        return {}
    off_G = np.abs(expected_G - np.array([group.pass_rate for group in scored]))
    known_G, lag_G = ~np.isnan(off_G), np.array([group.lag for group in scored])
    lags = np.unique(lag_G[known_G]).tolist() if lag_G.any() else []
    by_lag = {f"error_lag_{lag}": float(off_G[known_G & (lag_G == lag)].mean()) for lag in lags}
    return {"error": float(off_G[known_G].mean()), **by_lag}
