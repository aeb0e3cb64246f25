"""The two studies of the simulated learner: agreement of ranks, and pass counts before and after."""

import numpy as np
import pytest
from scipy.stats import kendalltau
from synthetic_runs import Script, write_run

from halfway.experiments.studies import pass_count_pairs
from halfway.experiments.studies.predicted_ranks import (
    RankedArm,
    agreement,
    arm_table,
    blind_error,
    error_table,
    kendall,
    leads_of,
    measured_again,
    playable,
    read_predictions,
    tau_interval,
    tau_of_halves,
    write,
)


def arm(name: str, predicted: float, measured: float, lead: float = 0.0, comparison: str = "c") -> RankedArm:
    return RankedArm(comparison, name, (predicted,) * 2, (measured,) * 2, lead, 0.01)


def test_kendall_is_scipys():
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y = rng.integers(0, 4, 9) * 1.0, rng.integers(0, 4, 9) * 1.0
        assert kendall(x, y) == pytest.approx(kendalltau(x, y).statistic)


def test_equal_orders_agree_and_opposite_orders_do_not():
    same = [arm(str(i), i, 2 * i) for i in range(6)]
    assert tau_interval(same)[0] == pytest.approx(1.0) and tau_interval(same)[1] > 0.9
    opposite = [arm(str(i), i, -i) for i in range(6)]
    assert tau_interval(opposite)[0] == pytest.approx(-1.0)


def test_the_best_prediction_has_a_measured_place():
    arms = [arm("grpo", 0.5, 0.5), arm("second", 0.9, 0.6), arm("first", 0.7, 0.65)]
    found = agreement(arms)
    assert (found.arms, found.place, found.tau) == (3, 2, pytest.approx(1 / 3))


def test_halves_of_the_seeds_agree_as_far_as_seeds_do():
    steady = [RankedArm("c", str(i), (0.0,), tuple(i + 0.01 * seed for seed in range(4)), 0.0, 0.0) for i in range(5)]
    assert tau_of_halves(steady) == pytest.approx(1.0)
    # Two seeds, each of which has the order of the other turned round.
    turned = [RankedArm("c", str(i), (0.0,), (float(i), float(-i)), 0.0, 0.0) for i in range(5)]
    assert tau_of_halves(turned) == pytest.approx(-1.0)
    assert np.isnan(tau_of_halves([RankedArm("c", "alone", (0.0,), (0.5,), 0.0, 0.0)]))


def test_leads_are_foretold_by_the_other_comparisons_alone():
    """The lead of the first is half of the simulated one, the lead of the second all of it."""
    one = [arm("grpo", 0.5, 0.5), arm("a", 0.9, 0.7, 0.4), arm("b", 0.7, 0.6, 0.2)]
    two = [arm("grpo", 0.5, 0.5, 0.0, "d"), arm("a", 0.9, 0.9, 0.4, "d"), arm("b", 0.7, 0.7, 0.2, "d")]
    leads = leads_of([*one, *two], "grpo")
    assert blind_error(leads, "c").share == pytest.approx(1.0) and blind_error(leads, "d").share == pytest.approx(0.5)
    rows = error_table(leads).rows
    assert [row[-1] for row in rows] == ["0 of 2", "0 of 2", "-"] and rows[-1][3] == "0.75"
    table = arm_table([*one, *two], "grpo").rows
    assert [row[0] for row in table] == ["a", "b", "grpo"] * 2
    low, high = map(float, table[3][-2].strip("[]").split(","))
    assert (low + high) / 2 == pytest.approx(0.2, abs=1e-3)  # half of the simulated .4


def test_a_prediction_can_be_measured_again(tmp_path):
    """By an arm's runs with their own records, which the prediction has nothing to do with."""
    for name, more in (("grpo", 0), ("new", 2)):
        for seed in range(2):
            write_run(tmp_path / "contest" / name / f"seed-{seed}", Script(), seed=seed + more, steps=4)
    known = [arm("grpo", 0.5, 0.0, comparison="contest"), arm("gone", 0.6, 0.0, comparison="contest")]
    found, without = measured_again(tmp_path / "contest", known, "grpo")
    assert [each.arm for each in found] == ["grpo"] and without == ["new: not predicted"]
    assert len(found[0].measured) == 2 and found[0].predicted == (0.5, 0.5) and min(found[0].measured) > 0
    write(found, without, "grpo", tmp_path / "out")
    again, _ = measured_again(tmp_path / "contest", read_predictions(tmp_path / "out" / "predicted_ranks.json"), "grpo")
    assert again == found


def test_arms_that_differ_in_the_learner_are_left_out_by_name():
    chains, left_out = playable({"grpo": {}, "hot": {"learner": {"lr": 1}}})
    assert [chain.name for chain in chains] == ["grpo"] and "hot" in left_out[0]


def test_the_public_pairs_are_those_that_were_counted():
    """Figures of the data, counted when it was extracted."""
    cells = pass_count_pairs.load()
    assert sum(len(cell.pairs_N2) for cell in cells) == 54784
    grpo = np.concatenate([cell.pairs_N2 for cell in cells if cell.name[3] == "grpo"])
    alive = grpo[grpo[:, 0] > 0]
    assert len(grpo) == 9600
    assert (alive[:, 1] == 0).mean() == pytest.approx(0.32, abs=0.005)
    assert (alive[:, 1] == 32).mean() == pytest.approx(0.41, abs=0.005)
    assert (grpo[grpo[:, 0] == 0, 1] > 0).mean() == pytest.approx(0.33, abs=0.005)


def test_a_cell_is_judged_on_seeds_it_was_not_fitted_on():
    cell = next(c for c in pass_count_pairs.load() if c.name == ("qwen05b", "countdown", "level1", "grpo"))
    fitted, held = cell.parts()
    assert (len(fitted), len(held)) == (3 * 128, 2 * 128)
    found = pass_count_pairs.judge(cell, tries=6)
    assert found is not None and set(found.logliks) == set(pass_count_pairs.MODELS)
    assert found.logliks["simulated learner"] > found.logliks["nothing changes"]
    assert len(pass_count_pairs.fit_table([found]).rows) == 2
    assert sum(found.sizes.values()) == 256
