"""Plays a chain on a simulated learner: the training loop's steps, without files and without a model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from halfway.curriculum.controller import PassRateController
from halfway.curriculum.groups import Group, Request
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.session import Session
from halfway.curriculum.simulation.attempts import SkillRollouts
from halfway.curriculum.simulation.evidence import updates_of
from halfway.curriculum.simulation.skills import Lessons, SkillLearner, lesson_of
from halfway.curriculum.streams import Stream
from halfway.trainers.loop.fill import Filling
from halfway.trainers.loop.options import FillOptions

IDLE_STEPS = 10
NEEDS_TOKENS = frozenset({"tokens", "prefixes", "entropies", "stored"})


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings that all chains share.

    Attributes:
        num_rollouts: N, rollouts per group.
        groups_per_update: groups in a mini-batch; 0 = one update per step.
        budget: what may be spent, in `unit`.
        unit: "rollouts", or "cost" = generated + rho x trained, in tokens of whole rollouts.
        rho: what a trained token costs in generated tokens.
        points: number of evaluations after the one at the start.
    """

    num_rollouts: int
    groups_per_update: int
    budget: float
    unit: str = "rollouts"
    rho: float = 0.0
    points: int = 6


@dataclass(frozen=True, slots=True)
class Played:
    """The outcome of playing a chain.

    Attributes:
        scores: mean pass rate on new problems of the same kinds, at the start and at even intervals over the budget.
        generated, trained: amounts generated and trained on, in whole rollouts.
        steps: number of training steps.
        idle: whether the chain stopped proposing before the budget was spent.
        degenerate: share of degenerate groups among those rolled out.
        trained_groups: number of groups that trained.
    """

    scores: tuple[float, ...]
    rollouts: int
    generated: float
    trained: float
    steps: int
    degenerate: float
    trained_groups: int
    idle: bool

    @property
    def area(self) -> float:
        """Mean height of the curve of scores over the budget, by which contests choose learning rates."""
        return float(np.mean(self.scores[1:]) + np.mean(self.scores[:-1])) / 2


def play(
    controller: PassRateController[Any],
    problems: ProblemSet,
    learner: SkillLearner,
    fill: FillOptions,
    setting: Setting,
    seed: int = 0,
) -> Played:
    """Let a chain spend the budget on a learner, which learns from the rollouts."""
    rollouts = SkillRollouts(learner, problems, tokens=bool(NEEDS_TOKENS & controller.needs))
    session = Session(problems, controller, setting.num_rollouts, seed, host="the simulation")
    stream = Stream(seed, ("simulated",))
    scores = [score(learner)]
    spent = generated = trained = 0.0
    again: dict[int, tuple[Group, int]] = {}
    count = groups = degenerate = trained_groups = idle = 0
    while spent < setting.budget and idle < IDLE_STEPS:
        filling = _filled(session, rollouts, fill, stream.at(session.step))
        session.commit()
        _learn(learner, rollouts, problems, filling.trained, setting.groups_per_update, again)
        rolled = [group for group in filling.groups if group.size]
        idle = 0 if rolled or filling.trained else idle + 1
        count += sum(group.size for group in rolled)
        groups, degenerate = groups + len(rolled), degenerate + sum(group.degenerate for group in rolled)
        generated += sum(group.size * (1 - rollouts.given(group.request)) for group in rolled)
        trained += sum(float((group.weights_N > 0).sum()) for group in filling.trained)
        trained_groups += len(filling.trained)
        spent = count if setting.unit == "rollouts" else generated + setting.rho * trained
        while len(scores) <= min(setting.points, int(setting.points * spent / setting.budget + 1e-9)):
            scores.append(score(learner))
    scores += [score(learner)] * (setting.points + 1 - len(scores))
    share = degenerate / max(groups, 1)
    return Played(tuple(scores), count, generated, trained, session.step, share, trained_groups, idle >= IDLE_STEPS)


def score(learner: SkillLearner) -> float:
    """Mean pass rate on new problems like the training problems, which lack what each of those learnt for itself."""
    return float(learner.rates(private=False).mean())


def _filled(session: Session, rollouts: SkillRollouts, fill: FillOptions, stream: Stream) -> Filling:
    """The rounds of one step, as in `halfway.trainers.loop.training`."""
    filling = Filling.begin(fill)
    while (wanted := filling.wanted()) or (session.continues and filling.rounds < fill.max_rounds):
        tickets = session.next_batch(wanted)
        if not (wanted or tickets):
            break
        asked = [ticket.request for ticket in tickets if ticket.request.stored is None]
        for group in rollouts.run(asked, stream.at(filling.rounds)):
            session.record_group(group.request.ticket, group)
        in_hand = {group.request.ticket: group for group in session.in_hand()}
        stored = {t.id: _again(t.request.stored, t.request) for t in tickets if t.request.stored is not None}
        found = {**in_hand, **stored}
        filling = filling.add(session.weigh([found[t.request.extends or t.id] for t in tickets]))
    return filling


def _again(stored: Group, request: Request) -> Group:
    return replace(stored, request=request, weights=None)


def _learn(
    learner: SkillLearner,
    rollouts: SkillRollouts,
    problems: ProblemSet,
    groups: Sequence[Group],
    per_update: int,
    again: dict[int, tuple[Group, int]],
) -> None:
    """
    Args:
        again: the stored groups that have trained again, by identity, with the number of times that each has trained,
            including the first time.
    """
    parts = updates_of(len(groups), per_update)
    for part in np.array_split(np.arange(len(groups)), parts) if parts else ():
        batch = [groups[i] for i in part]
        where_M = np.array([problems.position(group.request.problem.id) for group in batch])
        rates_M = learner.rates(where_M[None])[0]
        pairs = zip(batch, rates_M.tolist(), strict=True)
        told_M3 = np.array([lesson_of(group, rollouts.given(group.request), rate) for group, rate in pairs])
        times_M = np.array([_times(group.request.stored, again) for group in batch], np.float64)
        signal_M, energy_M, tokens_M = told_M3.T
        learner.update(where_M[None], Lessons(signal_M[None], energy_M[None], tokens_M[None], times_M[None]))


def _times(stored: Group | None, again: dict[int, tuple[Group, int]]) -> int:
    if stored is None:
        return 1
    times = again.get(id(stored), (stored, 1))[1] + 1
    again[id(stored)] = (stored, times)
    return times
