"""The simulated learner: its curve, its rollouts, and that its groups are a function of its arguments."""

import numpy as np
import pytest
from controller_harness import problem_set

from halfway.curriculum import Origin, Prefix, Problem, Request, Stream, cut
from halfway.testing.simulator import SimulatedRollouts

AVERAGE = Problem("a", "", "", features={"difficulty": 0.0})
STREAM = Stream(0, ("test",))


def prefix_of(rollouts: SimulatedRollouts, length: int, success: bool) -> Prefix:
    parent = rollouts.run([Request(AVERAGE, 1)], STREAM)[0].rollouts[0]
    return Prefix(cut(parent, length, rollouts.unit), length, rollouts.unit, 1, 8, success)


def test_pass_probability_rises_with_skill_and_head_starts_and_falls_with_handicaps():
    learner = SimulatedRollouts(growth=0.1, pull=4.0, length=12)
    head_start, handicap = prefix_of(learner, 6, True), prefix_of(learner, 6, False)
    assert learner.pass_probability(AVERAGE, None) == 0.5
    assert learner.pass_probability(AVERAGE, head_start) == pytest.approx(1 / (1 + np.exp(-2)))
    assert learner.pass_probability(AVERAGE, handicap) == pytest.approx(1 / (1 + np.exp(2)))
    learner.sync(10)
    assert learner.pass_probability(AVERAGE, None) == pytest.approx(1 / (1 + np.exp(-1)))


def test_pass_rate_is_the_probability():
    group = SimulatedRollouts(skill=1.0).run([Request(AVERAGE, 20_000)], STREAM)[0]
    assert group.pass_rate == pytest.approx(1 / (1 + np.exp(-1)), abs=0.01)


def test_difficulties_are_normal_and_belong_to_the_id():
    learner = SimulatedRollouts(spread=2.0)
    difficulties = [learner.difficulty(problem) for problem in problem_set(4000)]
    assert np.mean(difficulties) == pytest.approx(0.0, abs=0.15)
    assert np.std(difficulties) == pytest.approx(2.0, abs=0.1)
    assert difficulties == [learner.difficulty(problem) for problem in problem_set(4000)]


@pytest.mark.parametrize(("unit", "tokens"), [("tokens", 3), ("steps", 9)])
def test_rollouts_continue_their_prefix(unit, tokens: int):
    learner = SimulatedRollouts(unit=unit, length=12)
    prefix = prefix_of(learner, 3, True)
    learner.sync(5)
    (group,) = learner.run([Request(AVERAGE, 4, Origin.PREFIX, prefix)], STREAM)
    assert prefix.policy_version == 0
    assert group.unit == unit and group.policy_versions == (5,) and group.size == 4
    for rollout in group.rollouts:
        assert rollout.length(unit) == 12
        assert rollout.num_replayed == tokens
        replayed = np.concatenate([turn.tokens_T for turn in cut(rollout, 3, unit)])
        assert replayed.tolist() == np.concatenate([turn.tokens_T for turn in prefix.turns]).tolist()
        assert all((turn.logprobs_T[: turn.num_replayed] == 0).all() for turn in rollout.turns)


def test_groups_do_not_depend_on_the_other_requests():
    problems = problem_set(3)
    learner = SimulatedRollouts()

    def outcome(indices: list[int]) -> list[list[int]]:
        groups = learner.run([Request(problems[i], 8) for i in indices], STREAM)
        return [[t for r in g.rollouts for t in (*r.turns[0].tokens_T.tolist(), r.success)] for g in groups]

    assert outcome([0, 1, 2])[2] == outcome([2])[0]
    twice = outcome([1, 1])
    assert twice[0] != twice[1]


def test_stream_uniform_is_uniform_and_repeats():
    draws = [Stream(3).at(i).uniform() for i in range(4000)]
    assert draws == [Stream(3).at(i).uniform() for i in range(4000)]
    assert min(draws) >= 0 and max(draws) < 1
    assert np.mean(draws) == pytest.approx(0.5, abs=0.02)
    assert np.var(draws) == pytest.approx(1 / 12, abs=0.005)
