"""Counterfactuals against histories with known answers."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from messages import says
from typer.testing import CliRunner

from halfway.controllers import CONTROLLERS
from halfway.controllers.contrib.knapsack import Knapsack
from halfway.controllers.contrib.pilot import Pilot
from halfway.controllers.greso import Greso
from halfway.controllers.retire import Retire
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Stream, UserError
from halfway.experiments.audit.counterfactual import (
    MOST_STEPS,
    NO_MORE,
    NO_VISIT,
    Pool,
    Refused,
    Replay,
    Replayed,
    Visit,
    calibration,
    replay,
    world_of,
)
from halfway.experiments.audit.history import UNKNOWN, History, Log, Reading
from halfway.experiments.audit.log_measures import findings
from halfway.experiments.cli import app

N = 8


def history(passed_TP: "np.ndarray[tuple[int, int], np.dtype[np.int32]]") -> History:
    """Every problem in every step, with these k of 8; -1 = not visited."""
    step_V, problem_V = np.nonzero(passed_TP >= 0)
    passed_V = passed_TP[step_V, problem_V].astype(np.int32)
    count = len(passed_V)
    return History(
        problems=tuple(f"p{i}" for i in range(passed_TP.shape[1])),
        category_P=("",) * passed_TP.shape[1],
        problem_V=problem_V.astype(np.int32),
        step_V=step_V.astype(np.int64),
        passed_V=passed_V,
        size_V=np.full(count, N, np.int32),
        zero_variance_V=(passed_V == 0) | (passed_V == N),
        one_text_V=np.zeros(count, np.bool_),
        tokens_V=np.full(count, UNKNOWN, np.int64),
        fresh_V=np.ones(count, np.bool_),
        outcome_V=np.full(count, UNKNOWN, np.int8),
        lost_V=np.zeros(count, np.int32),
    )


def log(passed_TP: "np.ndarray[tuple[int, int], np.dtype[np.int32]]", **reading: bool) -> Log:
    return Log("log", history(passed_TP), dataclasses.replace(Reading("table", "ours"), **reading))  # type: ignore[arg-type]


STEADY = np.tile(np.asarray([0, 4, 8, 3]), (6, 1))  # a dead problem, an easy one, and two that teach


def among_others(
    passed_TP: "np.ndarray[tuple[int, int], np.dtype[np.int32]]",
) -> "np.ndarray[tuple[int, int], np.dtype[np.int32]]":
    """With eight mixed problems that are visited once, so that a batch of four is not offered all problems at once."""
    others = np.full((len(passed_TP), 8), -1)
    others[0] = 4
    return np.hstack([passed_TP, others])


def test_retirement_skips_passed_problems_and_its_skips_are_checked() -> None:
    found = Replay("retire", Retire(above=0.9), world_of(history(among_others(STEADY)))).run()
    assert (found.kind, found.visits) == ("skips", 32)
    assert (found.skipped, found.rightly, found.zero_variance) == (5, 5, 12)  # the easy one, after its first visit
    assert found.precision == 1.0 and found.caught == pytest.approx(5 / 12)
    assert found.rollouts == (32 - 5) * N and found.teaching == 12 + 8


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 0, 1, 3], [0, 1, 3, 2]])
def test_skips_are_counted_wherever_the_step_has_them(order: list[int]) -> None:
    """The last order has the refused visit after every one that was kept."""
    found = Replay("retire", Retire(above=0.9), world_of(history(among_others(STEADY[:, order])))).run()
    assert (found.skipped, found.rightly, found.zero_variance) == (5, 5, 12)


def test_a_skip_is_judged_by_the_rewards_which_may_differ_though_none_passed() -> None:
    past = history(STEADY)
    partial = dataclasses.replace(past, zero_variance_V=past.passed_V == N)
    found = Replay("greso", Greso(), world_of(partial)).run()
    whole = Replay("greso", Greso(), world_of(past)).run()
    assert (found.skipped, found.teaching) == (whole.skipped, whole.teaching) and found.zero_variance == 6
    assert 0 < found.rightly < whole.rightly
    as_logged = findings(Log("log", partial, Reading("table", "ours")))
    assert as_logged.price == 2 * N  # by passes, as those of replays


def test_problems_may_come_up_twice_in_a_step() -> None:
    """The first visit is refused; the second comes after as many visits as there are problems, when all pass."""
    twice = history(STEADY)
    twice = dataclasses.replace(twice, step_V=twice.step_V // 2)
    found = Replay("retire", Retire(above=0.9), world_of(twice)).run()
    assert (found.visits, found.skipped, found.rightly, found.rollouts) == (24, 2, 2, 22 * N)


def test_a_skip_that_was_wrong_is_called_so_and_is_not_evidence() -> None:
    woken = STEADY.copy()
    woken[1:, 2] = 4  # what always passed at first does so no more, which nobody sees who skips it
    found = Replay("retire", Retire(above=0.9), world_of(history(among_others(woken)))).run()
    assert (found.skipped, found.rightly) == (5, 0) and found.precision == 0.0


def test_greso_skips_by_its_streaks_alone() -> None:
    """With base probability 0 and floor near 0, every visit after a zero-variance one is skipped."""
    certain = Greso(p_easy=0.0, p_hard=0.0, floor=1e-12, step=0.0, bounds=(0.0, 0.0))
    found = Replay("greso", certain, world_of(history(among_others(STEADY)))).run()
    assert (found.skipped, found.rightly) == (10, 10)


def test_a_problem_may_be_let_through_and_then_refused_in_one_batch() -> None:
    """Few problems that come again at once, so that a batch draws about one of them several times."""
    generator = np.random.default_rng(0)
    passed_TP = np.where(generator.random((60, 6)) < 0.8, 0, 4)
    few = history(passed_TP)
    few = dataclasses.replace(few, step_V=few.step_V // 6)
    found = Replay("greso", Greso(frozen_epochs=0), world_of(few), refills=True).run()
    assert 0 < found.skipped < 360 and found.rollouts == (360 - found.skipped) * N
    assert found.teaching == int((passed_TP == 4).sum()) - (found.skipped - found.rightly)


def test_a_step_of_a_controller_that_skips_ends_when_its_own_batch_is_full() -> None:
    """GRESO's base probability falls by 0.1 a step, of which a batch of 20 groups takes two if half are skipped."""
    dead = np.zeros((40, 40), np.int32)
    greso = Greso(p_hard=0.5, step=0.1, floor=1e-3, frozen_epochs=0)
    world = world_of(history(dead))
    kept, mixed = (Replay("greso", greso, world, refills) for refills in (False, True))
    found, refilled = kept.run(), mixed.run()
    let_through = found.visits - found.skipped
    assert world.batch == 40 and kept.session.step == -(-let_through // 40) < 40
    assert kept.session.state["greso"].p_hard == pytest.approx(max(0.05, 0.5 - 0.1 * kept.session.step))
    # No group is mixed, so a batch is given up after ten times its size.
    assert mixed.session.step == -(-(refilled.visits - refilled.skipped) // 400)
    both = dataclasses.replace(found, refilled=refilled.skipped)
    low, high = both.forecast
    assert low < refilled.skipped / 1600 <= found.skipped / 1600 < high


def test_a_pilot_continues_groups_whose_first_rollouts_differ() -> None:
    found = Replay("pilot", Pilot(initial=4), world_of(history(STEADY))).run()
    mixed = found.teaching
    # Zero-variance groups cost 4 each, and so do mixed ones whose first four are alike.
    assert found.kind == "goes on" and 0 < mixed <= 12 and found.rollouts == 24 * 4 + mixed * 4
    assert found.unanswered == {}


def test_knapsack_cannot_have_more_than_the_log_holds() -> None:
    found = Replay("knapsack", Knapsack(), world_of(history(STEADY))).run()
    asked = found.rollouts + found.unanswered[NO_MORE]
    assert found.kind == "allocates" and asked == 24 * N
    assert found.answered == pytest.approx(found.rollouts / asked) and found.answered < 1


def test_a_chooser_is_answered_by_the_nearest_visit() -> None:
    """Every other step each problem is visited, so uniform's requests are at most one step off."""
    passed_TP = np.full((10, 4), -1)
    passed_TP[::2, :2], passed_TP[1::2, 2:] = 4, 3
    world = world_of(history(passed_TP))
    assert world.near == 2
    found = Replay("uniform", Uniform(), world).run()
    assert (found.kind, found.visits, found.teaching) == ("chooses", 20, 20)
    assert found.rollouts == 20 * N
    assert 0 <= found.again < 0.5


def test_groups_that_answer_again_are_counted() -> None:
    """A problem that is asked for in every step, and was visited in every second one."""
    passed_TP = np.full((10, 1), -1)
    passed_TP[::2], extra = 4, np.tile([[-1], [8]], (5, 1))
    found = Replay("uniform", Uniform(), world_of(history(np.hstack([passed_TP, extra])))).run()
    assert found.visits == 10 and found.again > 0


def test_problems_without_a_visit_nearby_are_not_answered() -> None:
    passed_TP = np.full((40, 3), -1)
    passed_TP[:, 0], passed_TP[:2, 1], passed_TP[-2:, 2] = 4, 4, 4
    found = Replay("uniform", Uniform(), world_of(history(passed_TP))).run()
    assert found.unanswered[NO_VISIT] > 0 and found.answered < 1


def test_rollouts_are_drawn_without_replacement() -> None:
    pool = Pool(Visit(0, 3, 8, False), Stream(0))
    drawn = [pool.draw(3) for _ in range(4)]
    assert [count for _, count in drawn] == [3, 3, 2, 0] and sum(passed for passed, _ in drawn) == 3


@pytest.mark.parametrize("passed", range(N + 1))
def test_a_draw_with_one_outcome_costs_no_generator_and_changes_no_other(passed: int) -> None:
    stream = Stream(passed)
    for wanted in ((8,), (4, 4), (2, 3, 3), (5, 1, 2), (3, 9), (0, 8)):
        pool, generator, left, made = Pool(Visit(0, passed, N, False), stream), stream.generator(), [passed, N], []
        for some in wanted:
            count = min(some, left[1])
            drawn = int(generator.hypergeometric(left[0], left[1] - left[0], count)) if count else 0
            left = [left[0] - drawn, left[1] - count]
            made.append((drawn, count))
        assert [pool.draw(some) for some in wanted] == made, wanted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stream, "generator", lambda self: pytest.fail("a generator was made"))
        assert Pool(Visit(0, passed, N, False), stream).draw(N) == (passed, N)
        assert isinstance(Replay("retire", Retire(), world_of(history(STEADY))).run(), Replayed)


def test_calibration_of_what_is_known() -> None:
    found = calibration([(0.25, 0.25, 0.75)] * 3 + [(0.85, 0.65, 0.65)])
    assert [(b.believed, b.observed, b.visits) for b in found.bins] == [(0.25, 0.25, 3), (0.85, 0.65, 1)]
    assert found.error == pytest.approx(0.2 / 4)
    assert found.square == pytest.approx(0.2**2 / 4)
    assert found.last == pytest.approx(3 * 0.5**2 / 4)
    assert found.mean == pytest.approx((3 * 0.1**2 + 0.3**2) / 4)


def test_a_belief_in_steady_rates_is_calibrated() -> None:
    """Rates that never change, drawn anew at every visit: the belief of counts beats the last rate."""
    generator = np.random.default_rng(0)
    rate_P = generator.uniform(size=40)
    [found] = replay(log(generator.binomial(N, np.tile(rate_P, (20, 1)))), ["mopps"])
    assert isinstance(found, Replayed) and found.calibration is not None
    assert found.calibration.square < found.calibration.last < found.calibration.mean
    assert found.calibration.error < 0.05


@pytest.mark.parametrize(
    ("names", "why"), [(["prefix_sampling"], "prefix"), (["hints"], "hint"), (["servo"], "difficulty")]
)
def test_questions_that_a_log_cannot_answer_are_refused(names: list[str], why: str) -> None:
    [found] = replay(log(STEADY), names)
    assert isinstance(found, Refused) and why in found.why


def test_every_registered_controller_is_replayed_or_refused_in_words() -> None:
    for found in replay(log(STEADY), CONTROLLERS.names()):
        assert found.rollouts > 0 if isinstance(found, Replayed) else len(found.why) > 10


def test_a_log_without_zero_variance_groups_has_no_counterfactual() -> None:
    for reading, why in (
        ({"keeps_zero_variance": False}, "zero-variance groups"),
        ({"identified": False}, "does not identify"),
    ):
        [found] = replay(log(STEADY, **reading), ["greso"])
        assert isinstance(found, Refused) and why in found.why
    [chooser] = replay(log(STEADY[:1]), ["mopps"])
    assert isinstance(chooser, Refused) and "twice" in chooser.why
    with pytest.raises(UserError, match=says("'greso'")):
        replay(log(STEADY), ["gresso"])


def test_a_long_log_is_replayed_in_its_first_part() -> None:
    world = world_of(history(STEADY), most=10)
    assert len(world.schedule) == 2 and world.left_out == 16
    [greso] = replay(log(STEADY), ["greso"], most=10)
    assert isinstance(greso, Replayed) and (greso.visits, greso.left_out) == (8, 16)
    many = world_of(history(STEADY[np.arange(MOST_STEPS + 7) % 6]))
    assert len(many.schedule) == MOST_STEPS and many.left_out == 7 * 4


def test_equal_logs_give_equal_replays() -> None:
    one, other = (replay(log(STEADY)) for _ in range(2))
    assert one == other and len(one) == 8


def test_the_command_from_log_to_json(tmp_path: Path) -> None:
    rows = [
        {"problem": f"p{place}", "step": step, "reward": int(i < k)}
        for step, line in enumerate(STEADY.tolist())
        for place, k in enumerate(line)
        for i in range(N)
    ]
    path, out = tmp_path / "log.jsonl", tmp_path / "audit.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["audit", str(path), "--replay", "retire,prefix_sampling", "--write", str(out), "--hours", "8"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "50.0 % of 24 groups had zero variance (25.0 % all failed, 25.0 % all passed)" in result.output
    [one] = json.loads(out.read_text())["logs"]
    # A batch of four is once offered as many visits as there are problems, and takes what would be skipped.
    assert one["findings"]["spending"]["zero_variance_hours"] == 4.0
    assert [each["name"] for each in one["replays"]] == ["retire", "prefix_sampling"]
    assert one["replays"][0]["skipped"] == 4 and one["replays"][1]["why"]
