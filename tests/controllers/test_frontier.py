"""Frontier: the worth of groups, and choices by what it learnt from other problems."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from controller_harness import group, propose, through_json
from messages import says
from msgspec import structs
from numpy.typing import NDArray

from halfway.controllers import frontier
from halfway.controllers.beliefs.shared_skills import SkillModel
from halfway.controllers.chains import members
from halfway.controllers.frontier import Frontier, FrontierState
from halfway.curriculum import Problem, ProblemSet, UserError
from halfway.curriculum.states import restore_state, save_state

LEVELS = np.linspace(-1, 1, 60)
PROBLEMS = ProblemSet(
    [Problem(f"p{i}", f"{i}", "", features={"level": float(level)}) for i, level in enumerate(LEVELS)]
)
LEVEL = ("level",)


def taught(controller: Frontier, places: list[int], shift: float = 0.0) -> FrontierState:
    """The state after twenty steps with groups of 8 of these problems, whose rate is sigmoid(shift + 8 level)."""
    state, rng = controller.init(PROBLEMS), np.random.default_rng(0)
    for step in range(20):
        passed = rng.binomial(8, 1 / (1 + np.exp(-shift - 8 * LEVELS[places])))
        state = controller.observe(
            state, [group(PROBLEMS[i], int(k)) for i, k in zip(places, passed, strict=True)], step
        )
    return state


def levels_chosen(controller: Frontier, state: FrontierState, steps: int = 40) -> NDArray[np.float64]:
    plans = [propose(controller, state, 20 + step, wanted=4)[0] for step in range(steps)]
    return np.array([float(str(request.problem.features["level"])) for plan in plans for request in plan.requests])


def test_worth_is_the_chance_of_a_mixed_group_or_what_a_step_gains() -> None:
    """Knapsack RL's value at the rate 1/4 with N = 2: 2 * 1/4 * 3/4 = 3/8, times 1/4 * 9/16."""
    rate = np.array([0.25])
    assert Frontier(LEVEL).worth_of(rate, 2)[0] == 0.375
    assert Frontier(LEVEL, "gain").worth_of(rate, 2)[0] == 0.375 * 0.25 * 0.5625
    assert Frontier(LEVEL, "mass").worth_of(rate, 2)[0] == 2 * (1 - 0.75**2 - 0.25)
    small = Frontier(LEVEL).worth_of(np.array([0.05, 0.5]), 8)
    assert small[0] / small[1] > 1 / 3  # what hardly ever passes is not starved


@pytest.mark.parametrize("shift", [-4.0, 0.0, 4.0])
def test_problems_never_met_are_chosen_where_the_shared_belief_expects_signal(shift: float) -> None:
    """It has met every third problem; the frontier, where half pass, lies at -shift / 8, and so do its choices."""
    controller = Frontier(LEVEL, sharpness=8.0, exploration=0.0)
    state = taught(controller, list(range(0, 60, 3)), shift)
    chosen = levels_chosen(controller, state)
    assert np.abs(chosen.mean() + shift / 8) < 0.12 and chosen.std() < 0.3
    never_met = [i for i in range(60) if i % 3]
    assert np.isin(chosen, LEVELS[never_met]).mean() > 0.5


def test_gain_prefers_the_harder_ones() -> None:
    signal, gain = (Frontier(LEVEL, worth, exploration=0.0) for worth in ("signal", "gain"))
    state = taught(signal, list(range(60)))
    assert levels_chosen(gain, state).mean() < levels_chosen(signal, state).mean() - 0.03


def test_without_sharpness_or_competition_nothing_is_selected() -> None:
    state = taught(Frontier(LEVEL), list(range(60)))
    for controller in (Frontier(LEVEL, sharpness=0.0), Frontier(LEVEL, sharpness=50.0, candidates=1)):
        chosen = levels_chosen(controller, state, 200)
        assert np.abs(chosen.mean()) < 0.08 and chosen.std() == pytest.approx(LEVELS.std(), abs=0.06)


def test_it_expects_what_it_has_learnt_and_its_state_is_saved() -> None:
    controller, seen = Frontier(LEVEL), [group(PROBLEMS[0], 8), group(PROBLEMS[59], 0)]
    before = controller.init(PROBLEMS)
    assert controller.predict(before, seen) == pytest.approx(0.5, abs=1e-9)
    state = controller.observe(before, seen, 2)
    passing, failing = controller.predict(state, seen)
    assert passing > 0.6 and failing < 0.4 and state.learnt == 2
    restored = through_json(controller, PROBLEMS, state)
    assert np.array_equal(restored.skills.covariance_DD, state.skills.covariance_DD) and restored.learnt == 2


