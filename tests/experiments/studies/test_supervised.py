"""Supervised steps on references: what is learnt from, what it costs, and that it learns."""

import pytest
from paths import REPOSITORY

from halfway.curriculum.support.errors import UserError
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.run import RunConfig
from halfway.experiments.studies.supervised import IGNORED, Point, learn, padded, supervised_table

LAB = REPOSITORY / "experiments" / "recipes" / "lab"
SMALL = ["problems.train=96", "evaluation.problems=24", "evaluation.samples=2", "threads=1"]


def config(recipe: str, *overrides: str) -> RunConfig:
    return load_run_config(LAB / recipe, [*SMALL, *overrides])


def test_only_the_reference_is_learnt_and_padding_lies_behind() -> None:
    ids, labels = padded([([5, 6], [7, 8, 9]), ([3], [4])])
    assert ids.tolist() == [[5, 6, 7, 8, 9], [3, 4, 0, 0, 0]]
    assert labels.tolist() == [[IGNORED, IGNORED, 7, 8, 9], [IGNORED, 4, IGNORED, IGNORED, IGNORED]]


def test_a_policy_learns_its_references_and_every_token_is_counted() -> None:
    points = list(learn(config("skills.yaml"), lr=1e-3, epochs=5, batch=12))
    assert [point.epoch for point in points] == [i / 2 for i in range(11)]
    per_epoch = points[2].trained_tokens
    assert [point.trained_tokens for point in points[::2]] == [round(per_epoch * point.epoch) for point in points[::2]]
    # Prompts of 17 to 23 characters and references of 15 to 21, with the token that ends a response.
    assert 96 * (15 + 15) < per_epoch < 96 * (25 + 22)
    assert points[0].score < points[-1].score


def test_problems_without_references_are_one_line() -> None:
    with pytest.raises(UserError, match=r"problems\.source: .*no reference solution") as caught:
        next(learn(config("base.yaml"), lr=1e-3, epochs=1, batch=6))
    assert "\n" not in str(caught.value)


def test_the_table_has_means_over_seeds() -> None:
    points = [Point(1e-3, seed, epoch, 100 * epoch, 0.2 + 0.1 * seed) for seed in (0, 1, 2) for epoch in (0, 1)]
    table = supervised_table(points, "a recipe")
    assert [row[:2] for row in table.rows] == [("0.0", "0"), ("1.0", "100")]
    assert table.rows[0][2].startswith("0.300 [")
