"""Replay: trains on stored groups again, from the buffer of DOTS (arXiv 2506.05316)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from msgspec import structs

from halfway.controllers.laws.slots import slots_left
from halfway.curriculum import Group, Origin, PassRateController, Plan, ProblemSet, Request, Rollout, Stream, require

FADING = 0.9  # what a step of age leaves of a stored group's weight, under `order: rare`


@dataclass(frozen=True, slots=True, eq=False)
class ReplayState:
    """The stored groups, oldest first.

    Attributes:
        groups: the stored groups, all of them mixed.
        trained: how often each stored group has trained again.
        stored_at: step in which each group was stored.
        came_in: number of groups stored in the latest step.
        used: indices into `groups` of those taken in this step.
        replayed: number of groups replayed so far.
        failed: the latest failures of each problem as one group, oldest first; the request holds the step.
        joined: number of all-passed groups so far that were stored together with such failures.
    """

    problems: ProblemSet
    groups: tuple[Group, ...] = ()
    trained: tuple[int, ...] = ()
    stored_at: tuple[int, ...] = ()
    came_in: int = 0
    used: tuple[str, ...] = ()
    replayed: int = 0
    failed: tuple[Group, ...] = ()
    joined: int = 0


@dataclass(frozen=True)
class Replay(PassRateController[ReplayState]):
    """Trains on stored groups again, with the log-probabilities recorded at sampling.

    DOTS (arXiv 2506.05316): a share of every plan consists of groups drawn at random from a first-in, first-out buffer
    of mixed groups. Published: half of a batch of 512, from a buffer of 512 groups. In a chain it comes before the
    member that chooses problems.

    A replayed group says nothing new about its problem, costs no rollout, and is not stored again. The oldest entries
    are dropped when there are more than `capacity` groups or `tokens` tokens.

    If few new groups are mixed, a full share of the plan repeats the same old groups, while the policy drifts away from
    the one that sampled them. `uses`, `age` and `matched` bound this, so that fewer stored groups train when fewer new
    groups are stored; `order: rare` prefers groups with few successes. All four are ours; FAIR (2604.08706)
    weighs staleness, diversity and the cost of generation instead.

    With `failures`, an all-passed fresh group is stored too, with failures of the same problem from an earlier step
    (ours). "Save Your Saturated Data" (arXiv 2609.33126) adds failures that the policy is prompted to write.

    Two published rules are not implemented. The gate of Headroom-Drift (2609.03941) needs the current
    probabilities of stored tokens, and so a forward pass; a controller has no model. Replay of single rollouts by
    |advantage| (2606.04560) would train only the rarer outcome of a group with binary rewards.

    Attributes:
        share: largest share of stored groups in a plan.
        capacity: largest number of stored groups.
        uses: replays of a stored group before it is dropped; null = no bound.
        age: steps after which a stored group is dropped; null = no bound.
        matched: true = a step replays at most as many groups as the previous step stored.
        order: "random", or "rare" = without replacement in proportion to (1 - p) 0.9^age, where p is the pass rate of
            the group.
        tokens: maximum number of stored tokens, prompts and observations included. In a checkpoint a response token
            takes 8 bytes, any other token 4.
        failures: maximum number of stored failures added to an all-passed group; 0 = such groups are not stored.
            Failures of at most `capacity` problems are kept, within `age` and another `tokens`.
    """

    REMOVED: ClassVar = {"kind": ("groups", "single responses learned less than plain GRPO")}

    share: float = 0.5
    capacity: int = 512
    uses: int | None = None
    age: int | None = None
    matched: bool = False
    order: Literal["random", "rare"] = "random"
    tokens: int = 2_000_000
    failures: int = 0

    claims = frozenset({"stored"})
    needs = frozenset({"stored", "tokens"})

    def __post_init__(self) -> None:
        require(0 < self.share < 1, "replay.share", self.share, "give a share above 0 and below 1")
        for name in ("capacity", "tokens"):
            require(vars(self)[name] >= 1, f"replay.{name}", vars(self)[name], "give at least 1")
        for name in ("uses", "age"):
            bound = vars(self)[name]
            require(bound is None or bound >= 1, f"replay.{name}", bound, "give at least 1, or null for no bound")

        require(self.failures >= 0, "replay.failures", self.failures, "give 0 or more")

    def init(self, problems: ProblemSet) -> ReplayState:
        return ReplayState(problems)

    def propose(self, plan: Plan, state: ReplayState, stream: Stream) -> tuple[Plan, ReplayState]:
        groups = self._draw(plan, state, stream)
        requests = [Request(g.request.problem, g.size, Origin.STORED, stored=g) for g in groups.values()]
        state = replace(state, used=(*state.used, *groups), replayed=state.replayed + len(groups))
        return plan.add(requests, "stored"), state

    def _draw(self, plan: Plan, state: ReplayState, stream: Stream) -> dict[str, Group]:
        """Draw stored groups in the configured order, keyed by place as in `ReplayState.used`."""
        wanted = slots_left(plan, self.share, Origin.STORED)
        if self.matched:
            wanted = min(wanted, state.came_in - len(state.used))
        held = {request.problem.id for request in plan.requests}
        drawn: dict[str, Group] = {}
        if wanted <= 0:
            return drawn
        for place in self._order(state, plan.step, stream.generator()):
            group = state.groups[place]
            if len(drawn) < wanted and str(place) not in state.used and group.request.problem.id not in held:
                drawn[str(place)] = group
                held.add(group.request.problem.id)
        return drawn

    def _order(self, state: ReplayState, step: int, generator: np.random.Generator) -> list[int]:
        """Places of the stored groups in the order in which they are taken, without those that are too old."""
        ages = [step - stored_at for stored_at in state.stored_at]
        if self.order == "random":
            order: list[int] = generator.permutation(len(ages)).tolist()
        else:
            weights = [(1 - g.pass_rate) * FADING**age for g, age in zip(state.groups, ages, strict=True)]
            order = np.argsort(-np.log(weights) - generator.gumbel(size=len(weights)), kind="stable").tolist()
        return [place for place in order if self.age is None or ages[place] <= self.age]

    def observe(self, state: ReplayState, groups: Sequence[Group], step: int) -> ReplayState:
        left = self._find_usable(state, step)
        stored, trained = [state.groups[place] for place, _ in left], [count for _, count in left]
        stored_at = [state.stored_at[place] for place, _ in left]
        failed = {g.request.problem.id: g for g in state.failed if self.age is None or step - g.request.step < self.age}
        joined = 0
        for group in groups:
            fresh, problem = group.request.origin is Origin.FRESH, group.request.problem.id
            if fresh:
                state.problems.position(problem)  # raises for a problem of another set
            mixed = None if group.zero_variance else group.bare()
            if mixed is None and fresh and group.num_passed and problem in failed:
                mixed, joined = _join(group, failed[problem]), joined + 1
            if mixed is not None:
                stored.append(mixed)
                trained.append(0)
                stored_at.append(step)
            if fresh and (failures := self._find_failures(group, step)):
                failed = {name: each for name, each in failed.items() if name != problem} | {problem: failures}
        start = _first_kept(list(map(_tokens, stored)), self.capacity, self.tokens)
        first = _first_kept(list(map(_tokens, failed.values())), self.capacity, self.tokens)
        return replace(
            state,
            groups=tuple(stored[start:]),
            trained=tuple(trained[start:]),
            stored_at=tuple(stored_at[start:]),
            came_in=len(stored) - len(left),
            used=(),
            failed=tuple(failed.values())[first:],
            joined=state.joined + joined,
        )

    def _find_failures(self, group: Group, step: int) -> Group | None:
        """The last failures of a group that ended in time, to be kept; None if there are none."""
        failures = [rollout for rollout in group.rollouts if not rollout.success and not rollout.late and rollout.turns]
        if not failures[: self.failures]:
            return None
        bare = replace(group, rollouts=tuple(failures[-self.failures :])).bare()
        return replace(bare, request=structs.replace(bare.request, step=step))

    def _find_usable(self, state: ReplayState, step: int) -> list[tuple[int, int]]:
        """Places of the stored groups that may train again after this step, with the number of times they have."""
        counts = [count + (str(place) in state.used) for place, count in enumerate(state.trained)]
        return [
            (place, count)
            for place, count in enumerate(counts)
            if (self.uses is None or count < self.uses)
            and (self.age is None or step - state.stored_at[place] < self.age)
        ]

    def metrics(self, state: ReplayState) -> Mapping[str, float]:
        """stored: number of stored groups; replayed, and with `failures` joined: see `ReplayState`."""
        joined = {"joined": float(state.joined)} if self.failures else {}
        return {"stored": float(len(state.groups)), "replayed": float(state.replayed), **joined}


def _join(group: Group, failed: Group) -> Group:
    """Add failures of the same problem to an all-passed group."""
    bare = group.bare()
    rollouts = bare.rollouts + failed.rollouts
    return replace(bare, rollouts=rollouts, request=structs.replace(bare.request, num_rollouts=len(rollouts)))


def _tokens(group: Group) -> int:
    """Number of tokens of a stored group: its prompt once, and its rollouts."""
    return len(group.prompt_tokens_P) + sum(map(_length, group.rollouts))


def _length(rollout: Rollout) -> int:
    return sum(len(turn.tokens_T) + len(turn.observation_tokens_O) for turn in rollout.turns)


def _first_kept(lengths: Sequence[int], capacity: int, tokens: int) -> int:
    """The lowest index from which the entries stay within both bounds."""
    first = max(0, len(lengths) - capacity)
    while sum(lengths[first:]) > tokens:
        first += 1
    return first
