"""Known answers for the numbers of a comparison."""

import json
import math
from dataclasses import replace

import pytest
from contests import run_of
from controller_harness import play, problem_set
from messages import says
from synthetic_runs import N, decision, evaluation_record, step_record, write_comparison, write_records

from halfway.controllers.prefix_sampling import PrefixSampling
from halfway.controllers.uniform import Uniform
from halfway.curriculum import UserError, chain
from halfway.curriculum.prefix import ParentCount
from halfway.experiments.report.analysis.comparison_summary import ranks_of, summarize
from halfway.experiments.report.analysis.starts import find_reported, strata_rows
from halfway.experiments.report.analysis.sweeps import read_tuning
from halfway.experiments.report.records import Stratum, load_comparison_records, load_run_records
from halfway.experiments.report.statistics.intervals import few_over_seeds, over_seeds
from halfway.experiments.report.tables.all_tables import tables, write_tables
from halfway.experiments.report.tables.arm_tables import arm_table, quick_table, start_table


def comparison(tmp_path, arms):
    """A comparison directory from {arm: {seed: (decisions, steps, evaluations)}}."""
    for arm, seeds in arms.items():
        for seed, records in seeds.items():
            write_records(tmp_path / arm / f"seed-{seed}", *records, seed=seed)
    (tmp_path / "comparison.yaml").write_text(f"arms: {{{', '.join(f'{arm}: {{}}' for arm in arms)}}}\n")
    return load_comparison_records(tmp_path)


def curve(*scores, every=100):
    return [evaluation_record(i, i * every, score) for i, score in enumerate(scores)]


def test_t_interval_of_two_and_three_seeds_has_the_closed_form():
    # Student's t has elementary quantiles for 1 and 2 degrees of freedom.
    one = math.tan(math.pi * 0.475)
    estimate = over_seeds([1.0, 3.0])
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((2.0, 2.0 - one, 2.0 + one))
    two = 0.95 / math.sqrt(2 * 0.975 * 0.025)
    assert over_seeds([0.0, 3.0, 6.0]).high == pytest.approx(3.0 + two * math.sqrt(3.0))


def test_one_seed_has_no_t_interval():
    estimate = over_seeds([0.5])
    assert (estimate.low, estimate.high) == (None, None)


def test_waste_counts_zero_variance_surplus_and_lost_rollouts(tmp_path):
    decisions = [
        decision(k=4),
        decision(k=0, outcome="zero_variance"),
        decision(k=3, outcome="surplus"),
        decision(k=2, n=6, dropped={"diverged": 2}),
        decision(k=0, n=0, outcome="empty", dropped={"diverged": 8}),
        decision(k=None, n=None, outcome="skipped"),
    ]
    (arm,) = summarize(comparison(tmp_path, {"a": {0: (decisions, [step_record(rollouts=30)], [])}})).arms
    # 8 trained + 8 zero-variance + 8 surplus + 6 trained + 10 lost = 40 rollouts, of which 26 were wasted.
    assert arm.wasted.value == pytest.approx(26 / 40)
    assert arm.entropy is not None and arm.entropy.value == 1.0
    assert arm.skipped == 1


def test_replayed_tokens_are_those_of_every_rollout(tmp_path):
    groups = [decision(tokens=60), decision(tokens=20, origin="prefix", parent_passed=1, prefix_tokens=5)]
    (arm,) = summarize(comparison(tmp_path, {"a": {0: (groups, [step_record()], [])}})).arms
    assert arm.replayed.value == pytest.approx(8 * 5 / (8 * 5 + 80))


def test_carried_group_counts_once_and_takes_its_last_outcome(tmp_path):
    carried = decision(step=0, k=3, outcome="carried")
    again = {**carried, "step": 1, "outcome": "trained"}
    steps = [step_record(0, 8, 0), step_record(1, 16, 2)]
    run = comparison(tmp_path, {"a": {0: ([carried, again, decision(step=1)], steps, [])}}).all_runs[0]
    assert [(group.step, group.outcome) for group in run.groups] == [(0, "trained"), (1, "trained")]


