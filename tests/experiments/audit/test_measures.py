"""The numbers of an audit, on logs made by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from histories import log
from synthetic_runs import Script, decision, step_record, write_records, write_run

from halfway.experiments.audit.auditing import Audit, Audited
from halfway.experiments.audit.history import Reading
from halfway.experiments.audit.log_measures import CategoryChange, Memory, Streak, findings, outcomes, spending, wasted
from halfway.experiments.audit.log_reading import read_logs
from halfway.experiments.audit.suspects import find_inverted, fisher
from halfway.experiments.audit.tables import facts, over_time, page

# Three visits of four problems: forgotten, unlocked, always solved, never solved.
VISITS = [
    *((0, "turned", 3, 4), (0, "unlocked", 0, 4), (0, "easy", 4, 4), (0, "hard", 0, 4)),
    *((1, "turned", 1, 4), (1, "unlocked", 0, 4), (1, "easy", 4, 4), (1, "hard", 0, 4)),
    *((2, "turned", 0, 4), (2, "unlocked", 2, 4), (2, "easy", 4, 4), (2, "hard", 0, 4)),
]


def test_the_share_and_cost_of_zero_variance_groups_are_measured() -> None:
    found = findings(log(VISITS), hours=6.0)
    assert (found.groups, found.steps, found.group_size) == (12, 3, 4)
    assert found.zero_variance == pytest.approx(9 / 12)
    assert found.all_failed == pytest.approx(6 / 12) and found.all_passed == pytest.approx(3 / 12)
    assert found.near_half == pytest.approx(1 / 12)
    assert found.price == 48 / 3
    assert (found.spending.rollouts, found.spending.zero_variance) == (48, 36)
    assert (found.spending.tokens, found.spending.zero_variance_tokens) == (144, 108)
    assert found.spending.zero_variance_hours == pytest.approx(4.5)
    assert [(s.first, s.last, s.groups) for s in found.over_time] == [(0, 0, 4), (1, 1, 4), (2, 2, 4)]
    assert [s.all_failed for s in found.over_time] == [0.5, 0.5, 0.5]
    assert found.over_time[0].rate == pytest.approx(7 / 16)


def test_a_single_step_is_shown_without_a_range() -> None:
    found = findings(log(VISITS))
    assert [row[0] for row in over_time(found).rows] == ["0", "1", "2"]
    assert "<title>step 1: mixed 25.0 % of 4</title>" in page(Audit((Audited(log(VISITS), found),), ()))
    assert ("steps", "3, from 0 to 2") in facts(Audited(log(VISITS), found)).rows
    one = log(VISITS[4:8])
    assert ("steps", "1 (step 1)") in facts(Audited(one, findings(one))).rows


@pytest.mark.parametrize(("files", "said"), [(1, "1 file"), (1200, "1,200 files")])
def test_the_number_of_files_is_shown_with_the_right_plural(files: int, said: str) -> None:
    read = replace(log(VISITS), reading=Reading("table", "ours", files=files, size=1500))
    assert ("format", f"table (ours), {said}, 1.5 kB") in facts(Audited(read, findings(read))).rows


def test_several_steps_are_shown_as_a_range() -> None:
    several = log([(step, "p", 1, 2) for step in range(24)])
    found = findings(several)
    assert [row[0] for row in over_time(found).rows][:2] == ["0-1", "2-3"]
    assert "<title>steps 22-23: mixed 100.0 % of 2</title>" in page(Audit((Audited(several, found),), ()))


def test_the_fates_of_problems_are_counted() -> None:
    fates = findings(log(VISITS)).fates
    assert (fates.problems, fates.revisited) == (4, 4)
    assert (fates.never, fates.always, fates.forgotten, fates.unlocked) == (1, 1, 1, 1)


def test_memory_is_counted_from_visit_to_visit() -> None:
    found = findings(log(VISITS))
    # After all failed: unlocked 0->0, 0->2; hard twice 0->0. After mixed: 3->1, 1->0. After all passed: twice again.
    assert found.memory == (
        Memory("all failed", 4, 0.75, 0.25, 0.0),
        Memory("mixed", 2, 0.5, 0.5, 0.0),
        Memory("all passed", 2, 0.0, 0.0, 1.0),
    )
    assert found.streaks == (
        Streak("all failed", 1, 2, 1.0),  # unlocked, hard after one
        Streak("all failed", 2, 2, 0.5),  # unlocked passed, hard did not
        Streak("all passed", 1, 1, 1.0),
        Streak("all passed", 2, 1, 1.0),
    )


def test_a_streak_ends_with_its_kind_or_its_problem() -> None:
    passed = {"p": (0, 0, 4, 4, 4), "q": (0, 0)}
    visits = [(step, name, k, 4) for name, counts in passed.items() for step, k in enumerate(counts)]
    assert findings(log(visits)).streaks == (
        Streak("all failed", 1, 2, 1.0),  # the first visits of p and q
        Streak("all failed", 2, 1, 0.0),  # the second of p; q has no third
        Streak("all passed", 1, 1, 1.0),
        Streak("all passed", 2, 1, 1.0),
    )


def test_streaks_of_four_and_more_are_counted_together() -> None:
    streaks = findings(log([(step, "p", 0, 4) for step in range(7)])).streaks
    assert [(streak.length, streak.visits, streak.again) for streak in streaks] == [
        *((1, 1, 1.0), (2, 1, 1.0), (3, 1, 1.0)),
        (4, 3, 1.0),
    ]


def test_a_log_without_plain_groups_has_no_shares() -> None:
    groups = log(VISITS)
    behind = replace(groups, history=replace(groups.history, fresh_V=np.zeros(12, np.bool_)))
    found = findings(behind)
    assert (found.groups, found.zero_variance, found.over_time, found.kinds) == (0, 0.0, (), ())
    assert found.spending.rollouts == 48 and found.price is None


def test_kinds_of_problems_are_compared_where_both_ends_have_enough() -> None:
    groups = [(step, "a", 1 if step < 22 else 3, 4) for step in range(45)] + [(45, "b", 2, 4)]
    found = findings(log(groups, categories={"a": "algebra", "b": "rare"}))
    assert found.kinds == (CategoryChange("algebra", 45, 0.25, 0.75, 0.0),)


def test_a_weak_policy_that_beats_a_strong_one_points_at_the_problem() -> None:
    both = [(0, f"p{i}", 1, 8) for i in range(20)]
    strong = [(0, f"p{i}", 7, 8) for i in range(20)]
    weak = log([*both, (0, "odd", 8, 8)], "small")
    better = log([*strong, (0, "odd", 0, 8)], "large")
    for one, other in ((weak, better), (better, weak)):
        [suspect] = find_inverted(one, other)
        assert suspect.problem == "odd" and suspect.log == "large"
        assert suspect.why == "passes 8 of 8 in small, the weaker policy, and 0 of 8 in large"


def test_fishers_exact_test() -> None:
    """The tea lady: 3 of 4 against 1 of 4 has the chance 17 in 70."""
    assert fisher(3, 4, 1, 4) == pytest.approx(17 / 70)
    assert fisher(4, 4, 0, 4) == pytest.approx(1 / 70)
    assert fisher(0, 4, 4, 4) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "script", [Script(), Script(request=48, refill=True), Script(request=40, refill=True, skip=0.4)]
)
def test_our_own_runs_have_the_numbers_of_their_report(script: Script, tmp_path: Path) -> None:
    pytest.importorskip("omegaconf")
    from halfway.experiments.report.analysis.arm_summary import summarize_arm
    from halfway.experiments.report.records import load_run_records

    folder = write_run(tmp_path / "run", script, seed=0, steps=12)
    run, [ours] = load_run_records(folder), read_logs([folder])
    table, found = summarize_arm("run", [run]), findings(ours)
    fresh = [group for group in run.groups if group.fresh and group.scored]
    assert found.groups == len(fresh)
    assert found.zero_variance == pytest.approx(np.mean([group.zero_variance for group in fresh]))
    assert table.band_fresh is not None and found.near_half == pytest.approx(table.band_fresh.value)
    assert table.wasted is not None and found.wasted == pytest.approx(table.wasted.value)
    assert found.skipped == table.skipped
    assert found.spending.rollouts == table.rollouts.value
    assert sum(found.outcomes.values()) == len(run.groups)
    assert found.spending.hours == pytest.approx(run.steps[-1].seconds / 3600)


def test_a_carried_group_that_no_step_trained_stays_carried_in_its_first_step(tmp_path: Path) -> None:
    carried = [decision(step=step, k=4, outcome="carried", problem="p", policy_version=0) for step in (0, 1)]
    write_records(tmp_path, carried, [step_record(step=0), step_record(step=1)], [])
    [log] = read_logs([tmp_path])
    assert log.history.step_V.tolist() == [0] and outcomes(log.history) == {"carried": 1}
    pytest.importorskip("omegaconf")
    from halfway.experiments.report.records import load_run_records

    [group] = load_run_records(tmp_path).groups
    assert (group.step, group.outcome) == (0, "carried")


def test_a_carried_group_counts_once(tmp_path: Path) -> None:
    first = decision(step=0, k=4, outcome="carried", problem="p", policy_version=0)
    again = decision(step=1, k=4, outcome="trained", problem="p", policy_version=0)
    unfinished = decision(step=2, k=2, problem="q")
    steps = [{"step": 0, "seconds": 1.0}, {"step": 1, "seconds": 7200.0}]
    write_records(tmp_path, [first, again, unfinished], steps, [])
    [read] = read_logs([tmp_path])
    assert len(read.history) == 1 and outcomes(read.history) == {"trained": 1} and read.hours == 2.0
    assert read.reading.dropped == {"group of a step that was not finished": 1}


def test_a_group_that_trains_again_is_not_spent_again(tmp_path: Path) -> None:
    groups = [decision(k=4), decision(step=1, k=4, origin="stored"), decision(step=1, k=0, outcome="zero_variance")]
    groups += [decision(step=1, k=4, outcome=outcome) for outcome in ("declined", "surplus", "waiting")]
    write_records(tmp_path, groups, [step_record(step=0), step_record(step=1)], [])
    [read] = read_logs([tmp_path])
    assert findings(read).spending.rollouts == 40 and wasted(read.history) == 0.6
    assert read.reading.dropped == {"group that was trained once more, not rolled out again": 1}
    pytest.importorskip("omegaconf")
    from halfway.experiments.report.analysis.arm_summary import wasted_share
    from halfway.experiments.report.records import load_run_records

    assert wasted_share(load_run_records(tmp_path)) == 0.6


def test_lost_rollouts_are_spent_too(tmp_path: Path) -> None:
    groups = [
        decision(k=8, outcome="zero_variance"),
        decision(k=3, n=6, dropped={"diverged": 2}, origin="prefix", parent_passed=1),
    ]
    write_records(tmp_path, groups, [{"step": 0, "seconds": 1.0}], [])
    [read] = read_logs([tmp_path])
    spent = spending(read.history, None)
    assert (spent.rollouts, spent.zero_variance, spent.lost, spent.zero_variance_hours) == (16, 8, 2, None)
    assert wasted(read.history) == (8 + 2) / 16
    assert read.history.fresh_V.tolist() == [True, False]
