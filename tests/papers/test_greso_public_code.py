"""GRESO's decisions, one by one, beside those that its public code took on the same outcomes and random numbers.

`greso_decisions.json.gz` was recorded by running the public code (Infini-AI-Lab/GRESO at b277843) on outcomes drawn
from a simulated learner; of the code itself nothing is kept. A log has, in order: chunks of problems offered, with the
number that decided about each (in thousandths, -1 where nothing could refuse it) and the verdict (0 skipped as easy, 1
skipped as hard, 2 kept); rounds rolled out, with the passes of each group of eight; and the ends of steps, with the
epoch and both exploration probabilities.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from controller_harness import group, problem_set

from halfway.controllers.greso import Greso
from halfway.curriculum import Group, Plan, Request
from halfway.trainers.loop.fill import adaptive_request

RECORDED: dict[str, Any] = json.loads(gzip.decompress((Path(__file__).parent / "greso_decisions.json.gz").read_bytes()))
RUNS = RECORDED["runs"]
VERDICTS = {"easy": "0", "hard": "1"}


@dataclass(frozen=True)
class Recorded:
    """A stream whose numbers were recorded. The public code skips below 1 - p^z, Halfway keeps below p^z."""

    numbers: dict[str, float]
    problem: str = ""

    def at(self, problem: str) -> "Recorded":
        return Recorded(self.numbers, problem)

    def uniform(self) -> float:
        return 1 - self.numbers[self.problem]


def replayed(log: dict[str, Any], controller: Greso) -> Iterator[tuple[Any, Any]]:
    """What Halfway decides and what was recorded, for each problem offered and each step."""
    problems = problem_set(log["problems"])
    state, rounds, step = controller.init(problems), list[Group](), 0
    for event in log["events"]:
        if "offered" in event:
            offered = [problems[place] for place in event["offered"]]
            numbers = {p.id: (draw + 0.5) / 1000 for p, draw in zip(offered, event["draws"], strict=True)}
            requests = tuple(Request(problem, 8) for problem in offered)
            plan = Plan(step, len(requests), 8, requests, member="greso")
            plan, state = controller.propose(plan, state, Recorded(numbers))  # type: ignore[arg-type]
            skipped = {skip.problem_id: VERDICTS[skip.reason] for skip in plan.skipped}
            # A step that goes over into the next epoch meets problems again that it has just rolled out. The public
            # code knows their outcomes already, Halfway only after the step; its chains do not offer them twice.
            again = {placed.request.problem.id for placed in rounds}
            for problem, verdict in zip(offered, event["verdicts"], strict=True):
                if problem.id not in again:
                    yield (problem.id, skipped.get(problem.id, "2")), (problem.id, verdict)
        elif "asked" in event:
            rounds += [group(problems[i], int(k)) for i, k in zip(event["asked"], event["passed"], strict=True)]
        else:
            state, rounds, step = controller.observe(state, rounds, step), [], step + 1
            yield (state.epoch, state.p_easy, state.p_hard), (event["epoch"], event["p_easy"], event["p_hard"])


@pytest.mark.parametrize("log", RUNS, ids=lambda log: f"{log['problems']} problems")
def test_every_verdict_and_probability_is_that_of_the_public_code(log):
    for number, (found, recorded) in enumerate(replayed(log, Greso())):
        assert found == recorded, f"decision {number}"


@pytest.mark.parametrize("other", [Greso(streaks="joint"), Greso(floor=0.2), Greso(easy_share=0.5), Greso(step=0.02)])
def test_the_comparison_can_fail(other):
    assert any(found != recorded for log in RUNS for found, recorded in replayed(log, other))


def test_the_log_has_everything_that_can_happen():
    verdicts = "".join(event.get("verdicts", "") for log in RUNS for event in log["events"])
    assert min(verdicts.count(verdict) for verdict in "012") > 1000
    ends = [event for log in RUNS for event in log["events"] if "epoch" in event]
    assert {end["epoch"] for end in ends} >= set(range(12))
    easy = [end["p_easy"] for end in ends]
    assert any(a < b for a, b in pairwise(easy)), "p_easy never rises"
    assert any(a > b for a, b in pairwise(easy)), "p_easy never falls"


def test_adaptive_requests_are_those_of_the_public_code():
    for missing, groups, silent, size in RECORDED["sizes"]:
        assert adaptive_request(384, 64, 1.25, missing, silent / groups) == size, (missing, groups, silent)
