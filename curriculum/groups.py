"""A request, and the group of rollouts that results from it, which controllers observe and the learner trains on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from halfway.curriculum.prefix import Hint, Prefix
from halfway.curriculum.problems import Problem
from halfway.curriculum.rollouts import NO_VALUES, IntArray, Origin, Rollout, Unit
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError

Floats = NDArray[np.floating[Any]]
_success = attrgetter("success")


class Decision(NamedTuple):
    """The decision of one member of a chain on a request, for the decision log."""

    member: str
    action: str


class Request(msgspec.Struct, frozen=True, eq=False):
    """A problem, a starting point and a number of rollouts. All rollouts of a request start from one state.

    `msgspec.structs.replace` makes a changed copy.

    Attributes:
        origin: reason for the request, which decides for which members the outcome is evidence.
        prefix: the part of an earlier rollout that the rollouts begin with; origin `PREFIX`.
        hint: the part of the problem's reference solution that the policy is given; origin `HINTED`.
        decisions: the members that chose or changed the request, and their reasons, in order.
        ticket: id of the outcome, assigned when the session draws the request.
        step, round: time of that draw: number of committed steps, and of batches drawn since the last commit.
        extends: ticket of a group in hand to which the rollouts belong; "" if they form a new group.
        stored: an earlier group to train on again instead of new rollouts; origin `STORED`.
    """

    problem: Problem
    num_rollouts: int
    origin: Origin = Origin.FRESH
    prefix: Prefix | None = None
    decisions: tuple[Decision, ...] = ()
    hint: Hint | None = None
    ticket: str = ""
    extends: str = ""
    stored: "Group | None" = None
    step: int = 0
    round: int = 0

    def decided_by(self, member: str) -> bool:
        return member in [decision.member for decision in self.decisions]


@dataclass(frozen=True, slots=True, eq=False)
class LossWeights:
    """Overrides of the learner's options for one group.

    Attributes:
        weights_N: factor on the loss of each rollout's tokens, finite and at least 0. A rollout with 0 is not in the
            loss, neither in its sum nor in its denominator; its reward still counts in the group's baseline.
        advantages_N: advantage of each rollout, instead of the learner's; None = the learner's.
        advantages_NT: advantages per token: one array per rollout, one entry per generated token.
    """

    weights_N: Floats
    advantages_N: Floats | None = None
    advantages_NT: tuple[Floats, ...] | None = None

    @property
    def steers(self) -> bool:
        """True if advantages are given that do not come from rewards."""
        return self.advantages_N is not None or self.advantages_NT is not None


@dataclass(frozen=True, slots=True)
class ReplayCost:
    """The cost of replaying a request's prefix through its environment.

    Attributes:
        responses: number of responses executed again, including those of replays that diverged.
        seconds: their tool time.
        wall_seconds: the request's share, by number of responses, of the wall-clock time of all replays in its round.
    """

    responses: int
    seconds: float
    wall_seconds: float

    def plus(self, more: "ReplayCost | None") -> "ReplayCost":
        """The sum of both costs."""
        if more is None:
            return self
        return ReplayCost(
            self.responses + more.responses, self.seconds + more.seconds, self.wall_seconds + more.wall_seconds
        )


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A request with its scored rollouts. All of them start from the same state.

    Attributes:
        request: the request; if the group has been extended, it covers all rollouts of the group.
        prompt_tokens_P: the prompt as the policy read it, without any prefix.
        unit: the unit in which prefixes of these rollouts are measured.
        dropped: reason -> number of lost rollouts (for example a replay that diverged).
        weights: weights and advantages from controllers; None = equal weights, with the learner's advantages.
        replay_cost: None if nothing was replayed through the environment.
        lag: number of updates by which the learner was ahead of the (oldest) weights that sampled the group when its
            outcome was recorded; 0 if unknown.
        trains_truncated: true = the learner trains on truncated rollouts; false = they only count in the baseline.
        in_pieces: true if the rollouts were recorded in several calls, so they may be in the order in which they
            finished.
        earlier: number of rollouts from earlier steps, which come first, if the group has waited.
    """

    request: Request
    prompt_tokens_P: IntArray
    rollouts: tuple[Rollout, ...]
    unit: Unit = "tokens"
    dropped: Mapping[str, int] = field(default_factory=dict)
    weights: LossWeights | None = None
    replay_cost: ReplayCost | None = None
    lag: int = 0
    trains_truncated: bool = True
    in_pieces: bool = False
    earlier: int = 0

    @property
    def size(self) -> int:
        """N: the number of scored rollouts."""
        return len(self.rollouts)

    @property
    def missing(self) -> int:
        """Number of rollouts neither recorded nor lost."""
        return self.request.num_rollouts - len(self.rollouts) - sum(self.dropped.values())

    @property
    def waits(self) -> bool:
        """True if the group has stayed in hand over a commit and has not been extended since."""
        return 0 < self.earlier == self.request.num_rollouts

    @property
    def latest(self) -> "Group":
        """The group with the rollouts of this step only, so that logs and budgets count each rollout once."""
        if not self.earlier:
            return self
        return replace(self, rollouts=self.rollouts[self.earlier :], earlier=0, weights=None)

    def kept(self) -> "Group":
        """The group as it stays in hand over a commit: its present and lost rollouts have been counted by this step."""
        request = structs.replace(self.request, num_rollouts=self.size)
        return replace(self, request=request, earlier=self.size, dropped={}, replay_cost=None)

    @property
    def num_passed(self) -> int:
        """k: the number of successes."""
        return sum(map(_success, self.rollouts))  # asked ten times a group

    @property
    def pass_rate(self) -> float:
        """k / N. Raises ValueError for a group without rollouts; check `size` first."""
        if not self.rollouts:
            raise ValueError(f"the group of problem {self.request.problem.id!r} has no rollouts, so no pass rate")
        return self.num_passed / self.size

    @property
    def zero_variance(self) -> bool:
        """True if all rollouts passed or none did, so that no advantage is defined; also for an empty group."""
        return self.num_passed in (0, self.size)

    @property
    def teaches(self) -> bool:
        """True if the group has a loss: rewards differ or advantages are given, and not all weights are 0."""
        if self.weights is None:
            return not self.zero_variance
        return bool(self.size and self.weights.weights_N.any()) and (self.weights.steers or not self.zero_variance)

    @property
    def weights_N(self) -> Floats:
        """Factor on the loss of each rollout; 1 unless a controller sets another."""
        return np.ones(self.size) if self.weights is None else self.weights.weights_N

    @property
    def trainable_N(self) -> NDArray[np.bool_]:
        """Mask of the rollouts in the loss: not late, not truncated unless `trains_truncated`, weight above 0."""
        fit_N = np.asarray([not r.late and (self.trains_truncated or not r.truncated) for r in self.rollouts], np.bool_)
        return fit_N if self.weights is None else fit_N & (self.weights.weights_N > 0)

    @property
    def draw_order_N(self) -> NDArray[np.intp]:
        """Indices of the rollouts in an order independent of their content, so that the first are a uniform draw.

        Rollouts that were sampled together are already in such an order. If they are in the order in which they
        finished, short ones first, a permutation is drawn by the ticket.
        """
        if not self.in_pieces:
            return np.arange(self.size)
        return Stream(0, ("order", self.request.ticket)).generator().permutation(self.size)

    def with_weights(self, factors_N: Sequence[float] | Floats) -> "Group":
        """The group with its weights multiplied by the factors; advantages are unchanged."""
        product_N = self.weights_N * np.asarray(factors_N, np.float64)
        known = self.weights
        return replace(self, weights=replace(known, weights_N=product_N) if known else LossWeights(product_N))

    def with_advantages(
        self, advantages_N: Floats | None = None, advantages_NT: tuple[Floats, ...] | None = None
    ) -> "Group":
        """The group with the given advantages; weights are unchanged."""
        return replace(self, weights=LossWeights(self.weights_N, advantages_N, advantages_NT))

    @property
    def policy_versions(self) -> tuple[int, ...]:
        """The versions of the weights that sampled the group (see `Turn`), oldest first; empty without rollouts."""
        return tuple(sorted({version for rollout in self.rollouts for version in rollout.policy_versions}))

    @property
    def policy_version(self) -> int:
        """The oldest version among the rollouts, so that no token of the group is staler.

        Raises ValueError for a group that lost all its rollouts, like `pass_rate`, or for which only counts are known.
        """
        versions = self.policy_versions
        if not versions:
            raise ValueError(f"the group of problem {self.request.problem.id!r} has no tokens, so no policy version")
        return versions[0]

    @property
    def num_generated(self) -> int:
        return sum(rollout.num_generated for rollout in self.rollouts)

    def bare(self) -> "Group":
        """The group for storage, without the fields that training does not read."""
        request = structs.replace(self.request, ticket="", step=0, round=0, decisions=(), prefix=None, hint=None)
        bare = (tuple(replace(t, entropies_T=NO_VALUES, values_T=None) for t in r.turns) for r in self.rollouts)
        rollouts = tuple(replace(rollout, turns=turns) for rollout, turns in zip(self.rollouts, bare, strict=True))
        return replace(self, request=request, rollouts=rollouts, weights=None, earlier=0)

    @property
    def num_tokens(self) -> int:
        """Tokens of whole sequences, with prompts, replays and observations: the cost of a pass over the group."""
        turns = [turn for rollout in self.rollouts for turn in rollout.turns]
        written = sum(len(turn.tokens_T) + len(turn.observation_tokens_O) for turn in turns)
        return self.size * len(self.prompt_tokens_P) + written


