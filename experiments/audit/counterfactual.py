"""Computes counterfactuals: replays controllers, with a log's own history as the world.

A controller proposes step by step in a `Session`, as in training. The log answers with the problem's group in that step
or, if the controller chooses problems itself, with the problem's group nearest in time. The controller learns only from
its own requests: a filter that skips a visit does not see the outcome, but the log has it and shows whether the skip
was right. Requests that the log cannot answer are counted.

A controller that skips is judged at the pace of its own run, since it learns and adapts by its own steps: a step ends
when the batch is full of groups that it did not skip, not when the log's step ends. A second replay ends a step when
the batch is full of mixed groups, like dynamic sampling.

All answers come from the policy as it was trained. A run with other rollouts would have learnt differently, and no log
can tell how.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from halfway.controllers import CONTROLLERS
from halfway.controllers.beliefs.forest import Floats, Forest
from halfway.controllers.beliefs.forest_beliefs import PassRateBelief
from halfway.curriculum import (
    Decision,
    PassRateController,
    Plan,
    Problem,
    ProblemSet,
    Request,
    Session,
    Stream,
    Ticket,
    UserError,
    chain,
)
from halfway.experiments.audit.history import History, Log

Kind = Literal["skips", "chooses", "allocates", "goes on", "weighs"]
PROVIDES = frozenset({"rounds", "rollouts", "weights"})
DEFAULTS = ("greso", "retire", "knapsack", "pilot", "rounds", "mopps", "pros", "vcrl")
"""The controllers to replay by default; they need only counts from a log."""

MOST_VISITS, MOST_STEPS = 50_000, 3_000
MOST_ROUNDS = 10
"""Maximum number of batches to roll out to fill one with mixed groups, as in DAPO's recipe."""

NO_VISIT, NO_MORE = "the log has no visit nearby", "the group has no more rollouts"
BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """Visits with similar believed pass rates: mean believed rate, mean observed rate, and number."""

    believed: float
    observed: float
    visits: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """Believed pass rates against the outcomes of the log's visits, for problems with evidence.

    Attributes:
        error: mean absolute difference between a bin's believed and observed rate, weighted by visits.
        square: mean squared error of the believed rates over visits.
        last, mean: mean squared errors of two trivial predictions: the rate at the problem's previous visit, and the
            mean rate of all visits.
    """

    bins: tuple[Bin, ...]
    error: float
    square: float
    last: float
    mean: float


@dataclass(slots=True)
class Replayed:
    """The replay of one controller, filled in step by step.

    Attributes:
        kind: whether the controller skips visits, chooses problems, sets group sizes ("allocates"), continues groups
            within a step ("goes on"), or decides what trains ("weighs").
        visits: number of offered visits; for a controller that chooses problems, number of groups wanted.
        left_out: see `World`.
        rollouts: number of requested rollouts that the log has.
        teaching: number of answered groups with a gradient.
        skipped: number of refused visits.
        refilled: the same if batches are filled with mixed groups; None for a controller that does not skip.
        rightly: number of refused visits with zero variance.
        zero_variance: number of offered visits with zero variance.
        unanswered: number of requested rollouts that the log does not have, by reason.
        again: share of the answers that reuse a group: a controller that chooses problems may request a problem more
            often than the run visited it.
        calibration: quality of its predicted pass rates; None for a controller without predictions.
    """

    name: str
    kind: Kind
    visits: int
    left_out: int
    rollouts: int = 0
    teaching: int = 0
    skipped: int = 0
    refilled: int | None = None
    rightly: int = 0
    zero_variance: int = 0
    unanswered: Counter[str] = field(default_factory=Counter)
    again: float = 0.0
    calibration: Calibration | None = None

    @property
    def price(self) -> float | None:
        """Rollouts spent per group with a gradient; None without such groups."""
        return self.rollouts / self.teaching if self.teaching else None

    @property
    def forecast(self) -> tuple[float, float]:
        """Range of the share of visits that its own run would skip.

        It covers both ways to fill a batch, each with 95 % of the chance in the controller's draws.
        """
        shares = [count / self.visits for count in (self.skipped, self.refilled) if count is not None]
        low, high = min(shares), max(shares)
        apart = [1.96 * (share * (1 - share) / self.visits) ** 0.5 for share in (low, high)]
        return max(0.0, low - apart[0]), min(1.0, high + apart[1])

    @property
    def precision(self) -> float | None:
        """Share of the skipped visits that had zero variance; None if none was skipped."""
        return self.rightly / self.skipped if self.skipped else None

    @property
    def caught(self) -> float | None:
        """Share of the zero-variance visits that were skipped; None without such visits."""
        return self.rightly / self.zero_variance if self.zero_variance else None

    @property
    def answered(self) -> float:
        """Share of the requested rollouts that the log has."""
        asked = self.rollouts + sum(self.unanswered.values())
        return self.rollouts / asked if asked else 1.0