def test_its_options_come_from_yaml_and_its_features_must_exist() -> None:
    (member,) = members([{"frontier": {"features": ["level"], "worth": "gain", "model": {"drift": 0.1}}}])
    made: Any = member.part
    assert made == Frontier(LEVEL, "gain", model=SkillModel(drift=0.1)) and made.needs == {"feature:level"}
    with pytest.raises(UserError, match=says("feature", "'elsewhere'")):
        Frontier(("elsewhere",)).init(PROBLEMS)


def test_explored_slots_may_take_any_problem() -> None:
    """A quarter of them: far from the frontier there is then a quarter of what an even choice would have there."""
    controller = Frontier(LEVEL, sharpness=50.0, exploration=0.25)
    chosen = levels_chosen(controller, taught(controller, list(range(60))), 400)
    far = np.abs(LEVELS) > 0.6
    assert (np.abs(chosen) > 0.6).mean() == pytest.approx(0.25 * far.mean(), abs=0.03)
    everything = levels_chosen(replace(controller, exploration=1.0), controller.init(PROBLEMS), 400)
    assert everything.std() == pytest.approx(LEVELS.std(), abs=0.03)


def test_a_remembering_belief_keeps_what_each_problem_showed() -> None:
    """Two problems alike in their features: the one that passed is expected to pass again, the other less so."""
    alike = ProblemSet([Problem(f"p{i}", "", "", features={"level": 0.0}) for i in range(2)])
    for memory in (0.0, 0.98):
        controller = Frontier(LEVEL, model=SkillModel(residual=2.0, memory=memory))
        state = controller.init(alike)
        for step in range(3):
            state = controller.observe(state, [group(alike[0], 8), group(alike[1], 0)], step)
        first, second = controller.predict(state, [group(alike[0], 8), group(alike[1], 0)])
        assert first - second > 0.6 if memory else first == second
        restored = through_json(controller, alike, state)
        assert np.array_equal(restored.skills.residual_P, state.skills.residual_P)


def test_measured_rates_become_the_belief() -> None:
    controller = Frontier(LEVEL, rates="measured", sharpness=50.0, exploration=0.0, candidates=None)
    assert controller.needs == {"measured"}
    told = controller.inform(controller.init(PROBLEMS), np.where(np.arange(60) == 7, 0.5, 1.0))
    seen = [group(PROBLEMS[7], 8), group(PROBLEMS[8], 0)]
    assert controller.observe(told, seen, 3) == told
    assert controller.predict(told, seen).tolist() == [0.5, 0.985]
    assert levels_chosen(controller, told, 3)[0] == LEVELS[7]
    restored = through_json(controller, PROBLEMS, told)
    assert np.array_equal(restored.rate_P, told.rate_P)
    believing = Frontier(LEVEL)
    assert believing.inform(believing.init(PROBLEMS), np.ones(60)).rate_P.size == 0


def crowd(number: int) -> tuple[ProblemSet, FrontierState]:
    levels = np.random.default_rng(1).normal(size=number).tolist()
    problems = ProblemSet([Problem(f"p{i}", "", "", features={"level": x}) for i, x in enumerate(levels)])
    state = Frontier(LEVEL).init(problems)
    return problems, Frontier(LEVEL).observe(state, [group(problems[i], i % 9) for i in range(30)], 0)


def test_all_problems_compete_up_to_a_bound_beyond_which_a_fair_draw_does(monkeypatch: pytest.MonkeyPatch) -> None:
    problems, state = crowd(500)

    def chosen(**options: Any) -> list[str]:
        return [r.problem.id for r in propose(Frontier(LEVEL, **options), state, 1, wanted=6)[0].requests]

    everyone = chosen(candidates=len(problems))  # for each slot, so none is left out
    monkeypatch.setattr(frontier, "MOST", 500)
    assert chosen(candidates=None) == everyone
    monkeypatch.setattr(frontier, "MOST", 99)
    assert chosen(candidates=None) != everyone
    competing: list[int] = []
    monkeypatch.setattr(frontier, "draw_keys", lambda worth, *_: competing.append(len(worth)) or -worth)
    chosen(candidates=None)
    assert competing == [99]
    propose(Frontier(LEVEL, candidates=None), state, 1, wanted=20)
    assert competing == [99, 16 * 20]


def test_more_than_65536_problems_do_not_all_compete() -> None:
    assert frontier.MOST == 65_536


