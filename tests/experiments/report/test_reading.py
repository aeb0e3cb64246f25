"""The words of a report, the arms that it marks as informed, and its texts of a problem."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from contests import comparison_of, contest, run_of
from synthetic_runs import decision, step_record, write_records

from halfway.experiments.report.analysis.arm_summary import extra_information
from halfway.experiments.report.analysis.comparison_summary import summarize
from halfway.experiments.report.conclusions import conclude
from halfway.experiments.report.figures.groups import problem_map
from halfway.experiments.report.problems import ends, problem_rows, problem_views, three, visits_of
from halfway.experiments.report.records import load_comparison_records, outcome_rollouts


def test_the_verdict_names_the_highest_what_is_clear_and_what_it_saves() -> None:
    rng = np.random.default_rng(0)
    summary = summarize(contest(rng, {"grpo": 0.3, "up": 1.5, "same": 0.3}, contrasts={"baseline": "grpo"}))
    said = conclude(summary)
    assert ", up is highest with " in said[0] and said[0].startswith("Where every run has spent ")
    assert said[1].startswith("up minus grpo: +") and said[1].endswith(", significant.")
    assert not any("same minus" in sentence for sentence in said)
    saving = re.compile(r"up reaches grpo's final score with \d+ % \[\d+, \d+\] fewer rollouts \(significant\)")
    assert any(saving.match(sentence) for sentence in said)


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ([[0.1, 0.3], [0.1, 0.31]], "No difference is significant after Holm's adjustment over the one pair of arms"),
        ([[0.1, 0.3]], "One seed shows no spread over seeds, so no difference can be significant."),
    ],
)
def test_the_verdict_says_when_nothing_is_clear(scores: list[list[float]], sentence: str) -> None:
    runs = [run_of(arm, seed, scores=each) for arm in ("a", "b") for seed, each in enumerate(scores)]
    assert any(said.startswith(sentence) for said in conclude(summarize(comparison_of(runs))))


def test_a_planned_contrast_that_has_not_begun_is_not_called_a_lack_of_seeds() -> None:
    runs = [run_of(arm, seed, scores=[0.1, 0.3 + seed / 100]) for arm in ("a", "b") for seed in range(4)]
    said = conclude(summarize(comparison_of(runs, arms={arm: {} for arm in "abc"}, contrasts=[["c", "a"]])))
    assert "No planned contrast has runs of both its arms yet." in said and not any("One seed" in each for each in said)


def test_few_seeds_are_shown_as_runs_with_the_number_of_seeds_that_is_needed() -> None:
    ends = {"a": (0.3, 0.9), "b": (0.9, 0.35)}
    runs = [run_of(arm, seed, scores=[0.1, end]) for arm, found in ends.items() for seed, end in enumerate(found)]
    first, *others = conclude(summarize(comparison_of(runs)))
    assert "0.600 (0.300, 0.900)" in first and "[" not in first
    words = ("2 seeds show little", "more than 1,000 seeds")
    assert any(all(word in each for word in words) for each in others), "they differ by .025"
    near = {"a": (0.40, 0.46), "b": (0.48, 0.56)}
    runs = [run_of(arm, seed, scores=[0.1, end]) for arm, found in near.items() for seed, end in enumerate(found)]
    assert any("(+0.090) needs about 6 seeds" in each for each in conclude(summarize(comparison_of(runs))))


def test_a_single_arm_and_no_evaluations_have_a_verdict_too() -> None:
    [said] = conclude(summarize(comparison_of([run_of("a", 0, scores=[0.1, 0.3])])))
    assert said == "a goes from 0.100 to 0.300: +0.200."
    [said] = conclude(summarize(comparison_of([run_of("a", 0, scores=[0.1])])))
    assert said.startswith("No run has been evaluated twice")


def test_extra_information_of_arms() -> None:
    def config(*controllers: object, **problems: object) -> dict[str, object]:
        return {
            "name": "x",
            "controllers": list(controllers),
            "problems": {"source": "running_sums", "train": 8, **problems},
            "budget": {"steps": 1},
        }

    assert extra_information(config("uniform", "greso")) == ""
    assert extra_information(config("uniform", "hints")) == "reference solutions"
    assert extra_information(config("bots")) == "strong_rate, weak_rate"
    pool = {"generated": {"pool": {"path": "pool.parquet"}}}
    assert (
        extra_information(config("probe", "pros", "greso", **pool))
        == "further problems and guesses of their pass rates"
    )
    assert extra_information(config("uniform", also="running_sums", also_train=4)) == "further problems"
    assert extra_information({"seed": 1}) == ""


def test_stored_groups_are_no_rollouts(tmp_path: Path) -> None:
    groups = [decision(k=4), decision(1, k=3, origin="stored"), decision(1, k=0, outcome="zero_variance")]
    write_records(tmp_path, groups, [step_record(), step_record(1, 128)], [])
    (run,) = load_comparison_records(tmp_path).all_runs
    assert outcome_rollouts(run.groups) == {"trained": 8, "zero_variance": 8, "lost": 0}


def test_a_problem_has_all_its_decisions_and_three_of_its_texts(tmp_path: Path) -> None:
    lines = [
        decision(0, k=3, problem="p"),
        decision(1, k=None, n=None, outcome="skipped", problem="p"),
        decision(2, k=5, origin="prefix", parent_passed=3, problem="p"),
        decision(2, k=5, problem="q says p"),
    ]
    write_records(tmp_path, lines, [step_record(i) for i in range(3)], [])
    sample = {"problem": "p", "origin": "fresh", "k": 3, "n": 8, "prompt": "do a bit", "hint": "a b"}
    sample["rollouts"] = [{"passed": True, "truncated": False, "turns": [{"replayed": "x", "text": "y"}]}]
    kept = [json.dumps({**sample, "step": visit, "visit": visit}) for visit in (1, 2, 3, 4, 6)]
    (tmp_path / "samples.jsonl").write_text("".join(f"{line}\n" for line in kept))
    comparison = load_comparison_records(tmp_path)
    [view] = problem_views(comparison)
    [arm] = view["arms"]
    assert (view["name"], arm["counts"]) == ("p", ["3 of 8", "5 of 8"])
    assert [visit["step"] for visit in arm["visits"]] == [0, 1, 2]
    assert arm["visits"][0]["decisions"] == "uniform: added"
    assert (arm["visits"][1]["outcome"], arm["visits"][1]["decisions"]) == ("skipped", "greso: easy streak of 2")
    assert arm["visits"][2]["start"] == "prefix, 10 tokens of 3 of 8"
    assert [text.visit for text in arm["texts"]] == [1, 3, 6]
    assert arm["texts"][0].prompt_parts == [("do ", False), ("a b", True), ("it", False)]
    assert (three([]), ends(range(9), 4), ends("ab", 4)) == ([], [0, 1, 7, 8], ["a", "b"])
    assert visits_of(comparison.all_runs[0], ["absent"]) == {"absent": []}


def test_the_map_holds_a_problems_last_count_until_its_next_visit(tmp_path: Path) -> None:
    groups = [decision(0, k=8, problem="easy"), decision(1, k=0, problem="hard"), decision(2, k=4, problem="easy")]
    write_records(tmp_path, groups, [step_record(i) for i in range(4)], [])
    chart = problem_map(load_comparison_records(tmp_path))
    assert chart is not None
    shown = [(row["problem"], row["passed"], row["step"], row["end"]) for row in chart.rows]
    assert shown == [("easy", "8 of 8", 0, 2), ("hard", "0 of 8", 1, 4), ("easy", "4 of 8", 2, 4)]
    assert chart.spec["spec"]["layer"][0]["encoding"]["y"]["sort"] == ["hard", "easy"]


def test_a_problem_has_a_row_with_its_counts_and_what_they_cost(tmp_path: Path) -> None:
    groups = [
        decision(0, k=8, problem="p", outcome="zero_variance"),
        decision(1, k=3, problem="p"),
        decision(2, k=None, n=None, outcome="skipped", problem="p"),
    ]
    write_records(tmp_path, groups, [step_record(i) for i in range(3)], [])
    [row] = problem_rows(load_comparison_records(tmp_path), ["p"])
    assert (row["counts"], row["visits"], row["untrained"], row["passed"]) == (["8 3"], 2, 8, "0.69")
    assert list(row["fates"].values()) == [["trained", "zero-variance"]] and row["place"] == 1