@dataclass(frozen=True, slots=True)
class Refused:
    """A controller that cannot be replayed against the log, and why."""

    name: str
    why: str


class Visit(NamedTuple):
    """A group of the log: its step, its outcome, and whether its rewards, possibly partial ones, were equal."""

    step: int
    passed: int
    size: int
    zero_variance: bool


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """The log's fresh groups, from which requests are answered. Steps are numbered from 0.

    Attributes:
        problems: the visited problems.
        schedule: for each step, its visits in the log's order, as pairs of the problem's index and the visit.
        visits_P: each problem's visits, ordered by step.
        num_rollouts: the most common group size.
        near: maximum number of steps by which a visit may replace another: the median number of steps between two
            consecutive visits of a problem; 0 if no problem occurs in two steps.
        left_out: number of visits after the first ones, which are not replayed.
    """

    problems: ProblemSet
    schedule: Sequence[Sequence[tuple[int, Visit]]]
    visits_P: Sequence[Sequence[Visit]]
    num_rollouts: int
    near: int
    left_out: int = 0

    @property
    def batch(self) -> int:
        """The usual number of visits in a step."""
        return int(np.median([len(due) for due in self.schedule]))

    def nearest(self, position: int, step: int) -> Visit | None:
        """The problem's visit nearest to a step, the earlier one in a tie; None if none is within `near` steps.

        Args:
            position: the problem's index in `problems`.
        """
        visits = self.visits_P[position]
        i = bisect_left(visits, step, key=lambda visit: visit.step)
        around = visits[max(0, i - 1) : i + 1]
        best = min(around, key=lambda visit: abs(visit.step - step), default=None)
        return best if best is not None and abs(best.step - step) <= self.near else None


def world_of(history: History, most: int = MOST_VISITS) -> World:
    """Make the world of a log's first `most` fresh groups with two or more rollouts, of `MOST_STEPS` steps at most.

    A step takes a belief milliseconds, however few its groups are.
    """
    fresh = history.fresh()
    fresh = fresh.where(fresh.size_V >= 2)
    steps, index_V = np.unique(fresh.step_V, return_inverse=True)
    ends = np.cumsum(np.bincount(index_V, minlength=len(steps)))
    whole = min(max(1, int(np.searchsorted(ends, most, "right"))), MOST_STEPS) if len(steps) else 0
    kept = index_V < whole
    some, index_V = fresh.where(kept), index_V[kept]
    places, position_V = np.unique(some.problem_V, return_inverse=True)
    problems = ProblemSet([_problem(history, place) for place in places.tolist()])
    schedule: list[list[tuple[int, Visit]]] = [[] for _ in range(whole)]
    visits_P: list[list[Visit]] = [[] for _ in places]
    columns = (index_V, position_V, some.passed_V, some.size_V, some.zero_variance_V)
    for step, position, *outcome in zip(*(column.tolist() for column in columns), strict=True):
        visit = Visit(step, *outcome)
        schedule[step].append((position, visit))
        visits_P[position].append(visit)
    apart = [b.step - a.step for visits in visits_P for a, b in pairwise(visits) if b.step > a.step]
    near = int(np.median(apart)) if apart else 0
    return World(problems, schedule, visits_P, history.group_size, near, len(fresh) - len(some))


