"""The bandit over categories: scores by hand, and what each kind does with easy, mixed and hopeless categories."""

import math
from typing import Literal

import numpy as np
import pytest
from controller_harness import group, propose

from halfway.controllers.beliefs.features import levels
from halfway.controllers.contrib.bandit import Bandit, BanditState, Kind, mean_advantage
from halfway.controllers.laws.category_shares import draw_problems, raise_to_floor, share_out, softmax
from halfway.curriculum import Problem, ProblemSet, UserError
from halfway.curriculum.signals import mean_centred_variance


def with_column(values: list, name: str = "category") -> ProblemSet:
    return ProblemSet([Problem(f"p{i}", f"prompt {i}", "0", features={name: value}) for i, value in enumerate(values)])


# Easy, mixed, hopeless: 20 problems of each.
PROBLEMS = with_column([("easy", "hopeless", "mixed")[i % 3] for i in range(60)])
RATE = {"easy": 1.0, "hopeless": 0.0, "mixed": 0.5}


def shares(controller: Bandit, state: BanditState, seed: int = 0) -> dict[str, float]:
    found = controller.shares(state.arms, 8, np.random.default_rng(seed))
    return dict(zip(("easy", "hopeless", "mixed"), found.tolist(), strict=True))


def play(controller: Bandit, steps: int, wanted: int = 12) -> BanditState:
    state = controller.init(PROBLEMS)
    for step in range(steps):
        plan, state = propose(controller, state, step, wanted)
        categories = [str(request.problem.features["category"]) for request in plan.requests]
        groups = [group(r.problem, int(8 * RATE[c])) for r, c in zip(plan.requests, categories, strict=True)]
        state = controller.observe(state, groups, step)
    return state


@pytest.mark.parametrize(("passed", "size"), [(0, 8), (1, 8), (4, 8), (7, 8), (8, 8), (1, 2), (3, 5)])
def test_mean_absolute_advantage_is_that_of_the_rewards(passed: int, size: int) -> None:
    rewards = np.repeat([1.0, 0.0], [passed, size - passed])
    centred = np.abs(rewards - rewards.mean())
    assert mean_advantage(passed, size, standardised=False) == pytest.approx(centred.mean())
    assert centred.mean() == pytest.approx(2 * mean_centred_variance(passed, size))
    deviation = rewards.std(ddof=1)
    expected = centred.mean() / deviation if deviation else 0.0
    assert mean_advantage(passed, size, standardised=True) == pytest.approx(expected)


def test_sec_by_hand() -> None:
    """Alpha 0.5, temperature 1: an arm's two mixed groups count once, as their mean; an untried arm keeps its value."""
    controller = Bandit(standardised=False)
    state = controller.observe(controller.init(PROBLEMS), [group(PROBLEMS[2], 4), group(PROBLEMS[5], 2)], 0)
    q = 0.5 * (0.5 + 0.375) / 2
    assert state.arms.value_C.tolist() == pytest.approx([0, 0, q])
    state = controller.observe(state, [group(PROBLEMS[2], 8), group(PROBLEMS[0], 4)], 1)
    assert state.arms.value_C.tolist() == pytest.approx([0.25, 0, q / 2])
    weights = [math.exp(0.25), 1.0, math.exp(q / 2)]
    assert list(shares(controller, state).values()) == pytest.approx([w / sum(weights) for w in weights])


def test_dump_by_hand() -> None:
    """A window of 2 groups, bonus sqrt(2 ln(n + 1) / (n_c + 1)), temperature 0.1."""
    controller = Bandit(kind="dump", window=2, standardised=False)
    first = [group(PROBLEMS[2], 4), group(PROBLEMS[2], 4), group(PROBLEMS[0], 8)]
    state = controller.observe(controller.init(PROBLEMS), first, 0)
    state = controller.observe(state, [group(PROBLEMS[2], 8)], 1)
    assert state.arms.recent_C == ((0.0,), (), (0.5, 0.0))
    score = [
        0.0 + math.sqrt(2 * math.log(5) / 2),
        math.sqrt(2 * math.log(5) / 1),
        0.25 + math.sqrt(2 * math.log(5) / 4),
    ]
    weights = [math.exp((each - max(score)) / 0.1) for each in score]
    assert list(shares(controller, state).values()) == pytest.approx([w / sum(weights) for w in weights])


def test_learnability_counts_decay_and_revert_by_hand() -> None:
    controller = Bandit(kind="learnability", decay=0.9, reversion=2.0)
    state = controller.observe(controller.init(PROBLEMS), [group(PROBLEMS[2], 4)], 0)
    state = controller.observe(state, [group(PROBLEMS[0], 8)], 1)
    assert state.arms.passed_C.tolist() == pytest.approx([0.9 + 8 + 1, 0.9 + 1, 0.9 * (4 + 1) + 1])
    assert state.arms.tried_C.tolist() == pytest.approx([1.8 + 8 + 2, 1.8 + 2, 0.9 * (8 + 2) + 2])
    drawn = [shares(controller, state, seed)["hopeless"] for seed in range(3000)]
    a, b = 1 + 1.9, 1 + 1.9
    posterior = np.random.default_rng(1).beta([1 + 9.9, a, 1 + 5.5], [1 + 1.9, b, 1 + 5.5], (3000, 3))
    weights = posterior * (1 - posterior)
    assert np.mean(drawn) == pytest.approx((weights[:, 1] / weights.sum(1)).mean(), abs=0.02)