def test_shares_of_the_band_count_the_right_groups(tmp_path):
    decisions = [
        decision(k=3),
        decision(k=5),
        decision(k=2),
        decision(k=0, outcome="zero_variance"),
        decision(k=4, origin="prefix", parent_passed=1),
        decision(k=4, origin="generated"),
    ]
    (arm,) = summarize(comparison(tmp_path, {"a": {0: (decisions, [step_record()], [])}})).arms
    assert arm.band_fresh.value == pytest.approx(2 / 4)
    assert arm.band_trained.value == pytest.approx(4 / 5)


def test_rollouts_steps_and_seconds_of_an_arm_are_those_of_its_records(tmp_path):
    steps = [step_record(0, 64, trained=4), step_record(1, 160, trained=6)]
    groups = [decision(k=k) for k in (1, 4, 7, 0, 8)]  # two have zero variance and trained all the same
    (arm,) = summarize(comparison(tmp_path, {"a": {0: (groups, steps, [])}})).arms
    assert (arm.rollouts.value, arm.steps.values, arm.seconds) == (160, (2,), 1.6)
    assert arm.trained_per_step.value == 1.5
    assert arm.rollouts_per_group.value == 16
    # Evaluation seconds are not part of a step's time.
    assert arm.controller_share == pytest.approx(0.02 / 2.0)


def test_a_number_has_one_interval_wherever_it_stands(tmp_path):
    summary = summarize(load_comparison_records(write_comparison(tmp_path, seeds=(0, 1, 2), steps=8)))
    steps = next(matched for matched in summary.matched if matched.axis.name == "steps")
    after = {arm.arm: arm.after for arm in summary.arms if arm.steps.value == steps.amount}
    assert after and after == {row.arm: row.pass_at_1 for row in steps.rows if row.arm in after}


def test_one_seed_without_passes_by_problem_has_no_interval(tmp_path):
    (arm,) = summarize(comparison(tmp_path, {"a": {0: ([], [step_record()], curve(0.4, 0.6))}})).arms
    assert (arm.after.value, arm.after.low, arm.gain.value, arm.gain.high) == (0.6, None, pytest.approx(0.2), None)


def test_gain_of_several_seeds_is_paired_within_the_seed(tmp_path):
    # The seeds start far apart, but each gains exactly 0.2.
    runs = {seed: ([], [step_record()], curve(start, start + 0.2)) for seed, start in enumerate((0.1, 0.4, 0.7, 0.3))}
    summary = summarize(comparison(tmp_path, {"a": runs}))
    gain = summary.arms[0].gain
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.2, 0.2, 0.2))
    assert summary.intervals.startswith("95 %")


def test_arms_with_equal_scores_share_the_better_rank(tmp_path):
    def runs(*scores):
        return {seed: ([], [step_record()], curve(0.1, score)) for seed, score in enumerate(scores)}

    arms = {"a": runs(0.1, 0.3), "b": runs(0.7, 0.1), "c": runs(0.1, 0.7), "d": runs(0.6, 0.6), "e": runs(0.2, 0.2)}
    summary = summarize(comparison(tmp_path, arms))
    assert summary.ranking == ("d", "b", "c", "a", "e")
    assert [row[1] for row in arm_table(summary).rows] == ["4", "2", "2", "1", "4"]
    write_tables(tmp_path, summary)
    assert json.loads((tmp_path / "summary.json").read_text())["ranks"] == {"d": 1, "b": 2, "c": 2, "a": 4, "e": 4}
    assert ranks_of({"a": 0.1 + 0.2, "b": 0.3, "c": 0.2}) == {"a": 1, "b": 1, "c": 3}


def test_groups_behind_prefixes_have_a_row_for_each_pass_count_of_their_parents(tmp_path):
    def children(step, *passed):
        return [
            decision(
                step,
                k,
                origin="prefix",
                parent_passed=7,
                outcome="zero_variance" if k in (0, N) else "trained",
                problem=f"{i}",
            )
            for i, k in enumerate(passed)
        ]

    decisions = [decision(0, 2), *children(1, 0, 0), *children(2, 8, 0), *children(3, 4, 4)]
    steps = [step_record(i, 64 * (i + 1), controllers={"ps/ratio_7_of_8": 0.1 * i}) for i in range(4)]
    rows = {row.start: row for row in summarize(comparison(tmp_path, {"a": {0: (decisions, steps, [])}})).starts}
    assert list(rows) == ["fresh", "prefixed", "7 of 8"]
    row = rows["7 of 8"]
    assert row.groups == 6
    assert row.mean.value == pytest.approx((0 + 0 + 1 + 0 + 0.5 + 0.5) / 6)
    assert (row.zero_variance.value, row.band.value) == (pytest.approx(4 / 6), pytest.approx(2 / 6))
    assert row.ratio == pytest.approx(0.3)
    assert rows["fresh"].groups == 1