def _problem(history: History, place: int) -> Problem:
    category = history.category_P[place]
    return Problem(history.problems[place], "", "", features={"category": category} if category else {})


@dataclass(frozen=True, slots=True)
class Proposed:
    """Number of the log's visits proposed so far."""

    visits: int = 0


@dataclass(frozen=True)
class AsLogged(PassRateController[Proposed]):
    """Proposes the log's visits in the log's order, each with its index there as the action.

    Attributes:
        onward: whether visits of the log's next steps replace skipped visits.
    """

    world: World
    onward: bool = False

    @cached_property
    def visits(self) -> list[tuple[int, Visit]]:
        return [visit for due in self.world.schedule for visit in due]

    @cached_property
    def ends(self) -> list[int]:
        """Number of visits in the log up to the end of each step."""
        return list(accumulate(map(len, self.world.schedule)))

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({"problems"})

    def init(self, problems: ProblemSet) -> Proposed:
        return Proposed()

    def propose(self, plan: Plan, state: Proposed, stream: Stream) -> tuple[Plan, Proposed]:
        end = len(self.visits) if self.onward else self.ends[plan.step]
        end = min(end, state.visits + max(0, plan.missing))
        due = self.visits[state.visits : end]
        requests = tuple(
            Request(self.world.problems[position], visit.size, decisions=(Decision(plan.member, str(i)),))
            for i, (position, visit) in enumerate(due, state.visits)
        )
        return replace(plan, requests=plan.requests + requests), Proposed(max(end, state.visits))


def replay(log: Log, names: Sequence[str] = DEFAULTS, most: int = MOST_VISITS) -> list[Replayed | Refused]:
    """Replay each named controller, with its default options, against the log.

    Raises:
        UserError: if a name is not registered.
    """
    if strange := set(names) - set(CONTROLLERS.names()):
        raise CONTROLLERS.unknown("--replay", min(strange))
    makers = {name: CONTROLLERS.get(name) for name in names}
    unsound = _unsound(log)
    if unsound:
        return [Refused(name, unsound) for name in names]
    world = world_of(log.history, most)
    return [_replayed(name, make, world) for name, make in makers.items()]


def _unsound(log: Log) -> str:
    """Why counterfactuals from this log would be meaningless; "" if they are meaningful."""
    if not log.reading.identified:
        return "the log does not identify problems, so visits of one problem cannot be matched"
    if not log.reading.keeps_zero_variance:
        return "zero-variance groups seem not to be in the log"
    fresh = log.history.fresh()
    return "" if (fresh.size_V >= 2).any() else "no group has two rollouts"


def _replayed(name: str, make: type[PassRateController[Any]], world: World) -> Replayed | Refused:
    try:
        controller = make()
        if {"prefixes", "tokens"} & controller.needs and getattr(controller, "reuse", False):
            controller, name = replace(controller, reuse=False), f"{name} (selection only)"  # type: ignore[type-var]
        if "problems" in controller.claims and world.near == 0:
            return Refused(name, "it chooses problems, and no problem occurs twice in the log")
        replayed = Replay(name, controller, world).run()
        if replayed.kind == "skips":
            replayed.refilled = Replay(name, controller, world, refills=True).run().skipped
        return replayed
    except UserError as error:
        return Refused(name, _reason(str(error), name))


def _reason(message: str, name: str) -> str:
    """Shorten a session's reason for refusing a controller, for a table."""
    return message.removeprefix(f"controllers.{name} ").removeprefix("problems: ").partition(";")[0]


