"""Halfway in Python: the same runs as from the command line, in this process, and tables of them."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from messages import says
from paths import REPOSITORY
from synthetic_runs import ARMS, write_comparison

import halfway
from halfway.curriculum import UserError, decision_log
from halfway.experiments.outcomes import COLUMNS

TINY: dict[str, Any] = {
    "base": "experiments/recipes/lab/sums.yaml",
    "problems": {"train": 16},
    "fill": {"groups": 2},
    "rollouts": {"num_rollouts": 2, "max_response_tokens": 8},
    "evaluation": {"points": 0, "problems": 0},
    "tracking": {"mlflow": False},
    "threads": 1,
}


@pytest.fixture
def no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, where starting a program would fail."""

    def refuse(*words: object, **_: object) -> None:
        raise AssertionError(f"started {words}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    return tmp_path


def test_a_run_from_a_dictionary_trains_here_and_is_loaded_the_second_time(no_process: Path) -> None:
    config = {**TINY, "budget": {"steps": 2}}
    result = halfway.run(config, "name=mine", quiet=True)
    assert result.folder == Path("runs/mine") and result.records.all_runs[0].finished
    assert result.groups.aggregate("count(*), sum(n)").fetchall() == [(4, 8)]
    assert {origin for (origin,) in result.decisions.project("origin").fetchall()} == {"fresh"}
    kept = [json.loads(line) for line in (result.folder / "samples.jsonl").open()]
    texts = [(rollout["turns"][0]["text"], rollout["passed"]) for each in kept for rollout in each["rollouts"]]
    assert texts and result.texts.project("response, passed").fetchall() == texts
    before = (result.folder / "decisions.jsonl").read_bytes()
    again = halfway.run(config, "name=mine", quiet=True)
    assert repr(again) == "<runs/mine: 1 arms, 1 of 1 runs finished>"
    assert (again.folder / "decisions.jsonl").read_bytes() == before
    with pytest.raises(UserError, match=r"learner: unknown|learner\.lrr"):
        halfway.run(config, "learner.lrr=1")


def test_a_comparison_trains_here_one_run_after_the_other(no_process: Path) -> None:
    arms: dict[str, Any] = {"a": {}, "b": {"learner": {"lr": 1e-3}}}
    source = {"base": TINY, "name": "two", "arms": arms, "seeds": [0], "budget": {"steps": 1}}
    result = halfway.compare(source, quiet=True)
    assert list(result.records.runs) == ["a", "b"]
    found = result.groups.aggregate("arm, seed, count(*)", "arm, seed").order("arm").fetchall()
    assert found == [("a", 0, 2), ("b", 0, 2)]
    more = halfway.compare(source, seeds=[0, 1], arms=["b"], quiet=True)
    assert [(run.arm, run.seed) for run in more.records.all_runs] == [("a", 0), ("b", 0), ("b", 1)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("written")
    write_comparison(directory, {arm: ARMS[arm] for arm in ("grpo", "greso")}, steps=6)
    return directory


def test_tables_are_the_records_and_become_frames(written: Path) -> None:
    result = halfway.load(written)
    runs = result.records.all_runs
    curves = result.curves.df()
    assert list(curves["pass_at_1"]) == [one.pass_at_1 for run in runs for one in run.evaluations]
    assert result.groups.arrow().read_all().num_rows == sum(group.scored for run in runs for group in run.groups)
    assert len(result.decisions.fetchall()) >= len(result.groups.fetchall())
    problems = result.problems.filter("arm = 'grpo' AND problem = 'p0' AND seed = 0").df()
    fresh = [each for each in runs[0].groups if each.problem == "p0" and each.origin == "fresh" and each.scored]
    [row] = problems.to_dict("records")
    assert (row["groups"], row["passed"]) == (len(fresh), sum(each.k or 0 for each in fresh))
    assert row["zero_variance"] == sum(each.zero_variance for each in fresh)


def test_decisions_have_the_documented_fields_whatever_a_row_has(written: Path, tmp_path: Path) -> None:
    documented = re.findall(r"(?m)^\| ([a-z_, ]+) \| .+ \| .+ \|$", decision_log.__doc__ or "")
    names = {name for row in documented for name in row.split(", ")} - {"field"}
    assert {*COLUMNS} == names and halfway.load(written).decisions.columns == ["arm", "seed", *COLUMNS]
    write_comparison(tmp_path, {"grpo": ARMS["grpo"]}, seeds=(0,), steps=2)
    [run] = halfway.load(tmp_path).records.all_runs
    log = run.folder / "decisions.jsonl"
    [first, *others] = map(json.loads, log.read_text().splitlines())
    crowded = {**first, "reason": "crowded", "dropped": {"late": 1}, **{f"x{i}": i for i in range(200_000)}}
    log.write_text("".join(f"{json.dumps(row)}\n" for row in (first, crowded, *others)) + '{"step": 3, "pro')
    begun = time.process_time()
    found = halfway.load(tmp_path).decisions
    assert found.project("reason, dropped").fetchall()[1] == ("crowded", {"late": 1})
    assert len(found.fetchall()) == len(others) + 2
    assert time.process_time() - begun < 10, "it took minutes where each of the row's fields became a column"


def test_whatever_a_policy_wrote_is_in_the_table_of_texts(tmp_path: Path) -> None:
    write_comparison(tmp_path, {"grpo": ARMS["grpo"]}, seeds=(0,), steps=2)
    [run] = halfway.load(tmp_path).records.all_runs
    turns = [{"replayed": "a", "text": "\ud800\x00<b>", "observation": "c"}, {"replayed": "", "text": "d"}]
    sample = {"step": 0, "problem": "p0", "visit": 1, "origin": "fresh", "k": 0, "n": 1, "prompt": "\udfff", "hint": ""}
    rollouts = [{"passed": False, "truncated": True, "turns": turns}]
    (run.folder / "samples.jsonl").write_text(json.dumps({**sample, "rollouts": rollouts}) + "\n")
    found = halfway.load(tmp_path).texts.project("problem, prompt, response, passed").fetchall()
    assert found == [("p0", "\ufffd", "a\ufffd\ufffd<b>cd", False)]


def test_a_run_is_drawn_and_shown_in_a_notebook(written: Path) -> None:
    result = halfway.load(written)
    for name in ("curves", "pass_counts"):
        assert result.plot(name)._repr_svg_().startswith("<svg"), "shown although nothing imported pyplot"
        assert repr(result.plot(name)).startswith("Chart(") and len(repr(result.plot(name))) < 200
    with pytest.raises(UserError, match=says("'curves'")):
        result.plot("curve")
    assert "<td>grpo</td>" in result._repr_html_() and "2 arms" in repr(result)
    assert result.report() == written / "report.html"


def test_markup_in_a_log_reaches_a_notebook_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    rows = [f'{{"problem": "<b>p{i // 8}</b>", "step": {i // 4}, "reward": {int(i > 20)}}}\n' for i in range(32)]
    (tmp_path / "log.jsonl").write_text("".join(rows))
    result = halfway.audit(tmp_path / "log.jsonl")
    assert result.groups.aggregate("count(*), sum(k), sum(n)").fetchall() == [(8, 11, 32)]
    assert result.problems.project("passed").fetchall() == [(0,), (0,), (3,), (8,)]
    assert "of 8 groups had zero variance" in repr(result) and "Zero-variance groups over time" in result._repr_html_()
    assert "<b>" not in result._repr_html_()


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says("no run")):
        halfway.load(tmp_path)


def test_the_package_alone_is_imported_at_once() -> None:
    code = "import sys, halfway; dir(halfway); print(len([name for name in sys.modules if name.startswith('halfway')]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n", "nothing but the package itself"
