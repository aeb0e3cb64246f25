"""The learner that learns as models do, against what its limits are in closed form."""

import numpy as np
import pytest

from halfway.curriculum import Group, Origin, Problem, Request, Rollout
from halfway.curriculum.simulation.simulator import SimulatedRollouts
from halfway.curriculum.simulation.skills import (
    Course,
    Dynamics,
    Lessons,
    SkillLearner,
    bumps,
    lesson_of,
    lessons,
    logistic,
)

QUIET = Dynamics(rate=0.1, common=0.0, private=0.0, noise=0.0, interference=0.0, memory=0.0)


def taught(passed, size=8, given=0.0) -> Lessons:
    found = lessons(np.atleast_2d(passed), size, given)
    return Lessons(
        *(np.broadcast_to(x, np.atleast_2d(passed).shape) for x in (found.signal, found.energy, found.tokens))
    )


def dynamics(**changes: float) -> Dynamics:
    return Dynamics(**{name: changes.get(name, getattr(QUIET, name)) for name in Dynamics.__slots__})


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.93])
def test_the_scores_of_a_group_add_up_to_the_same_whatever_the_pass_rate(rate: float):
    for passed in range(9):
        outcome_N = np.arange(8) < passed
        advantage_N = (outcome_N - passed / 8) * 8 / 7  # leave one out
        assert lessons(passed, 8).signal == pytest.approx((advantage_N * (outcome_N - rate)).sum())
        assert lessons(passed, 8).energy == pytest.approx((advantage_N**2).sum())


def test_head_starts_teach_by_the_slope_of_what_is_left_on_the_whole():
    given, z = 0.75, -3.0

    def left(z: float) -> float:
        q = logistic(z) ** (1 - given)
        return float(np.log(q / (1 - q)))

    slope = (left(z + 1e-5) - left(z - 1e-5)) / 2e-5
    q = logistic(z) ** (1 - given)
    size = 10**6  # so that (k + 1/2) / (N + 1) is q
    passed = q * size
    found = lessons(passed, size, given).signal / lessons(passed, size).signal
    assert found == pytest.approx(slope, rel=1e-4)


def test_without_a_rate_nothing_changes():
    learner = SkillLearner(Course.of([-2.0, 0.0, 1.0]), Dynamics(rate=0.0))
    before = learner.rates()
    for _ in range(20):
        learner.update(np.array([[0, 1]]), taught([3, 4]))
    assert learner.rates().tolist() == before.tolist()


def test_one_skill_without_noise_is_the_old_model():
    problems = [Problem(f"p{i}", "", "", features={"difficulty": d}) for i, d in enumerate([-1.0, 0.5, 3.0])]
    old = SimulatedRollouts(skill=0.25, growth=0.1)
    learner = SkillLearner(Course.of([0.25 + 1.0, 0.25 - 0.5, 0.25 - 3.0]), dynamics(common=1.0))
    for _ in range(30):
        learner.update(np.array([[0, 2]]), taught([2, 7]))
    old.sync(30)
    assert learner.rates()[0] == pytest.approx([old.pass_probability(problem, None) for problem in problems])


def test_groups_without_both_outcomes_teach_nothing():
    learner = SkillLearner(Course.of([0.0, 1.0]), Dynamics())
    before = learner.rates().copy()
    learner.update(np.array([[0, 1]]), taught([0, 8]))
    assert learner.rates().tolist() == before.tolist()


def test_a_problem_moves_those_that_share_its_skills_by_the_kernel():
    loadings = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    learner = SkillLearner(Course.of([0.0, 0.0, 0.0], loadings), dynamics(common=0.2, private=0.3))
    learner.update(np.array([[0]]), taught([4]))
    kernel = 0.2 + 0.5 * loadings @ loadings[0] + np.array([0.3, 0.0, 0.0])
    assert learner.logits()[0] == pytest.approx(0.1 * kernel)  # |phi| = 1, so the update is as long as the rate
    assert learner.logits(private=False)[0] == pytest.approx(0.1 * (kernel - [0.3, 0.0, 0.0]))


def test_what_a_problem_learnt_for_itself_fades():
    learner = SkillLearner(Course.of([0.0, 0.0]), dynamics(private=1.0, forget=0.1))
    learner.update(np.array([[0]]), taught([4]))
    for _ in range(5):
        learner.update(np.array([[1]]), taught([0]))
    assert learner.logits()[0] == pytest.approx([0.1 * 0.9**5, 0.0])