class Pool:
    """The undrawn rollouts of a group; draws are without replacement."""

    def __init__(self, visit: Visit, stream: Stream):
        self.passed, self.size, self._stream = visit.passed, visit.size, stream

    @cached_property
    def _generator(self) -> np.random.Generator:
        return self._stream.generator()

    def draw(self, wanted: int) -> tuple[int, int]:
        """Draw up to `wanted` rollouts; returns the numbers of passed and of drawn ones."""
        count = min(wanted, self.size)
        if count == self.size or self.passed in (0, self.size):  # one outcome; a generator costs 15 us
            passed = min(count, self.passed)
        else:
            passed = int(self._generator.hypergeometric(self.passed, self.size - self.passed, count))
        self.passed, self.size = self.passed - passed, self.size - count
        return passed, count


class Replay:
    """Replays one controller against a world."""

    def __init__(
        self, name: str, controller: PassRateController[Any], world: World, refills: bool = False, batch: int = 0
    ):
        """
        Args:
            refills: whether a step ends when the batch is full of mixed groups, if the controller skips.
            batch: groups per batch of a controller that skips; 0 = the usual number in the log's steps.

        Raises:
            UserError: if the controller needs data that no log has.
        """
        self.controller, self.world, self.kind = controller, world, kind_of(controller)
        self.refills, self.batch = refills, batch or world.batch
        self.logged = AsLogged(world, onward=self.kind == "skips")
        self.found = Replayed(name, self.kind, len(self.logged.visits), world.left_out)
        self.label = name.partition(" ")[0]
        own = (self.label, controller)
        members = [own] if self.kind == "chooses" else [("log", self.logged), own]
        self.session = Session(world.problems, chain(*members), world.num_rollouts, provides=PROVIDES, host="a log")
        self.pools: dict[str, Pool] = {}
        self._stream = Stream(0).at("replay")
        self.answers = 0
        self.used: set[int] = set()  # ids of visits; the world keeps them alive
        self.beliefs: list[tuple[float, float, float]] = []  # believed rate, observed rate, rate at the previous visit
        self.latest: dict[int, float] = {}

    def run(self) -> Replayed:
        """Replay the whole world, step by step."""
        if self.kind == "skips":
            while self._left:
                self._step(self.batch)
        else:
            for due in self.world.schedule:
                self._step(len(due), due)
        self.found.again = 1 - len(self.used) / self.answers if self.answers else 0.0
        self.found.calibration = calibration(self.beliefs) if self.beliefs else None
        return self.found

    def _step(self, wanted: int, due: Sequence[tuple[int, Visit]] = ()) -> None:
        """Take a step with a batch of `wanted` groups; a controller that chooses sees the log's visits in it."""
        if self.kind == "chooses":
            self._remember(due)
            for ticket in self.session.next_batch(wanted):
                self._answer(ticket, None)
        else:
            mixed = self._round(wanted)
            while self.refills and mixed < wanted and self.session.round < MOST_ROUNDS and self._left:
                mixed += self._round(wanted - mixed)
        while self.session.continues and (more := self.session.next_batch(0)):
            for ticket in more:
                self._answer(ticket, None)
        self.found.teaching += sum(group.teaches for group in self.session.weigh(list(self.session.in_hand())))
        self.session.commit()

    @property
    def _left(self) -> bool:
        """True if the log has unproposed visits."""
        return self._proposed < len(self.logged.visits)

    @property
    def _proposed(self) -> int:
        return int(self.session.state["log"].visits)

    def _round(self, wanted: int) -> int:
        """Roll out the next `wanted` visits that are not skipped; returns the number of mixed groups."""
        first = self._proposed
        state = self.session.state[self.label]
        tickets = self.session.next_batch(wanted)
        due = self.logged.visits[first : self._proposed]
        self._remember(due, state)
        kept = {int(ticket.request.decisions[0].action): ticket for ticket in tickets}
        for i, (position, visit) in enumerate(due, first):
            self.found.zero_variance += visit.zero_variance
            if ticket := kept.get(i):
                assert ticket.request.problem.id == self.world.problems[position].id
                self._answer(ticket, visit)
            else:
                self.found.skipped += 1
                self.found.rightly += visit.zero_variance
        return sum(not self.logged.visits[i][1].zero_variance for i in kept)

    def _answer(self, ticket: Ticket, visit: Visit | None) -> None:
        request, step = ticket.request, self.session.step
        if request.extends:
            pool = self.pools[request.extends]
        else:
            if visit is None:
                visit = self.world.nearest(self.world.problems.position(request.problem.id), step)
            if visit is None:
                self.found.unanswered[NO_VISIT] += request.num_rollouts
                self.session.abandon(ticket.id, NO_VISIT)
                return
            self.answers += 1
            self.used.add(id(visit))
            pool = self.pools[ticket.id] = Pool(visit, self._stream.at(step, ticket.id))
        passed, count = pool.draw(request.num_rollouts)
        self.found.rollouts += count
        if count:
            self.session.record_counts(ticket.id, passed, count)
        if count < request.num_rollouts:
            self.found.unanswered[NO_MORE] += request.num_rollouts - count
            self.session.abandon(ticket.id, NO_MORE)

    def _remember(self, due: Sequence[tuple[int, Visit]], state: Any = None) -> None:
        """Note the believed pass rates of visited problems in a state (None = the present one), with their outcomes."""
        state = self.session.state[self.label] if state is None else state
        rate_P = read_beliefs(self.controller, state, self.session.step)
        for position, visit in due:
            observed = visit.passed / visit.size
            if rate_P is not None and position in self.latest and np.isfinite(rate_P[position]):
                self.beliefs.append((float(rate_P[position]), observed, self.latest[position]))
            self.latest[position] = observed


