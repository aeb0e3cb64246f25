"""`halfway survey`: known answers, expressions, resumption, and a file that a run reads."""

import json
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from messages import says
from paths import REPOSITORY
from rich.console import Console
from typer.testing import CliRunner

from halfway.curriculum import Group, Problem, Request, Rollout, Stream, Turn, UserError
from halfway.curriculum.rollouts import NO_TOKENS
from halfway.curriculum.tasks.files import Surveyed
from halfway.experiments.cli import app
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.starter import write_starter
from halfway.experiments.survey.findings import divide, find, holds, write_kept, zero_variance_share
from halfway.experiments.survey.sampling import RECORDS, Record, read_records, record_group, sample
from halfway.experiments.survey.survey import form_pattern, mean_rate, show_first, survey_config

SUMS = REPOSITORY / "experiments" / "recipes" / "lab" / "sums.yaml"


def record(passed: int, samples: int = 4, name: str = "p", **changes: Any) -> Record:
    values: dict[str, Any] = {"distinct": samples, "truncated": 0, "malformed": 0, "lengths": (3,) * samples}
    return Record(name, "s", {}, samples, passed, **{**values, **changes})


def test_the_share_of_zero_variance_groups_is_that_of_groups_drawn_from_the_attempts() -> None:
    zero_variance = zero_variance_share([record(0), record(2), record(4)], size=2)
    assert zero_variance.all_fail == pytest.approx((1 + 1 / 6 + 0) / 3)
    assert zero_variance.all_pass == pytest.approx((0 + 1 / 6 + 1) / 3)
    assert zero_variance.share == zero_variance.all_fail + zero_variance.all_pass


def test_findings_of_known_records() -> None:
    records = [
        record(0, distinct=1),
        record(0, distinct=3, truncated=2, malformed=1),
        record(1),
        record(4, samples=4, lost={"tool": 2}),
        record(0, samples=0, lengths=(), lost={"tool": 4}),
    ]
    findings = find(records)
    assert (findings.problems, findings.samples, findings.rate) == (4, 4, pytest.approx(5 / 16))
    assert (findings.never, findings.always, findings.middle) == (0.5, 0.25, 0.25)
    assert findings.repeated == pytest.approx(1 / 3)  # of the three problems that never or always passed
    assert findings.truncated == 2 / 16 and findings.malformed == pytest.approx(1 / 14)
    assert findings.lost == {"tool": 6}
    assert [row.size for row in findings.zero_variance] == [4]


def test_a_rate_of_attempts_that_all_ended_alike_has_a_bound_and_no_error_of_zero() -> None:
    """ln(20) / 64 = 0.0468; exactly, 64 attempts with a common rate r all fail in 5 % of cases at r = 0.0457."""
    assert mean_rate(find([record(0, samples=16)] * 4)) == "0 of 64 attempts: at most 4.68 %"
    assert mean_rate(find([record(16, samples=16)] * 4)) == "64 of 64 attempts: at least 95.32 %"
    assert mean_rate(find([record(1), record(3)])) == "0.500 +- 0.490"


def test_a_problem_of_which_few_attempts_were_judged_does_not_speak_for_the_others() -> None:
    some = [replace(record(passed, 16), source=source) for passed in (0, 8) for source in "ab" for _ in range(3)]
    findings = find([*some, replace(record(0, 1), source="c")])
    assert findings.samples == 16 and [row.size for row in findings.zero_variance] == [4, 8, 16]
    assert [(part.value, part.problems) for part in findings.parts] == [("a", 6), ("b", 6)]
    assert findings.parts[0].zero_variance == zero_variance_share(some, 8)
    alone = find([record(0, 1)])
    assert not alone.parts and not alone.zero_variance


def test_a_survey_without_a_judged_attempt_says_what_was_lost() -> None:
    with pytest.raises(UserError, match=says("judged", "tool")):
        find([record(0, samples=0, lengths=(), lost={"tool": 4})])


def test_numbers_are_cut_into_bands_and_words_are_not() -> None:
    records = [record(0, name=str(i)) for i in range(40)]
    bands = divide(records, [float(i) for i in range(40)])
    assert list(bands) == ["0 to 9.75", "9.75 to 19.5", "19.5 to 29.2", "29.2 to 39"]
    assert [len(band) for band in bands.values()] == [10, 10, 10, 10]
    assert list(divide(records, ["a", "b"] * 20)) == ["a", "b"]
    assert divide(records, [str(i) for i in range(40)]) == {}


@pytest.mark.parametrize(
    ("expression", "rates"),
    [
        ("0 < rate < 1", [0.5]),
        ("rate == 0 or rate >= 1", [0.0, 1.0]),
        ("not rate > 0.5 and samples == 4", [0.0, 0.5]),
    ],
)
def test_an_expression_keeps_what_it_says(expression: str, rates: list[float]) -> None:
    kept = [r for r in (0.0, 0.5, 1.0) if holds(expression, {"rate": r, "samples": 4})]
    assert kept == rates


@pytest.mark.parametrize(
    "expression", ["rate", "rate <", "rate < height", "__import__('os')", "rate < 1 and print(1)", "rate in (0, 1)", ""]
)
def test_an_expression_of_another_form_is_refused(expression: str) -> None:
    with pytest.raises(UserError, match=says("--keep", "rate")):
        holds(expression, {"rate": 0.0})


def test_answers_of_the_wrong_form_and_wrong_answers_are_distinguished() -> None:
    problem = Problem("p", "1+1", "2", verifier="numeric")
    form = form_pattern("", [problem])
    turn = Turn(NO_TOKENS, np.zeros(0, np.float32), np.zeros(0, np.float32), 0)
    rollouts = (Rollout((turn,), True), Rollout((turn,), False), Rollout((turn,), False), Rollout((turn,), False, True))
    found = record_group(Group(Request(problem, 4), NO_TOKENS, rollouts), ["2", "3", "two", "it is"], form)
    assert (found.malformed, found.truncated, found.distinct, found.passing, found.failing) == (1, 1, 4, "2", "3")