@pytest.mark.parametrize(("shares", "covariance"), [({"private": 1.0}, 0.0), ({"common": 1.0}, 1.0), ({}, 0.6)])
def test_noise_moves_problems_together_by_the_kernel(shares: dict[str, float], covariance: float):
    replicas = 4000
    loadings = np.broadcast_to(np.array([[1.0, 0.0], [0.6, 0.8]]), (replicas, 2, 2))
    course = Course(np.zeros((replicas, 2)), loadings)
    learner = SkillLearner(course, dynamics(noise=1e6, interference=0.5, rate=1.0, **shares), seed=1)
    for _ in range(3):
        learner.update(
            np.zeros((replicas, 1), np.int64), Lessons(*(np.ones((replicas, 1)) * x for x in (1.0, 2.0, 8.0)))
        )
    assert learner.clock_R == pytest.approx(3 * 0.5, rel=1e-3)  # noise is all of the gradient here
    moved = np.cov(learner.logits(private=False).T) / learner.clock_R[0]
    assert moved == pytest.approx(np.array([[1, covariance], [covariance, 1]]), abs=0.08)


def test_replicas_are_worlds_apart():
    rng = np.random.default_rng(0)
    ease, loadings = rng.normal(size=(3, 5)), np.stack([bumps(rng.random(5), 4) for _ in range(3)])
    quiet = dynamics(common=0.3, private=0.2, memory=0.9, noise=2.0)
    together = SkillLearner(Course(ease, loadings), quiet)
    apart = [SkillLearner(Course.of(ease[r], loadings[r]), quiet) for r in range(3)]
    for _ in range(4):
        where, passed = rng.integers(0, 5, (3, 2)), rng.integers(0, 9, (3, 2))
        together.update(where, taught(passed))
        for r, learner in enumerate(apart):
            learner.update(where[r : r + 1], taught(passed[r]))
    assert together.logits() == pytest.approx(np.concatenate([learner.logits() for learner in apart]))


def test_weights_of_one_change_nothing_and_a_stored_group_fades():
    problem = Problem("a", "", "")
    rollouts = tuple(Rollout((), i < 3) for i in range(8))
    group = Group(Request(problem, 8), np.zeros(0, np.int32), rollouts)
    plain = lesson_of(group, 0.0, rate=0.4)
    score = 3.5 / 9  # (k + 1/2) / (N + 1) stands for the pass rate, which cancels under equal weights
    assert 0 < score < 1
    assert lesson_of(group.weighed(np.ones(8)), 0.0, rate=0.4) == pytest.approx(plain)
    half = lesson_of(group.weighed([1, 0, 0, 1, 0, 0, 0, 0]), 0.0, rate=0.4)
    assert half[2] == 2 and 0 < half[0] < plain[0]
    again = Group(Request(problem, 8, Origin.STORED, stored=group), np.zeros(0, np.int32), rollouts)
    assert lesson_of(again, 0.0, rate=3 / 8) == pytest.approx(plain)
    assert lesson_of(again, 0.0, rate=1 - 1e-9)[0] == pytest.approx(0.0, abs=1e-6)


def test_bumps_are_of_unit_length_and_neighbours_share_them():
    loadings = bumps(np.linspace(0, 1, 50), 8)
    assert (loadings**2).sum(1) == pytest.approx(np.ones(50))
    assert loadings[0] @ loadings[1] > 0.98 > 0.2 > loadings[0] @ loadings[-1]


def test_harm_goes_with_the_squared_length_that_noise_adds():
    """Where there is nothing but noise every update is as long as the rate; equal noise adds up, r times after r."""
    harmful = dynamics(noise=10.0, harm=0.5)
    once, again = (SkillLearner(Course.of([0.0, 2.0]), harmful) for _ in range(2))
    only_noise = Lessons(np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)))
    for times in range(1, 6):
        once.update(np.array([[0]]), only_noise)
        again.update(np.array([[0]]), Lessons(*(np.ones((1, 1)) * x for x in (0.0, 1.0, 1.0, times))))
    assert once.logits()[0] == pytest.approx([-0.5 * 5 * 0.1**2, 2 - 0.5 * 5 * 0.1**2])
    assert again.harm_R[0] == pytest.approx(0.5 * (5 * 0.1) ** 2)


def test_of_noise_the_shared_part_moves_problems_together_and_the_rest_alone():
    replicas, loadings = 4000, np.ones((4000, 2, 1))
    for shared, expected in ((1.0, 0.9), (0.0, 0.0), (0.5, 0.45)):
        noisy = dynamics(noise=1.0, interference=1.0, common=0.5, private=0.1, shared=shared)
        learner = SkillLearner(Course(np.zeros((replicas, 2)), loadings), noisy, 0)
        one = np.ones((replicas, 1))
        learner.update(np.zeros((replicas, 1), np.int64), Lessons(one * 0.0, one, one))
        moved = learner.logits()
        assert moved.var(0) == pytest.approx([0.01, 0.01], rel=0.1)
        assert np.corrcoef(moved.T)[0, 1] == pytest.approx(expected, abs=0.05)
