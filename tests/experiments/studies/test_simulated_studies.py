"""The two studies of the simulated learner: agreement of ranks, and pass counts before and after."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from halfway.experiments.studies import pass_count_pairs, predicted_ranks
from halfway.experiments.studies.predicted_ranks import RankedArm, agreement, kendall, playable, tau_interval


def arm(name: str, predicted: float, measured: float, lead: float = 0.0) -> RankedArm:
    return RankedArm("c", name, (predicted,) * 2, (measured,) * 2, lead, 0.01, lead - 0.05, lead + 0.05)


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


def test_leads_are_covered_or_not():
    arms = [arm("grpo", 0.5, 0.5), arm("near", 0.6, 0.58, lead=0.1), arm("far", 0.9, 0.6, lead=0.4)]
    found = agreement(arms, "grpo")
    assert (found.arms, found.covered, found.tau) == (3, 1, pytest.approx(1.0))
    assert predicted_ranks.arm_table(arms, "grpo").rows[0][0] == "far"


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