def test_estimates_of_where_groups_started_are_over_seeds(tmp_path):
    def seed(*passed, **other):
        groups = [decision(k=k, problem=f"{i}", **other) for i, k in enumerate(passed)]
        return ([*groups, decision(k=6, origin="prefix", parent_passed=7)], [step_record()], [])

    # Seeds have equal weight, however many groups they have.
    arms = {"a": {0: seed(0, 8, 8, 8), 1: seed(2)}}
    rows = {row.start: row for row in summarize(comparison(tmp_path, arms)).starts}
    assert rows["fresh"].groups == 5
    assert rows["fresh"].mean == few_over_seeds([0.75, 0.25])
    assert rows["fresh"].zero_variance == few_over_seeds([1.0, 0.0])
    assert rows["prefixed"].band == few_over_seeds([0.0, 0.0])


def test_groups_of_one_seed_have_no_interval(tmp_path):
    groups = [decision(k=k, problem=problem) for k, problem in ((2, "a"), (2, "a"), (6, "b"), (6, "b"))]
    groups.append(decision(k=6, origin="prefix", parent_passed=7))
    row = summarize(comparison(tmp_path, {"a": {0: (groups, [step_record()], [])}})).starts[0]
    assert (row.mean, row.zero_variance) == (over_seeds([0.5]), over_seeds([0.0])) and row.mean.low is None


def test_generated_groups_have_a_row_of_their_own(tmp_path):
    groups = [decision(k=2), decision(k=6, origin="generated")]
    loaded = comparison(
        tmp_path, {"a": {0: (groups, [step_record()], [])}, "b": {0: (groups[:1], [step_record()], [])}}
    )
    assert [(row.arm, row.start, row.mean.value) for row in summarize(loaded).starts] == [
        ("a", "fresh", 0.25),
        ("a", "generated", 0.75),
    ]


def test_metrics_of_parents_are_found_by_quantity_and_pass_count():
    metrics = {"a/ratio_mean": 0.9, "a/ratio_1_of_8": None, "b/ratio_1_of_8": 0.25, "c/ratio_1_of_8": 0.5}
    assert find_reported(metrics, "ratio", ParentCount(1, 8)) == 0.25
    assert find_reported(metrics, "ratio", ParentCount(1, 4)) is None
    assert find_reported(metrics, "mean", ParentCount(1, 8)) is None


def test_the_ratios_that_prefix_sampling_reports_are_found():
    controller = chain(("own", PrefixSampling(initial_ratio=0.4)), ("uniform", Uniform()))
    _, state = play(controller, controller.init(problem_set(64)), range(1))
    found = [find_reported(controller.metrics(state), "ratio", ParentCount(k, 8)) for k in (1, 2, 4, 6, 7)]
    assert found == [0.4, 0.4, None, 0.4, 0.4]


def test_cut_off_last_line_is_left_out_and_counted(tmp_path):
    loaded = comparison(tmp_path, {"a": {0: ([decision(), decision(k=3)], [step_record()], curve(0.2, 0.4))}})
    path = loaded.all_runs[0].folder / "decisions.jsonl"
    path.write_text(path.read_text()[:-20])
    run = load_run_records(path.parent)
    assert (len(run.groups), run.unreadable) == (1, 1)
    assert "Left out: 1 cut-off last line of" in arm_table(summarize(load_comparison_records(tmp_path))).caption


def test_groups_of_a_step_without_its_record_are_left_out(tmp_path):
    write_records(tmp_path, [decision(0), decision(1)], [step_record(0)], [], state="running")
    run = load_run_records(tmp_path)
    assert [group.step for group in run.groups] == [0]
    assert not run.finished