@pytest.mark.parametrize("kind", ["survival", "thompson"])
def test_survival_and_thompson_by_hand(kind: Literal["survival", "thompson"]) -> None:
    """Two steps, decay 0.9, reversion 2: pass rates as above; mixed groups 1 of 2, 0 of 1 and 1 of 1."""
    controller = Bandit(kind=kind, decay=0.9, reversion=2.0, floor=0.0)
    state = controller.observe(controller.init(PROBLEMS), [group(PROBLEMS[0], 8), group(PROBLEMS[2], 4)], 0)
    state = controller.observe(state, [group(PROBLEMS[3], 5), group(PROBLEMS[1], 0)], 1)
    assert state.arms.mixed_C.tolist() == pytest.approx([0.9 + 1 + 1, 0.9 + 1, 0.9 * 2 + 1])
    assert state.arms.groups_C.tolist() == pytest.approx([0.9 * 3 + 1 + 2, 0.9 * 2 + 1 + 2, 0.9 * 3 + 2])
    drawn = [list(shares(controller, state, seed).values()) for seed in range(2000)]
    if kind == "thompson":
        good, every = np.asarray([2.9, 1.9, 2.8]), np.asarray([5.7, 4.8, 4.7])
    else:
        good = np.asarray([0.9 * 9 + 5 + 1, 0.9 + 1, 0.9 * 5 + 1])
        every = np.asarray([0.9 * 10 + 8 + 2, 0.9 * 2 + 8 + 2, 0.9 * 10 + 2])
    rate = np.random.default_rng(1).beta(1 + good, 1 + every - good, (2000, 3))
    weights = rate if kind == "thompson" else 1 - rate**8 - (1 - rate) ** 8
    assert np.mean(drawn, axis=0) == pytest.approx((weights / weights.sum(1, keepdims=True)).mean(0), abs=0.02)


@pytest.mark.parametrize("kind", ["sec", "dump", "learnability", "survival", "thompson"])
def test_slots_go_where_groups_teach(kind: Kind) -> None:
    reversion = 0.0 if kind in ("survival", "thompson") else 2.0
    controller = Bandit(kind=kind, temperature=0.2 if kind == "sec" else None, reversion=reversion)
    found = shares(controller, play(controller, 40))
    assert found["mixed"] > 0.6 and found["mixed"] > 3 * max(found["easy"], found["hopeless"])


def test_reversion_gives_a_starved_category_another_chance() -> None:
    """Marin's case: the floor's trickle confirms forever that nothing passes, unless the belief is pulled back."""
    last = {mass: play(Bandit(kind="learnability", reversion=mass), 200) for mass in (0.0, 4.0)}
    starved = {
        mass: np.mean([shares(Bandit("learnability"), last[mass], s)["hopeless"] for s in range(200)]) for mass in last
    }
    assert starved[0.0] < 0.06
    assert starved[4.0] > 2.5 * starved[0.0]


def test_floor_raises_small_shares() -> None:
    assert raise_to_floor(np.asarray([1.0, 0.0, 0.0, 0.0]), 0.2).tolist() == pytest.approx(
        [1 / 1.15] + [0.05 / 1.15] * 3
    )
    assert raise_to_floor(np.zeros(4), 0.0).tolist() == [0.25] * 4
    assert softmax(np.asarray([1e4, 0.0]), 1e-3).tolist() == [1.0, 0.0]


def test_slots_are_shared_out_as_by_one_draw_after_the_other() -> None:
    """The exact distribution of two draws of which the first category can take only one."""
    share, room = np.asarray([0.6, 0.3, 0.1]), np.asarray([1, 5, 5])
    found = [tuple(share_out(share, room, 2, np.random.default_rng(seed)).tolist()) for seed in range(8000)]
    expected = {(1, 1, 0): 0.6 * 0.75 + 0.3 * 0.6, (1, 0, 1): 0.6 * 0.25 + 0.1 * 0.6, (0, 2, 0): 0.09}
    for counts, probability in expected.items():
        assert found.count(counts) / 8000 == pytest.approx(probability, abs=0.02)
    assert share_out(np.asarray([1.0, 0.0]), np.asarray([2, 3]), 5, np.random.default_rng(0)).tolist() == [2, 3]


def test_a_category_goes_through_its_problems_in_turn() -> None:
    kinds, turns = levels(PROBLEMS, "category", None, "difficulty", "x"), np.zeros(60, np.int32)
    only = np.asarray([0.0, 0.0, 1.0])
    for epoch in range(3):
        for _ in range(4):
            chosen = draw_problems(kinds, only, np.arange(60), 5, turns, np.random.default_rng(epoch))
            turns[chosen] += 1
        assert turns[2::3].tolist() == [epoch + 1] * 20 and not turns[0::3].any()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([None, "a"], "'p0' has no feature 'category'; add the column"),
        (["a"] * 4, "bandit.category: the feature 'category' is 'a' for all problems, which leaves nothing to choose"),
        (
            ["a", "a", "b"],
            "bandit.category: the feature 'category' has the value 'b' for one problem only; merge small",
        ),
        ([(1.0, 2.0)] * 3, "bandit.category: 'category' is a vector; name a column"),
    ],
)
def test_a_bad_column_is_refused_in_one_line(values: list, says: str) -> None:
    kept = [{} if value is None else {"category": value} for value in values]
    problems = ProblemSet([Problem(f"p{i}", f"{i}", "0", features=facts) for i, facts in enumerate(kept)])
    with pytest.raises(UserError) as error:
        Bandit().init(problems)
    assert says in str(error.value) and "\n" not in str(error.value)
