"""The pages about hosts: their examples run as they stand, only shorter."""

import asyncio
import dataclasses
import json
import re
from functools import reduce
from importlib.metadata import version
from importlib.util import find_spec
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import PAGES, REPOSITORY, example
from typer.testing import CliRunner

from halfway.controllers import CONTROLLERS
from halfway.curriculum import Problem, ProblemSet
from halfway.curriculum.controller import NEEDS
from halfway.experiments.catalogue import SETTINGS, explain
from halfway.experiments.cli import app
from halfway.trainers.hosts.verl.steering import PROVIDES


def shortened(code: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    return code


@pytest.mark.parametrize("page", ["trl.md", "verl.md"])
def test_a_page_names_every_member_that_its_host_refuses(page: str) -> None:
    """Both hosts give a chain the same. A data set may have solutions."""
    told = (PAGES / page).read_text().partition("## What does not work")[2].partition("\n## ")[0]
    lacking = NEEDS.keys() - PROVIDES - {"solutions"}
    refused = [name for name in CONTROLLERS.names() if lacking & CONTROLLERS.get(name)().needs]
    assert "ngu" in refused and not [name for name in refused if f"`{name}`" not in told]


def test_the_example_of_the_page_about_trl_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trl")
    code = shortened(
        example("trl.md"),
        ('"runs/trl"', f"{str(tmp_path)!r}, bf16=False, report_to=[]"),
        ("not torch.cuda.is_available()", "True"),
        ("max_steps=20", "max_steps=2"),
    )
    monkeypatch.chdir(REPOSITORY)
    exec(compile(code, "trl.md", "exec"), {})
    assert len((tmp_path / "halfway" / "steps.jsonl").read_text().splitlines()) == 2


def test_the_example_of_the_front_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trl")
    code = shortened(
        example("../../README.md", heading="Steer TRL"),
        ('"runs/trl"', f"{str(tmp_path)!r}, bf16=False, report_to=[], use_cpu=True"),
        ('"Qwen/Qwen3-0.6B-Base"', '"experiments/starting_models/sums"'),
        ("max_steps=200", "max_steps=2"),
        ('f"{a} + {b} ="', 'f"{a}+{b}="'),  # the lab's vocabulary has no spaces
    )
    monkeypatch.chdir(REPOSITORY)
    exec(compile(code, "README.md", "exec"), {})
    assert len((tmp_path / "halfway" / "steps.jsonl").read_text().splitlines()) == 2


def test_the_tutorial_about_trl_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its chain, the lab's model and rows, for two steps; the reward tells right from wrong."""
    pytest.importorskip("trl")
    page = (PAGES.parent / "tutorials" / "trl.md").read_text()
    [make_rows, code], [row] = (
        re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL) for language in ("python", "json")
    )
    code = shortened(
        code,
        ("path/to/model", str(REPOSITORY / "experiments/starting_models/sums")),
        ("max_steps=30", "max_steps=2, bf16=False"),
    )
    monkeypatch.chdir(tmp_path)
    exec(compile(make_rows, "trl.md", "exec"), {})
    assert Path("train.jsonl").read_text().splitlines()[0] == row.strip()
    assert CliRunner().invoke(app, ["init", "chain.yaml", "--host", "trl"]).exit_code == 0
    scope: dict[str, Any] = {}
    exec(compile(code, "trl.md", "exec"), scope)
    assert scope["correct"](["a4b7", "a4b8", "-"], ["b7", "b7", "b7"]) == [1.0, 0.0, 0.0]
    assert len(Path("runs/trl/halfway/steps.jsonl").read_text().splitlines()) == 2


def test_the_example_of_the_page_about_trinity_runs(tmp_path: Path) -> None:
    """The page's settings, read as Trinity reads a file of settings, with a task set of its own."""
    pytest.importorskip("trinity")
    import yaml
    from trinity.buffer.operators import EXPERIENCE_OPERATORS
    from trinity.buffer.task_scheduler import get_taskset_scheduler
    from trinity.common.config import load_config

    code = shortened(example("trinity.md", "yaml"), ("folder: runs/halfway", f"folder: {tmp_path}/halfway"))
    code = shortened(code, ("chain: chain.yaml", f"chain: {tmp_path}/chain.yaml"))
    (tmp_path / "chain.yaml").write_text("controllers: [uniform, greso]\n")
    rows = "".join(json.dumps({"question": f"q{i}", "answer": "1"}) + "\n" for i in range(24))
    (tmp_path / "train.jsonl").write_text(rows)
    given = yaml.safe_load(code)
    [taskset] = given["buffer"]["explorer_input"]["tasksets"]
    taskset |= {"name": "t", "path": str(tmp_path), "split": "train", "repeat_times": 8, "total_epochs": 9}
    given["buffer"] |= {"batch_size": 4, "total_steps": 9, "total_epochs": 9}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(given))
    config: Any = load_config(str(tmp_path / "config.yaml"))
    [read] = config.buffer.explorer_input.tasksets
    read.format.prompt_key, read.format.response_key = "question", "answer"
    read.default_workflow_type, read.batch_size = "math_workflow", 4
    tasks = asyncio.run(get_taskset_scheduler({}, config).read())
    assert len(tasks) == 4 and (tmp_path / "halfway" / "hosted.json").exists()
    [operator] = config.data_processor.experience_pipeline.operators
    assert EXPERIENCE_OPERATORS.get(operator.name) is not None