def test_broken_line_is_refused_with_file_and_line(tmp_path):
    write_records(tmp_path, [decision()], [step_record()], [])
    path = tmp_path / "decisions.jsonl"
    path.write_text(path.read_text() + '{"step": "one"}\n')
    with pytest.raises(UserError, match=r"decisions\.jsonl:2: "):
        load_run_records(tmp_path)


def test_empty_directory_is_refused(tmp_path):
    with pytest.raises(UserError, match=says("no run")):
        load_comparison_records(tmp_path)


def test_metrics_that_are_not_numbers_are_read(tmp_path):
    write_records(tmp_path, [], [step_record(learner={"loss": float("nan"), "kl": None})], [])
    learner = load_run_records(tmp_path).steps[0].learner
    assert math.isnan(learner["loss"]) and learner["kl"] is None


def test_arms_keep_the_declared_order_and_files_are_written(tmp_path):
    write_comparison(tmp_path, seeds=(0, 1), steps=8)
    summary = summarize(load_comparison_records(tmp_path))
    assert [arm.arm for arm in summary.arms] == ["grpo", "dynamic_sampling", "greso", "prefix_sampling"]
    assert summary.budget == ("rollouts", 2048)
    write_tables(tmp_path, summary)
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written["arms"][0]["after"]["value"] == summary.arms[0].after.value
    page = (tmp_path / "summary.md").read_text()
    assert all(table.title in page for table in tables(summary))
    assert not list(tmp_path.glob(".*.tmp"))


def test_tables_print_values_with_their_intervals(tmp_path):
    runs = {seed: ([decision()], [step_record()], curve(0.4, end)) for seed, end in enumerate((0.59, 0.61))}
    summary = summarize(comparison(tmp_path, {"a": runs}))
    assert quick_table(summary).rows[0][1] == "0.600 (0.590, 0.610)"
    assert start_table(summary.starts).rows == ()
    caption = quick_table(summary).caption
    assert "before, it was 0.400." in caption
    assert all(f"{column}: " in caption for column in ("Mixed groups", "Wasted"))
    assert quick_table(summary).rich().row_count == 1


def test_strata_are_those_of_the_last_evaluation():
    strata = {"10": Stratum(2, 4), "2": Stratum(2, 16)}
    run = run_of("a", 0, scores=[0.1, 0.2])
    run = replace(run, evaluations=[replace(evaluation, strata=strata) for evaluation in run.evaluations])
    (row,) = strata_rows({"a": [run, run]})
    assert list(row.rates) == ["2", "10"] and row.seeds == 2
    assert [rate.value for rate in row.rates.values() if rate] == [1.0, 0.25]
    alone = [replace(evaluation, strata={"": Stratum(4, 4)}) for evaluation in run.evaluations]
    assert strata_rows({"a": [replace(run, evaluations=alone)]}) == []


def test_tuning_is_read(tmp_path):
    assert read_tuning(tmp_path) == {}
    settings = [
        {"name": f"lr-{lr}", "values": {"learner.lr": lr}, "areas": {"100": lr * 1000, "101": 0.5}, "mean_area": lr}
        for lr in (1e-4, 3e-4)
    ]
    settings.append({"name": "lr-unfinished", "values": {"learner.lr": 1}, "areas": {}, "mean_area": None})
    tuned = {"settings": settings, "chosen": "lr-0.0003", "at_edge": ["learner.lr"]}
    content = {"seeds": [100, 101], "arms": {"a": tuned}}
    (tmp_path / "tuning.json").write_text(json.dumps(content))
    sweep = read_tuning(tmp_path)["a"]
    assert sweep.choice is not None and sweep.choice.values == {"learner.lr": 3e-4}
    assert sweep.at_edge == ["learner.lr"] and sweep.choice.areas == pytest.approx({"100": 0.3, "101": 0.5})
    assert [trial.mean_area for trial in sweep.settings] == [1e-4, 3e-4, None]
    (tmp_path / "tuning.json").write_text("[]")
    with pytest.raises(UserError, match=r"tuning\.json"):
        read_tuning(tmp_path)
