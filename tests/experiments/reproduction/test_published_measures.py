"""Each measure gives the value of a run made by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contests import run_of

from halfway.curriculum.decision_log import GroupRecord
from halfway.experiments.report.records import EvaluationRecord, Run, StepRecord
from halfway.experiments.reproduction.keep import merge_runs
from halfway.experiments.reproduction.run_curves import Curve, read_curves, write_curves
from halfway.experiments.reproduction.run_measures import FACTS, MEASURES, OF_STUDIES, measure_of, record_of


def group(step: int, problem: str, passed: int, outcome: str = "trained", parent: int | None = None) -> GroupRecord:
    """A group of 8; with `parent`, behind a prefix from a group with so many passes."""
    beside: dict[str, Any] = {} if parent is None else {"parent": problem, "parent_passed": parent, "parent_size": 8}
    origin = "fresh" if parent is None else "prefix"
    return GroupRecord(step, problem, origin, outcome, passed, 8, tokens=80, **beside)


def step(number: int, entropy: float) -> StepRecord:
    return StepRecord(number, 80 * (number + 1), 800, 1.0, groups={"trained": 2}, learner={"entropy": entropy})


RUN = Run(
    "arm",
    3,
    Path(),
    "finished",
    {"learner": {"lr": 1e-3}},
    [
        group(0, "a", 0, "zero_variance"),
        group(0, "b", 4),
        group(0, "c", 2),
        group(1, "a", 8, "zero_variance"),
        group(1, "b", 0, "zero_variance"),
        group(1, "c", 4, parent=2),
        group(2, "a", 3),
        group(2, "c", 8, "zero_variance", parent=1),
        group(3, "b", 0, "zero_variance"),
        group(3, "c", 4, parent=2),
        group(3, "d", 2, parent=7),
    ],
    [],
    [step(0, 0.5), step(1, 0.3), step(2, 0.1), step(3, 0.1)],
    [
        EvaluationRecord(at, 80 * at, 800 * at, 1.0, rate, 0.0, 2, 4, 1000 * at, passed=(int(8 * rate), 0))
        for at, rate in ((0, 0.0), (2, 0.25), (4, 0.5))
    ],
    0,
)
EXPECTED = {
    "final_score": 0.5,
    "area": 0.25,
    "midway_score": 0.3,
    "rollouts_per_step": 80.0,
    "tokens_per_step": 800.0,
    "cost_per_step": 800 + 0.35 * 1000,
    "mixed_groups": 6 / 4,
    "rollouts_per_trained_group": 320 / 8,
    "zero_variance_share": 4 / 7,
    "prefix_pass_rate": (8 + 4 + 2) / 24,  # of the steps 2 and 3
    "prefix_pass_rate_hard": (8 + 4) / 16,
    "prefix_pass_rate_easy": 2 / 8,
    "band_behind_prefixes": (2 / 4) / (2 / 7),
    "extremes_behind_prefixes": (1 / 4) / (4 / 7),
    "early_entropy": 0.4,
    # revisits: a after 0 of 8 (zero variance), b after 4 (zero), a after 8 (mixed), b after 0 (zero)
    "zero_variance_memory": (2 / 3) / (3 / 4),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_measure_gives_what_a_run_has(name: str, tmp_path: Path) -> None:
    write_curves(tmp_path / "runs", [record_of(RUN, "ground")])
    (curve,) = read_curves(tmp_path / "runs")
    of, _ = measure_of(name, 0.35)
    assert of is not None and of(curve) == pytest.approx(EXPECTED[name], abs=1e-5)


def test_every_measure_has_a_known_answer() -> None:
    costs = {name for name, measure in MEASURES.items() if measure.axis}
    assert MEASURES.keys() == EXPECTED.keys() | costs | set(OF_STUDIES)
    assert FACTS.keys() <= MEASURES.keys()
    assert costs == {"steps_to_target", "rollouts_to_target", "tokens_to_target"}


def test_a_run_without_a_fact_has_no_measure_of_it() -> None:
    run = replace(run_of("grpo", 3, [[0, 2], [4, 8]]), config={"learner": {"lr": 1e-3}})
    curve = record_of(run, "ground")
    of = MEASURES["prefix_pass_rate"].of
    assert of is not None and of(curve) is None


def test_kept_runs_replace_those_of_equal_arm_and_seed() -> None:
    def curve(arm: str, seed: int, value: float) -> Curve:
        return Curve("sums", arm, seed, 0.0, 0, (), {"utility": value})

    kept = merge_runs([curve("b", 1, 0.1), curve("a", 0, 0.2)], [curve("b", 1, 0.3), curve("b", 0, 0.4)])
    assert [(each.arm, each.seed, each.facts["utility"]) for each in kept] == [
        ("a", 0, 0.2),
        ("b", 0, 0.4),
        ("b", 1, 0.3),
    ]
