"""Arms that decided alike, by hand; such arms have no rank, savings or contrasts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from contests import comparison_of, run_of

from halfway.curriculum.decision_log import GroupRecord
from halfway.experiments.report.analysis.comparison_summary import summarize
from halfway.experiments.report.analysis.equal_decisions import Idle, compare_decisions, idle_members
from halfway.experiments.report.conclusions import conclude
from halfway.experiments.report.records import Run
from halfway.experiments.report.tables.all_tables import tables


def group(step: int, problem: str, *members: str, **fields: Any) -> GroupRecord:
    decisions = tuple((member, "kept") for member in members or ("uniform",))
    return GroupRecord(step, problem, "fresh", "trained", 4, 8, 80, decisions=decisions, **fields)


def run(arm: str, seed: int, groups: Sequence[GroupRecord], chain: Sequence[Any] = ("uniform",), **more: Any) -> Run:
    made = run_of(arm, seed, scores=more.pop("scores", [0.1, 0.2 + seed / 100]), groups=groups)
    return replace(made, config={"controllers": [*chain], **more})


PLAIN = [group(0, "a"), group(0, "b"), group(1, "c"), group(1, "d")]
KEPT = [group(one.step, one.problem, "uniform", "mine") for one in PLAIN]
CHAIN = ("uniform", {"mine": {"use": "greso"}})


def test_the_share_of_decisions_that_only_one_of_two_arms_made() -> None:
    """Of four decisions each, two are common: not the one in another step, nor the one on another problem."""
    other = [group(0, "a"), group(1, "b"), group(1, "x"), group(1, "d")]
    runs = {"grpo": [run("grpo", 0, PLAIN)], "other": [run("other", 0, other), run("other", 1, PLAIN)]}
    [found] = compare_decisions(runs, "grpo")
    assert (found.arm, found.reference, found.groups, found.differing, found.same) == ("other", "grpo", 4, 0.5, False)
    assert compare_decisions({"grpo": runs["grpo"], "apart": [run("apart", 1, PLAIN)]}, "grpo") == []


@pytest.mark.parametrize(
    "changed", [{"prefix_length": 3}, {"hint_share": 0.5}, {"weights": (1.0, 0.5)}, {"dropped": {"lost": 1}}]
)
def test_a_change_of_any_decision_is_found(changed: dict[str, Any]) -> None:
    runs = {"a": [run("a", 0, PLAIN)], "b": [run("b", 0, [replace(PLAIN[0], **changed), *PLAIN[1:]])]}
    [found] = compare_decisions(runs, "a")
    assert found.differing == 0.25 and not found.same


def test_equal_decisions_of_another_learner_are_no_equal_arms() -> None:
    fast = run("fast", 0, PLAIN, learner={"lr": 1e-3}, scores=[0.1, 0.9])
    [found] = compare_decisions({"grpo": [run("grpo", 0, PLAIN, learner={"lr": 1e-4})], "fast": [fast]}, "grpo")
    assert found.differing == 0 and not found.same


def test_equal_arms_have_equal_outcomes() -> None:
    """Rollouts that pass elsewhere were sampled by another policy, even if held-out pass@1 is as coarse as to agree."""
    other = [replace(PLAIN[0], k=5), *PLAIN[1:]]
    fast, slow = run("fast", 0, other, learner={"lr": 1e-3}), run("slow", 0, PLAIN, learner={"lr": 1e-4})
    assert not compare_decisions({"slow": [slow], "fast": [fast]}, "slow")[0].same


def test_members_that_give_other_advantages_are_told_apart_by_outcomes() -> None:
    """The log has weights, not advantages."""
    weighed = [replace(one, weights=(1.0,) * 8) for one in PLAIN]
    chains = [("uniform", {"maxrl": {"least": least}}) for least in (0.1, 0.2)]
    one, other = run("one", 0, weighed, chains[0]), run("other", 0, [replace(weighed[0], k=5), *weighed[1:]], chains[1])
    assert not compare_decisions({"one": [one], "other": [other]}, "one")[0].same
    assert compare_decisions({"one": [one], "other": [run("other", 0, weighed, chains[1])]}, "one")[0].same


def test_a_run_that_goes_on_is_compared_as_far_as_it_has_come() -> None:
    behind = replace(run("behind", 0, PLAIN[:2], scores=[0.1]), state="running")
    [found] = compare_decisions({"grpo": [run("grpo", 0, PLAIN)], "behind": [behind]}, "grpo")
    assert (found.groups, found.differing, found.same) == (2, 0, True)


def test_members_that_never_acted() -> None:
    skip = replace(group(0, "x"), outcome="skipped", k=None, n=None, reason="mine: solved")
    idle, acting = run("idle", 0, KEPT, CHAIN), replace(run("acting", 0, KEPT, CHAIN), skips=[skip])
    sized = run("sized", 0, [*KEPT, replace(KEPT[0], n=16)], CHAIN)
    assert idle_members({"idle": [idle], "acting": [acting], "sized": [sized]}) == [Idle("idle", "mine", 4)]


def test_an_arm_that_is_another_one_is_named_and_not_compared() -> None:
    better = [group(0, "e", "pros"), group(0, "f", "pros"), group(1, "g", "pros"), group(1, "h", "pros")]
    runs = [
        *(run("mine", seed, KEPT, CHAIN) for seed in (0, 1)),
        *(run("grpo", seed, PLAIN) for seed in (0, 1)),
        *(run("pros", seed, better, ("pros",), scores=[0.1, 0.3 + seed / 50]) for seed in (0, 1)),
    ]
    summary = summarize(comparison_of(runs, contrasts={"baseline": "grpo"}))
    assert [*summary.same] == ["mine"] and summary.ranks == {"pros": 1, "grpo": 2}
    assert all({row.arm for row in found.rows} == {"grpo", "pros"} for found in summary.savings)
    assert all([row.arm for row in found.contrasts] == ["pros"] for found in summary.matched)
    first, *others = conclude(summary)
    assert first.startswith("mine made the same decisions as grpo in all 8 groups")
    assert "Decisions that differ from grpo's: pros 100 %." in others
    shown = {table.title: {row[0]: row for row in table.rows} for table in tables(summary)}
    assert shown["Arms"]["mine"][1] == "-" and shown["What the rollouts gave"]["mine"][-1] == "none"


def test_two_arms_that_are_one_leave_nothing_to_rank() -> None:
    runs = [run(arm, seed, PLAIN) for arm in ("grpo", "again") for seed in (0, 1)]
    said = conclude(summarize(comparison_of(runs)))
    assert said[0].startswith("again made the same decisions as grpo") and not any("highest" in each for each in said)
