"""The possible gain of choosing: judged runs, and chances of mixed groups."""

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from halfway.curriculum import Group, Origin, Problem, Request
from halfway.curriculum.rollouts import NO_TOKENS
from halfway.experiments.reproduction.run_curves import Curve, Evaluation
from halfway.experiments.results.does_the_belief_estimate.surveyed import mixed_chance
from halfway.experiments.results.when_does_it_pay import starting_inside
from halfway.experiments.results.when_does_it_pay.choosing import judge
from halfway.experiments.results.when_does_it_pay.starting_inside import RATIOS, mixed_chances, shares, some_of


def curve(arm: str, seed: int, *passed: tuple[int, ...]) -> Curve:
    """A run of 100 rollouts between evaluations of four problems."""
    evaluations = tuple(Evaluation(i, 100 * i, 100 * i, 100 * i, 1.0, each) for i, each in enumerate(passed))
    return Curve("choosing", arm, seed, 1e-3, 1, evaluations, {"mixed": 0.25 * (1 + seed)})


def test_arms_are_judged_over_the_seeds_that_all_have() -> None:
    """Areas of 0, 1/2, 1/2 and 0, 1, 1 are 3/8 and 3/4; the better arm is at 1/2 after half of the rollouts."""
    none, half, every = (0, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 1)
    curves = [curve("uniform", seed, none, half, half) for seed in (0, 1, 2)]
    curves += [curve("signal_measured", seed, none, every, every) for seed in (0, 1)]
    found = judge(curves, ("uniform", "signal_measured"))
    assert judge(curves) == {}, "arms are missing"
    assert found["uniform"] == {"runs": 2, "area": 0.375, "end": 0.5, "mixed": 0.375}
    better = found["signal_measured"]
    assert better["area"] == 0.75 and better["gain"][0] == 0.375 and better["end"] == 1
    assert better["rollouts"] == pytest.approx(0.5, abs=0.01)


def test_the_chance_of_a_mixed_group_is_unbiased() -> None:
    """8 of the 9 attempts: with 1 passed, the group leaves that one out once in 9."""
    passed_PN = np.arange(9)[None, :] < np.array([0, 1, 9])[:, None]
    assert mixed_chance(passed_PN) == pytest.approx([0, 8 / 9, 0])


def test_cuts_are_chosen_by_one_half_of_the_attempts_and_judged_by_the_other() -> None:
    """The second ratio mixes in the first half of the attempts and the third in the second, where it is not seen."""
    request = Request(Problem("p", "?", "1"), 32)
    groups = [Group(Request(Problem(name, "?", "1"), 8), NO_TOKENS, (), "tokens") for name in "pq"]
    cut = [structs.replace(request, origin=Origin.HINTED)] * len(RATIOS)
    passed_RN = np.zeros((2 + len(RATIOS), 32), dtype=bool)
    passed_RN[3, :8], passed_RN[4, 16:24] = True, True
    found = shares(groups, [cut], mixed_chances(passed_RN))
    assert found["hints: number"] == 1 and found["hints: best ratio of each"] == found["hints: best one ratio"] == 0
    passed_RN[3, 16:24] = True
    assert shares(groups, [cut], mixed_chances(passed_RN))["hints: best ratio of each"] > 0.99


def test_both_sources_have_their_share_of_the_problems_that_start_inside() -> None:
    problems = [Problem(f"{name}-{i}", "?", "1") for name, size in (("own", 512), ("also", 1536)) for i in range(size)]
    chosen = [problem.id.partition("-")[0] for problem in some_of(problems, 512)]
    assert (len(chosen), chosen.count("own")) == (128, 32)
    assert list(some_of(problems[:512], None)) == list(some_of(problems[:512], 512)) == problems[:128]
    found = json.loads(Path(starting_inside.__file__).with_suffix(".json").read_text())
    points = [point for kind in found.values() for point in kind["points"]]
    assert all(points.count(point) == 1 for point in points), "two kinds of data had the same problems"
