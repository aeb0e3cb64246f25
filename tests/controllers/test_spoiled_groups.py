"""What members do with groups whose rollouts are late, cut, lost, or recorded one by one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from controller_harness import group, problem_set, rollout

from halfway.controllers import CONTROLLERS
from halfway.controllers.chains import from_yaml
from halfway.controllers.greso import Greso
from halfway.controllers.prefixes.control_loops import Saved, save_one
from halfway.curriculum import Group, Origin, ProblemSet, Rollout, Session, Stream
from halfway.curriculum.controller import NEEDS
from halfway.curriculum.signals import standardize
from halfway.testing import SimulatedRollouts, sample_problems
from halfway.trainers.learner.batch import make_batch
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.learner.objective.advantages import advantages

(PROBLEM,) = problem_set(1)
CHOICES: list[tuple[str, dict[str, Any]]] = [
    ("rounds", {}),
    ("downsample", {"keep": 0.5, "baseline": "group"}),
    ("downsample", {"keep": 0.5}),
]


def spoiled(*, late: bool = False, **options: Any) -> Group:
    """Four failures that were cut, one that ended by itself, and three successes."""
    made = group(PROBLEM, 3)
    rollouts = [replace(each, truncated=i < 4, late=late and i < 4) for i, each in enumerate(made.rollouts)]
    return replace(made, rollouts=tuple(rollouts), **options)


@pytest.mark.parametrize(("name", "options"), CHOICES)
@pytest.mark.parametrize("made", [spoiled(late=True), spoiled(trains_truncated=False)], ids=["late", "cut"])
def test_rollouts_that_the_learner_leaves_out_are_not_chosen(name: str, options: dict[str, Any], made: Group) -> None:
    member = CONTROLLERS.get(name)(**options)
    (after,) = member.weigh([made], member.init(ProblemSet([PROBLEM])), Stream(0))
    batch = make_batch([after], LearnerOptions(compact_filtering=not made.trains_truncated))
    assert sorted(np.sign(sequence.advantage) for sequence in batch.sequences) == [-1, 1, 1, 1]


def test_rounds_continue_until_enough_failures_can_train() -> None:
    rounds = CONTROLLERS.get("rounds")(keep=2)
    assert rounds._enough(spoiled(late=True)) and not rounds._enough(
        replace(spoiled(late=True), rollouts=spoiled(late=True).rollouts[:4] + spoiled().rollouts[5:])
    )


@pytest.mark.parametrize("second", ["downsample", {"downsample": {"baseline": "group"}}])
def test_two_members_that_choose_rollouts_leave_both_outcomes(second: Any) -> None:
    session, mixed = Session(sample_problems(60), from_yaml(["uniform", "rounds", second]), 8, provides=NEEDS), 0
    for step in range(4):
        tickets, round_ = session.next_batch(16), 0
        while tickets:
            for made in SimulatedRollouts().run([t.request for t in tickets], Stream(0).at(step, round_)):
                session.record_group(made.request.ticket, made)
            tickets, round_ = session.next_batch(0), round_ + 1
        for made in session.weigh(list(session.in_hand())):
            if not made.zero_variance:
                trains = {r.success for r, weight in zip(made.rollouts, made.weights_N, strict=True) if weight}
                assert trains == {False, True}
                mixed += 1
        session.commit()
    assert mixed > 40


@pytest.mark.parametrize("kind", ["ghpo", "seele"])
@pytest.mark.parametrize("first", ["probe", "prefix_sampling"])
def test_only_a_problems_own_groups_are_tried_again(kind: str, first: str) -> None:
    session = Session(sample_problems(60), from_yaml([first, "uniform", {"hints": {"kind": kind}}]), 8, provides=NEEDS)
    again: Counter[Origin] = Counter()
    for step in range(12):
        tickets, round_ = session.next_batch(12), 0
        while tickets and round_ < 4:
            hand = {made.request.problem.id: made.request.origin for made in session.in_hand()}
            retries = [t.request for t in tickets if t.request.decisions[-1].action == "again"]
            again.update(hand[request.problem.id] for request in retries)
            for made in SimulatedRollouts(skill=-1.5).run([t.request for t in tickets], Stream(0).at(step, round_)):
                session.record_group(made.request.ticket, made)
            tickets, round_ = session.next_batch(0), round_ + 1
        session.commit()  # a KeyError, when generated problems were tried again
    assert again[Origin.FRESH] > 5 and again.keys() <= {Origin.FRESH, Origin.HINTED}


def with_survivors(name: str, survivors: int) -> Session:
    """A session in which eight problems have one group of eight each, of which only some rollouts came back, passed."""
    session = Session(sample_problems(60), from_yaml(["uniform", name]), 8)
    for ticket in session.next_batch(8):
        session.record(ticket.id, [Rollout((), True)] * survivors, lost={"sandbox": 8 - survivors})
    session.commit()
    session.next_batch(40)
    return session


@pytest.mark.parametrize(("survivors", "judged"), [(1, 0), (3, 0), (4, 8), (8, 8)])
def test_a_few_survivors_judge_no_problem(survivors: int, judged: int) -> None:
    assert int((with_survivors("retire", survivors).state["retire"].retired_P >= 0).sum()) == judged
    assert int((with_survivors("greso", survivors).state["greso"].streaks > 0).sum()) == judged


@pytest.mark.parametrize(("floor", "wanted"), [(0.001, 8), (1e-6, 1), (1e-6, 64)])
def test_greso_starves_no_plan_of_many_problems(floor: float, wanted: int) -> None:
    session = Session(problem_set(20_000), from_yaml(["uniform", {"greso": {"floor": floor}}]), 8)
    streaks = np.full(20_000, -12, np.int16)
    session.state = {**session.state, "greso": replace(session.state["greso"], streaks=streaks)}
    assert len(session.next_batch(wanted)) == wanted
    assert len(session.skipped) <= 100 * wanted
    assert Greso().metrics(session.state["greso"])["readmitted"] > 0


def saved_lengths(as_they_finish: bool) -> list[float]:
    """Lengths of the saved successes of many groups, as shares of the mean of the successes of theirs."""
    session, generator, shares = Session(sample_problems(60), from_yaml(["uniform"]), 8), np.random.default_rng(0), []
    for _ in range(30):
        for ticket in session.next_batch(8):
            lengths = generator.integers(2, 400, 8)
            rollouts = [rollout(i % 3 == 0, length=int(length)) for i, length in enumerate(lengths)]
            order = np.argsort(lengths, kind="stable") if as_they_finish else np.arange(8)
            for place in order:
                session.record(ticket.id, [rollouts[place]], np.zeros(2, np.int32))
        for made in session.commit():
            saved = save_one(made, True, 0)
            assert isinstance(saved, Saved)
            passed = [r.length("tokens") for r in made.rollouts if r.success]
            shares.append(saved.length / float(np.mean(passed)))
    return shares


def test_the_rollout_that_is_saved_is_a_fair_draw_where_the_short_ones_come_first() -> None:
    shares = saved_lengths(as_they_finish=True)
    assert np.mean(shares) == pytest.approx(1.0, abs=4 * np.std(shares) / len(shares) ** 0.5)


def test_rollouts_that_were_sampled_together_stay_in_their_order() -> None:
    assert group(PROBLEM, 3).draw_order_N.tolist() == list(range(8))


@pytest.mark.parametrize("rewards", [[0.1] * 7, [0.3] * 3, [1.0] * 8])
def test_equal_rewards_have_no_advantage_at_all(rewards: Sequence[float]) -> None:
    assert (
        advantages(rewards).tolist() == advantages(rewards, "mean", divide_by_std=True).tolist() == [0.0] * len(rewards)
    )
    assert standardize(rewards).tolist() == [0.0] * len(rewards)