def require_valid_weights(groups: Sequence[Group], member: str) -> None:
    """Refuse weights and advantages that do not give a valid loss.

    Raises:
        UserError: if a weight is negative, or a weight or an advantage is not finite.
    """
    for group in groups:
        weights = group.weights
        if weights is None:
            continue
        field, problem = f"controllers.{member}", group.request.problem.id
        weights_N = weights.weights_N
        assert len(weights_N) == group.size, f"{member}: {len(weights_N)} weights for {group.size} rollouts"
        good = bool(np.isfinite(weights_N).all() and (weights_N >= 0).all())
        if not good:
            raise UserError(
                f"{field}: gives problem {problem!r} the weights {np.asarray(weights_N).tolist()}, but weights "
                "must be finite and at least 0; correct the controller's weigh"
            )
        advantages = [] if weights.advantages_N is None else [weights.advantages_N]
        finite = all(np.isfinite(values).all() for values in (*advantages, *(weights.advantages_NT or ())))
        if not finite:
            raise UserError(
                f"{field}: gives problem {problem!r} advantages that are not finite; correct the controller's weigh"
            )


def spread(requests: Sequence[Request], num_processes: int) -> list[list[int]]:
    """Assign requests to processes, by index, with about equally many rollouts each.

    Requests with the same problem and origin stay together, in order: the random stream of a request counts those
    before it. So the outcome is the same on any number of processes.
    """
    bundles: dict[tuple[str, str], list[int]] = {}
    for i, request in enumerate(requests):
        bundles.setdefault((request.problem.id, request.origin.value), []).append(i)
    shares: list[list[int]] = [[] for _ in range(num_processes)]
    loads = [0] * num_processes
    for bundle in sorted(bundles.values(), key=lambda bundle: -sum(requests[i].num_rollouts for i in bundle)):
        process = loads.index(min(loads))
        shares[process] += bundle
        loads[process] += sum(requests[i].num_rollouts for i in bundle)
    return [sorted(share) for share in shares]