def test_the_example_of_the_page_about_tinker_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tinker_cookbook")
    code = shortened(example("tinker.md"), ("runs/halfway", str(tmp_path)))
    monkeypatch.chdir(REPOSITORY)
    scope: dict[str, Any] = {"rows": [{"prompt": f"{i}+1="} for i in range(64)], "builder_of": lambda row: row}
    exec(compile(code, "tinker.md", "exec"), scope)
    builders = scope["dataset"].get_batch(0)
    assert len(builders) == 32 and {builder.inner["prompt"] for builder in builders} <= {
        row["prompt"] for row in scope["rows"]
    }


def test_the_example_of_the_page_about_other_trainers_runs() -> None:
    """The session's life, with a trainer that loses some groups."""
    code = shortened(example("others.md"), ('"chain.yaml"', '["uniform", "greso"]'))
    asks, gives = code.split("session.record_counts", 1)
    problems = ProblemSet([Problem(str(i), f"{i}+1=", "") for i in range(200)])
    scope: dict[str, Any] = {"problems": problems}
    exec(compile(asks, "others.md", "exec"), scope)
    [counts, lost, *after] = ("session.record_counts" + gives).splitlines()
    for i, ticket in enumerate(scope["tickets"]):
        exec(lost if i % 4 == 0 else counts, scope | {"ticket": ticket})
    exec("\n".join(after), scope)
    assert scope["session"].step == 1 and scope["state"]["step"] == 1 and not scope["session"].tickets_in_flight()


def test_every_page_is_in_the_table() -> None:
    table = (PAGES / "README.md").read_text()
    assert all(f"({page.name})" in table for page in PAGES.glob("*.md") if page.name != "README.md")


def test_the_rows_and_the_reward_of_the_tutorial_about_verl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    page = (PAGES.parent / "tutorials" / "verl.md").read_text()
    makes, scores = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [row] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("train.jsonl").write_text(row * 20)
    exec(compile(makes, "verl.md", "exec"), {})
    [first, *_] = made = datasets.Dataset.from_parquet("train.parquet", cache_dir=str(tmp_path))
    assert len(made) == 12 and first["prompt"] == [{"content": json.loads(row)["prompt"], "role": "user"}]
    scope: dict[str, Any] = {}
    exec(compile(scores, "verl.md", "exec"), scope)
    truth = first["reward_model"]["ground_truth"]
    assert [scope["compute_score"]("mine", said, truth)["acc"] for said in ("i10", "i11", "")] == [1.0, 0.0, 0.0]


def test_the_settings_of_the_tutorial_about_verl_exist() -> None:
    page = (PAGES.parent / "tutorials" / "verl.md").read_text()
    command = page.split("    python -m verl")[1].split("\n\n")[0]
    named = re.findall(r"([a-z]\w*(?:\.\w+)+)=", command)
    names = [name for name in named if not name.startswith(("data.halfway", "hydra"))]
    assert len(names) == 10
    for name in names:
        verl_setting(name)


# docs/coming_from.md: each setting exists, with the default that the page gives.


def settings(column: int) -> dict[str, str]:
    """The settings of a column of the page: "name" -> "default"."""
    page = (PAGES.parent / "coming_from.md").read_text()
    rows = [line.split(" | ")[column] for line in page.splitlines() if line.startswith("| ")][1:]
    return dict(re.findall(r"`([\w.]+)=(\S+)`", " ".join(rows)))


def test_the_settings_of_halfway_that_a_newcomer_is_shown_exist() -> None:
    listed = {part: {option.text for option in explain(part)["settings"][0].options} for part in SETTINGS}
    shown = settings(1)
    assert len(shown) > 17
    for name, default in shown.items():
        part, _, field = name.partition(".")
        options = {single for text in listed[part] for single in text.split(", ")}
        assert f"{field}={default}" in options, name


def test_the_settings_of_trl_that_a_newcomer_is_shown_exist() -> None:
    trl = pytest.importorskip("trl")
    if version("trl") != "1.16.0":
        pytest.skip("the page has the defaults of 1.16")
    fields, shown = {field.name: field.default for field in dataclasses.fields(trl.GRPOConfig)}, settings(2)
    assert len(shown) > 15 and {name: str(fields[name]) for name in shown} == shown


def test_the_settings_of_verl_that_a_newcomer_is_shown_exist() -> None:
    shown = settings(3)
    assert len(shown) > 15
    for name, default in shown.items():
        short = name.partition(".")[0] in ("actor", "rollout")
        value = verl_setting(f"actor_rollout_ref.{name}" if short else name)
        assert str(value) == default or float(value) == float(default), name  # 1e-6 is 1e-06


def verl_setting(name: str) -> Any:
    """A default of verl's, by the file of all its settings, without the rest of verl."""
    found = find_spec("verl")
    if found is None or found.origin is None:
        pytest.skip("verl is not installed")
    [file] = Path(found.origin).parent.glob("trainer/config/_generated_ppo_trainer.yaml")
    return reduce(getitem, name.split("."), yaml.safe_load(file.read_text()))
