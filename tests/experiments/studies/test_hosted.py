"""One recipe in two trainers: what is refused, and the table of both."""

from pathlib import Path

import numpy as np
import pytest
from paths import REPOSITORY

from halfway.curriculum.support.errors import UserError
from halfway.experiments.benchmarks.hosts import median_interval
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.studies.hosted import Run, check, curves_table, moving, run

RECIPE = REPOSITORY / "experiments" / "recipes" / "lab" / "hosted.yaml"


def made(scores: list[float]) -> Run:
    rates_EP = np.array([[score - 0.1, score + 0.1] for score in scores])
    return Run((0, 100), rates_EP, 10, 0.5, 0.1, np.array(scores))


def test_the_recipe_is_one_that_trl_trains() -> None:
    check(load_run_config(RECIPE))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("fill.degenerate=drop", "fill.degenerate: 'drop' is not acceptable; give keep"),
        ("learner.advantage=leave_one_out", "learner.advantage: 'leave_one_out' is not acceptable; give mean"),
        ("learner.kl_coefficient=0.01", "learner.kl_coefficient: 0.01 is not acceptable; give 0"),
        ("budget.rollouts=3841", "budget.rollouts: 3841 is not acceptable; give whole steps of 128"),
    ],
)
def test_other_recipes_are_refused(override: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        check(load_run_config(RECIPE, [override]))
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_the_table_has_the_difference_at_equal_rollouts() -> None:
    own, hosted = [made([0.2, 0.5]), made([0.2, 0.6])], [made([0.2, 0.55]), made([0.2, 0.65])]
    first, last = curves_table(own, hosted, "lab").rows
    assert first[0] == "0" and first[3].startswith("+0.000") and last[3].startswith("+0.050")
    assert last[1].startswith("0.550") and last[2].startswith("0.600")


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    config = load_run_config(RECIPE, ["evaluation.points=1"])
    (tmp_path / "passes.json").write_text("[[0, 4], [2, 4]]")
    fresh = '{"step": 0, "outcome": "trained", "k": 2, "n": 8, "tokens": 80, "prefix_tokens": 0, "origin": "fresh"}'
    child = '{"step": 0, "outcome": "trained", "k": 8, "n": 8, "tokens": 40, "prefix_tokens": 3, "origin": "prefix"}'
    (tmp_path / "decisions.jsonl").write_text(f'{fresh}\n{child}\n{{"outcome": "skipped"}}\n')
    found = run(config, "halfway", tmp_path)
    assert found.rollouts_E == (0, 3840) and found.rates_EP.tolist() == [[0.0, 1.0], [0.5, 1.0]]
    assert (found.generated, found.degenerate, found.prefixed) == (120, 0.5, 0.5) and found.fresh_T.tolist() == [0.25]


def test_moving_means() -> None:
    assert moving(np.array([0.0, 1, 2, 3, 4, 10])).tolist() == pytest.approx([2.0, 4.0])


def test_the_interval_of_a_median() -> None:
    # Of ten values the second and the ninth: P(at most one below) = 11 / 1024, and with two it would be 56 / 1024.
    assert median_interval([7, 3, 9, 1, 5, 2, 8, 10, 4, 6]) == (2, 9)
    assert median_interval([3, 1, 2]) == (1, 3)
