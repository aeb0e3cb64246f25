"""Warnings while a run is wasted: each once, about ten steps, with the remedy."""

from collections.abc import Mapping
from typing import Any

import pytest

from halfway.trainers.loop.waste import STALL_SECONDS, STEPS, Waste


def record(**other: Any) -> dict[str, Any]:
    """A step of 8 groups of 8, of which 2 have zero variance."""
    return {
        "groups": {"rolled_out": 8, "zero_variance": 2, "trained": 6},
        "responses": {"scored": 64, "truncated": 0, "lost": 0, "repeated": 0},
        "fresh_counts": [1, 6, 1],
        "timing": {"rollout": 2.0, "update": 1.0},
        "learner": {"engine_gap": 1e-6},
        "reward": {"mean": 0.4},
        **other,
    }


def test_rewards_that_are_all_0_are_reported_after_five_steps() -> None:
    said: list[str] = []
    waste = Waste(said.append)
    failing = record(fresh_counts=[8, 0, 0], groups={"rolled_out": 8, "zero_variance": 8}, reward={"mean": 0.0})
    for _ in range(4):
        waste.step(failing)
    assert said == []
    for _ in range(20):
        waste.step(failing)
    waste.close("finished")
    [line] = said
    assert "320 rewards of 5 steps" in line and "easier problems" in line


def test_one_reward_among_five_steps_is_enough() -> None:
    said: list[str] = []
    waste = Waste(said.append)
    for mean in (0.0, 0.0, 0.0, 0.0, 0.01) * 2:
        waste.step(record(reward={"mean": mean}))
    waste.close("finished")
    assert said == []


ZERO_VARIANCE: Mapping[str, Any] = {"groups": {"rolled_out": 8, "zero_variance": 7, "trained": 1}}
ONE_TEXT = {"responses": {"scored": 64, "truncated": 0, "lost": 0, "repeated": 6}}


@pytest.mark.parametrize(
    ("wasted", "what", "remedy"),
    [
        (
            {**ZERO_VARIANCE, "fresh_counts": [7, 1, 0]},
            "88 % of the groups of 10 steps had zero variance, mostly since all fail",
            "hints",
        ),
        ({**ZERO_VARIANCE, "fresh_counts": [0, 1, 7]}, "mostly since all pass", "greso"),
        ({**ZERO_VARIANCE, **ONE_TEXT}, "60 of 70 with one text repeated", "rollouts.temperature"),
        (
            {"responses": {"scored": 64, "truncated": 16, "lost": 0, "repeated": 0}},
            "25 % of the answers were cut by a limit",
            "rollouts.max_response_tokens",
        ),
        (
            {"responses": {"scored": 48, "truncated": 0, "lost": 16, "repeated": 0}},
            "25 % of the rollouts were lost",
            "dropped",
        ),
        (
            {"unjudged": {"timeout": 6, "crash": 1}},
            "10.9 % of the answers could not be judged",
            "timeout",
        ),
    ],
)
def test_waste_is_reported_once_after_ten_steps_with_the_remedy(wasted: dict[str, Any], what: str, remedy: str) -> None:
    said: list[str] = []
    waste = Waste(said.append)
    for _ in range(STEPS - 1):
        waste.step(record(**wasted))
    assert said == []
    for _ in range(STEPS):
        waste.step(record(**wasted))
    waste.close("finished")
    [line] = said
    assert what in line and remedy in line and "\n" not in line


@pytest.mark.parametrize(("gap", "largest", "lines"), [(0.002, 0.05, 0), (0.002, 0.001, 1), (0.0005, 0.001, 0)])
def test_a_gap_of_rounding_is_left_alone_in_its_dtype(gap: float, largest: float, lines: int) -> None:
    said: list[str] = []
    waste = Waste(said.append, largest)
    for _ in range(STEPS):
        waste.step(record(learner={}))  # all its tokens were late
        waste.step(record(learner={"engine_gap": gap}))
    waste.close("finished")
    assert len(said) == lines


def test_a_step_that_takes_ten_times_as_long_as_usual_has_stalled() -> None:
    said: list[str] = []
    now = [0.0]
    waste = Waste(said.append, clock=lambda: now[0])
    for _ in range(3):
        now[0] += 20.0
        waste.step(record())
    now[0] += 10 * 20.0 - 1
    waste.look()
    assert said == []
    now[0] += 1
    waste.look()
    waste.look()
    waste.close("finished")
    [line] = said
    assert line.startswith("no step has ended for 200 s, usual are 20.0 s, mostly of rollout")


def test_short_steps_have_a_minute() -> None:
    said: list[str] = []
    now = [0.0]
    waste = Waste(said.append, clock=lambda: now[0])
    now[0] = 0.1
    waste.step(record())
    now[0] += STALL_SECONDS - 1
    waste.look()
    assert said == [] and waste.timer is not None and waste.timer.daemon
    waste.close("finished")
    assert waste.timer.finished.is_set()


@pytest.mark.parametrize(
    ("learner", "remedy"),
    [
        ({"engine_gap": 0.2}, "learner.mismatch=token_truncated"),
        ({"engine_gap": 0.2, "mismatch_weight": 0.9}, "prompt template"),
    ],
)
def test_a_wrong_engine_is_reported_once_after_the_first_step(learner: dict[str, float], remedy: str) -> None:
    said: list[str] = []
    waste = Waste(said.append)
    for _ in range(2 * STEPS):
        waste.step(record(learner=learner))
        assert len(said) == 1
    waste.close("finished")
    assert "0.2 nats a token" in said[0] and remedy in said[0]