def kind_of(controller: PassRateController[Any]) -> Kind:
    """Classify a controller by its claims and needs."""
    if "problems" in controller.claims:
        return "chooses"
    if "rounds" in controller.claims:
        return "goes on"
    if "rollouts" in controller.claims:
        return "allocates"
    return "weighs" if "weights" in controller.needs else "skips"


def read_beliefs(controller: PassRateController[Any], state: Any, step: int) -> Floats | None:
    """A controller's believed pass rates of all problems, (problems,); NaN for problems without evidence.

    None if the controller has no such beliefs. If its belief draws rates at random, the belief's mean counts.
    """
    forest, belief = getattr(state, "forest", None), getattr(controller, "belief", None)
    if isinstance(forest, Forest) and isinstance(belief, PassRateBelief):
        if belief.kind == "beta" and belief.beta.draw:
            a, b = belief.beta.posterior(forest, slice(None))
            rate_M = a / (a + b)
        else:
            rate_M = belief.refresh(forest, step, Stream(0).at("belief", step)).rate_M
        tried = forest.tried_M[: forest.num_trees] > 0
        return np.where(tried, rate_M[: forest.num_trees], np.nan)
    rate_P = getattr(state, "rate_P", None)
    if isinstance(rate_P, np.ndarray):
        return np.where(rate_P >= 0, rate_P, np.nan)
    return None


def calibration(beliefs: Sequence[tuple[float, float, float]]) -> Calibration:
    """Compare believed with observed rates.

    Args:
        beliefs: for each visit, the believed rate, the observed rate, and the rate at the problem's previous visit.
    """
    believed, observed, before = np.asarray(beliefs).T
    place = np.minimum((believed * BINS).astype(int), BINS - 1)
    bins = [
        Bin(float(believed[place == i].mean()), float(observed[place == i].mean()), int((place == i).sum()))
        for i in np.unique(place)
    ]
    error = sum(abs(each.believed - each.observed) * each.visits for each in bins) / len(believed)
    return Calibration(
        tuple(bins),
        error=float(error),
        square=float(np.mean((believed - observed) ** 2)),
        last=float(np.mean((before - observed) ** 2)),
        mean=float(np.mean((observed.mean() - observed) ** 2)),
    )
