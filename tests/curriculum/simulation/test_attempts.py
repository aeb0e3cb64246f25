"""Rollouts of the simulated learner: what prefixes and hints leave to do."""

import numpy as np
import pytest
from controller_harness import problem_set

from halfway.curriculum import Origin, Prefix, Request, Stream, Verdict, cut, hint_of
from halfway.curriculum.simulation.attempts import ERROR, SkillRollouts
from halfway.curriculum.simulation.skills import Course, Dynamics, SkillLearner, logistic

PROBLEMS = problem_set(2)
RATE = float(logistic(-1.5))
MANY = 6000


def rollouts(recovery: float = 0.25, tokens: bool = True) -> SkillRollouts:
    learner = SkillLearner(Course.of([-1.5, 0.0]), Dynamics(recovery=recovery))
    return SkillRollouts(learner, PROBLEMS, length=24, tokens=tokens)


def prefix(rollout, length: int) -> Prefix:
    return Prefix(cut(rollout, length, "tokens"), length, "tokens", 1, 8, rollout.success)


@pytest.mark.parametrize("tokens", [True, False])
def test_the_pass_rate_is_the_learners(tokens: bool):
    (group,) = rollouts(tokens=tokens).run([Request(PROBLEMS[0], MANY)], Stream(0))
    assert group.pass_rate == pytest.approx(RATE, abs=0.02)


def test_successes_hold_no_error_and_failures_one():
    (group,) = rollouts().run([Request(PROBLEMS[0], 500)], Stream(0))
    assert all(((r.turns[0].tokens_T == ERROR).sum() == 0) == r.success for r in group.rollouts)


def test_a_head_start_leaves_the_rest_of_the_way():
    engine = rollouts()
    (parents,) = engine.run([Request(PROBLEMS[0], 50)], Stream(0))
    success = next(rollout for rollout in parents.rollouts if rollout.success)
    (group,) = engine.run([Request(PROBLEMS[0], MANY, Origin.PREFIX, prefix(success, 18))], Stream(1))
    assert group.pass_rate == pytest.approx(RATE**0.25, abs=0.02)
    assert all((r.turns[0].tokens_T[:18] == success.turns[0].tokens_T[:18]).all() for r in group.rollouts)


def test_a_handicap_holds_the_error_or_does_not():
    """Failures err at an exponential time that is known to end before the rollout: of those, p^s - p of 1 - p err after
    share s."""
    engine, share = rollouts(), 0.5
    (parents,) = engine.run([Request(PROBLEMS[0], MANY)], Stream(0))
    failures = [rollout for rollout in parents.rollouts if not rollout.success]
    late = [f for f in failures if (f.turns[0].tokens_T[:12] != ERROR).all()]
    assert len(late) / len(failures) == pytest.approx((RATE**share - RATE) / (1 - RATE), abs=0.02)
    early = next(f for f in failures if (f.turns[0].tokens_T[:12] == ERROR).any())
    for parent, expected in ((late[0], RATE**0.5), (early, 0.25 * RATE**0.5)):
        (group,) = engine.run([Request(PROBLEMS[0], MANY, Origin.PREFIX, prefix(parent, 12))], Stream(1))
        assert group.pass_rate == pytest.approx(expected, abs=0.02)


def test_a_hint_is_a_head_start():
    problem = PROBLEMS[0]
    hint = hint_of(problem, len(problem.solution) // 2)
    (group,) = rollouts().run([Verdict(True, "", hint=hint).applied(Request(problem, MANY))], Stream(0))
    assert group.pass_rate == pytest.approx(RATE ** (1 - hint.share), abs=0.02)
    assert np.isfinite(group.rollouts[0].turns[0].logprobs_T).all()