class Attempts:
    """A collector whose attempts at a problem pass as often as its prompt says; counts the problems it is given."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.tokenizer = SimpleNamespace(decode=lambda tokens, skip_special_tokens: " ".join(map(str, tokens)))

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        self.tried += [request.problem.id for request in requests]
        return [self._group(request) for request in requests]

    def _group(self, request: Request) -> Group:
        passed = int(request.problem.prompt)
        turns = [
            Turn(np.array([i], np.int32), np.zeros(1, np.float32), np.zeros(1, np.float32), 0)
            for i in range(request.num_rollouts)
        ]
        return Group(request, NO_TOKENS, tuple(Rollout((turn,), i < passed) for i, turn in enumerate(turns)))


def test_an_interrupted_survey_resumes_and_ends_as_if_uninterrupted(tmp_path: Path) -> None:
    problems = [Problem(f"p{i}", str(i % 5), "x") for i in range(20)]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    expected = sample(Attempts, problems, 4, whole, Stream(0))  # type: ignore[arg-type]
    lines = (whole / RECORDS).read_bytes().splitlines(keepends=True)
    (parts / RECORDS).write_bytes(b"".join(lines[:9]) + lines[9][:20])
    collector = Attempts()
    assert sample(lambda: collector, problems, 4, parts, Stream(0)) == expected  # type: ignore[arg-type, return-value]
    assert collector.tried == [problem.id for problem in problems[9:]]
    assert read_records(parts) == expected and (parts / RECORDS).read_bytes() == (whole / RECORDS).read_bytes()


def test_the_file_of_kept_problems_is_read_back_with_its_pass_rates_and_features(tmp_path: Path) -> None:
    problems = [Problem(f"p{i}", f"say {i}", "x", "s", features={"level": i}) for i in range(3)]
    path = tmp_path / "kept.jsonl"
    assert write_kept(problems, [record(0), record(2), record(4)], "rate > 0", path) == 2
    loaded = Surveyed(str(path)).load(None, Stream(0)).problems
    expected = {
        "p1": {"pass_rate": 0.5, "passed": 2, "attempts": 4, "level": 1},
        "p2": {"pass_rate": 1.0, "passed": 4, "attempts": 4, "level": 2},
    }
    assert {p.id: p.features for p in loaded} == expected
    with pytest.raises(UserError, match=says("none of 3")):
        write_kept(problems, [record(0)] * 3, "rate > 0", path)


def test_the_command_surveys_a_recipe_and_refuses_to_mix_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["survey", str(SUMS), "problems.train=12", "--samples", "4", "--output", "out", "--full"]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    assert "Of groups of 4" in first.output and "surveyed" in first.output
    values = json.loads((tmp_path / "out" / "survey.json").read_text())
    assert values["problems"] == 12 and values["samples"] == 4
    none = CliRunner().invoke(app, [*words, "--keep", "rate > 1"])
    assert none.exit_code == 2 and "Of groups of 4" in none.output and "keeps none of 12" in none.stderr
    assert "the model reads: '" in first.output
    again = CliRunner().invoke(app, words).stdout
    assert again[again.index("Groups that") :] == first.stdout[first.stdout.index("Groups that") :]
    again = CliRunner().invoke(app, [*words, "learner.lr=1e-3"])
    assert again.exit_code == 2 and "other settings" in again.stderr


def test_the_prompt_is_shown_on_one_line_in_a_narrow_terminal() -> None:
    file = StringIO()
    console = Console(width=20, file=file)
    collector: Any = SimpleNamespace(prompts=SimpleNamespace(show=lambda problem: "What is 12+34? " * 4))
    show_first(collector, Problem("p", "?", "46"), console)
    assert file.getvalue().count("\n") == 1


def test_a_survey_that_failed_before_its_first_attempt_leaves_nothing_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["survey", str(SUMS), "problems.train=12", "--problems", "2", "--samples", "2", "--output", "out"]
    failed = CliRunner().invoke(app, [*words, "model.chat=all"])
    assert failed.exit_code == 2 and "no chat template" in failed.stderr
    refused = CliRunner().invoke(app, [*words, "--keep", "rate <"])
    assert refused.exit_code == 2 and "--keep: cannot be 'rate <'; compare rate" in refused.stderr
    assert not read_records(tmp_path / "out")
    assert CliRunner().invoke(app, words).exit_code == 0


def test_a_model_and_a_file_are_taken_as_a_starter_takes_them(tmp_path: Path) -> None:
    write_starter(tmp_path / "own.yaml", "rows.jsonl", "owner/name", gpus=0, host="halfway")
    starter = load_run_config(tmp_path / "own.yaml")
    config = survey_config(["owner/name", "rows.jsonl"], 4)
    assert config.problems.source == starter.problems.source
    assert config.model.chat == starter.model.chat == "all"
    assert config.rollouts.max_response_tokens == starter.rollouts.max_response_tokens
    changed = survey_config(["owner/name", "rows.jsonl", "model.chat=messages"], 4)
    assert changed.model.chat == "messages" and changed.rollouts.num_rollouts == 4


def test_words_that_name_neither_a_recipe_nor_a_model_with_data_are_refused() -> None:
    for words in (["a", "b", "c"], ["rows.jsonl"], ["rows.jsonl", "model"]):
        done = CliRunner().invoke(app, ["survey", *words])
        assert done.exit_code == 2 and "MODEL and DATA" in done.stderr
