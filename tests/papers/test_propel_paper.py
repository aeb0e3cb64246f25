"""PROPEL's choice of a probe and its rewards beside the paper's rules, written out here, on drawn numbers."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from halfway.trainers.propel.probes.probe_options import SweepOptions
from halfway.trainers.propel.probes.scores import score
from halfway.trainers.propel.probes.sweep import Cell, choose
from halfway.trainers.propel.propel_options import Band, RewardOptions
from halfway.trainers.propel.rewards import shape

SWEEP = SweepOptions(max_ece=0.1, tie=0.01)


LABELS_N = np.arange(40) % 2 == 0
SCORES = score(np.linspace(-1, 1, 40), LABELS_N, LABELS_N.astype(float))


def drawn_cells(rng: np.random.Generator, number: int) -> list[Cell]:
    """Cells whose accuracies and variances are often equal, as those of a small held-out set are."""
    return [
        Cell(
            layer=place,
            pooling="last_token",
            head="mlp",
            balance="downsample",
            validation=replace(
                SCORES, balanced_accuracy=float(rng.integers(55, 70)) / 100, ece=float(rng.uniform(0, 0.25))
            ),
            test=SCORES,
            test_interval=(0.0, 1.0),
            rvp=float(rng.integers(0, 20)) / 100 + place * 1e-6,
            temperature=1.0,
            file="",
        )
        for place in range(number)
    ]


def chosen_by_the_paper(cells: list[Cell]) -> int:
    """Section 14, "Selection": rank by held-out balanced accuracy subject to calibration, then by reward variance."""
    ranked = []
    calibrated = [cell for cell in cells if cell.validation.ece <= 0.1] or cells
    for cell in calibrated:
        behind = max(other.validation.balanced_accuracy for other in calibrated) - cell.validation.balanced_accuracy
        ranked.append((behind > 0.01 + 1e-12, -cell.rvp, cell.layer))
    return min(ranked)[2]


def test_the_chosen_probe_is_that_of_the_papers_rule():
    rng = np.random.default_rng(0)
    differs = 0
    for _ in range(300):
        cells = drawn_cells(rng, int(rng.integers(1, 49)))
        assert choose(cells, SWEEP).cell.layer == chosen_by_the_paper(cells)
        differs += choose(cells, replace(SWEEP, tie=0.0)).cell.layer != chosen_by_the_paper(cells)
    assert differs > 50, "the rule's second stage never decides"


def reward(kind: str, logit: float, valid: bool) -> float:
    """Equations 3 and 4 and the ablations of section 3; r_bad = -0.2."""
    probability = 1 / (1 + math.exp(-logit))
    if kind == "probe_only":
        return probability
    if not valid:
        return -0.2
    return min(max(probability, 0.1), 0.95) if kind == "soft" else logit


@pytest.mark.parametrize("kind", ["hard", "soft", "probe_only"])
def test_rewards_are_those_of_the_papers_equations(kind: Any):
    rng = np.random.default_rng(1)
    logits_N, valid_N = rng.normal(0, 3, 500), rng.random(500) < 0.7
    expected = [reward(kind, float(logit), bool(valid)) for logit, valid in zip(logits_N, valid_N, strict=True)]
    np.testing.assert_allclose(shape(logits_N, valid_N, RewardOptions(kind=kind)), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("attempts", "low", "high", "useful"), [(8, 1 / 8, 3 / 8, {1, 2, 3}), (3, 1 / 3, 2 / 3, {1, 2})]
)
def test_useful_tasks_are_those_of_equation_1(attempts: int, low: float, high: float, useful: set[int]):
    band = Band(low, high)
    assert {passed for passed in range(attempts + 1) if band.holds(passed, attempts)} == useful