@pytest.mark.parametrize("exponent", [1, 2, 3, 7, 8, 16, 31])
def test_power_is_a_power(exponent: int) -> None:
    base = np.linspace(0, 1, 11)
    np.testing.assert_allclose(frontier.power(base, exponent), base**exponent, rtol=1e-14)


def surveyed(*counts: tuple[float, float]) -> ProblemSet:
    """Problems alike in their features, with these passes of attempts."""
    columns = [{"level": 0.0, "passed": passed, "attempts": attempts} for passed, attempts in counts]
    return ProblemSet([Problem(f"p{i}", "", "", features=features) for i, features in enumerate(columns)])


def test_a_survey_is_evidence_with_its_attempts() -> None:
    """4 of 4 passes, prior N(0, log 3): the mode solves z / log 3 = 4 (1 - sigmoid z), so z = log 3; and the precision
    is 1 / log 3 + 4 * 3/4 * 1/4. Untried problems have no evidence, and problems tried half as often have less.
    """
    model = SkillModel(spread=0.01, residual=float(np.log(3)) ** 0.5, memory=0.98)
    state = Frontier(LEVEL, prior="surveyed", model=model).init(surveyed((4, 4), (0, 4), (0, 0), (2, 2)))
    assert state.skills.residual_P[:3] == pytest.approx([np.log(3), -np.log(3), 0], abs=2e-3)
    assert state.skills.variance_P[:3] == pytest.approx([1 / (1 / np.log(3) + 0.75)] * 2 + [np.log(3)], rel=1e-3)
    assert 0 < state.skills.residual_P[3] < 0.9 * np.log(3)
    empty = Frontier(LEVEL, prior="surveyed", model=model).init(surveyed((0, 0)))
    assert empty.skills.variance_P == pytest.approx([np.log(3)])


def test_surveyed_problems_teach_about_others_through_features_before_the_first_step() -> None:
    rates = 1 / (1 + np.exp(-8 * LEVELS))
    every_third = [(round(4 * rate), 4) if i % 3 == 0 else (0, 0) for i, rate in enumerate(rates)]
    columns = [
        {"level": float(level), "passed": passed, "attempts": attempts}
        for level, (passed, attempts) in zip(LEVELS, every_third, strict=True)
    ]
    problems = ProblemSet([Problem(f"p{i}", "", "", features=features) for i, features in enumerate(columns)])
    controller = Frontier(LEVEL, prior="surveyed", sharpness=8.0, exploration=0.0)
    plan, _ = propose(controller, controller.init(problems), 0, wanted=12)
    assert np.abs([float(str(request.problem.features["level"])) for request in plan.requests]).max() < 0.45


@pytest.mark.parametrize("counts", [(5.0, 4.0), (-1.0, 4.0), ("some", 4.0)])
def test_problems_without_a_survey_are_refused(counts: tuple[Any, float]) -> None:
    with pytest.raises(UserError, match=says("frontier.prior", "p0", "survey again")):
        Frontier(LEVEL, prior="surveyed").init(surveyed(counts))
    with pytest.raises(UserError, match=says("passed")):
        Frontier(LEVEL, prior="surveyed").init(PROBLEMS)
    with pytest.raises(UserError, match=says("frontier.prior", "measured")):
        Frontier(LEVEL, rates="measured", prior="surveyed")


def test_predictions_fade_with_the_time_since_a_problems_last_visit() -> None:
    controller = Frontier(LEVEL, model=SkillModel(residual=2.0, memory=0.5, drift=0.0))
    alike = ProblemSet([Problem(f"p{i}", "", "", features={"level": 0.0}) for i in range(2)])
    state = controller.observe(controller.init(alike), [group(alike[0], 8), group(alike[1], 0)], 0)
    seen = group(alike[0], 8)
    late = replace(seen, request=structs.replace(seen.request, step=20))
    assert controller.predict(state, [seen])[0] > 0.8 and controller.predict(state, [late])[0] == pytest.approx(
        0.5, abs=1e-3
    )


def test_a_state_of_another_memory_is_refused_by_name() -> None:
    forgets, remembers = (Frontier(LEVEL, model=SkillModel(memory=memory)) for memory in (0.0, 0.98))
    for wrote, reads in ((forgets, remembers), (remembers, forgets)):
        with pytest.raises(UserError, match=says("skills.residual_P", "controller options")):
            restore_state(reads.init(PROBLEMS), save_state(wrote.init(PROBLEMS)))
