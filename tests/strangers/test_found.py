"""The faults that `mutate_strangers` found, each as its own test."""

import json
import os
import shutil
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from messages import says
from strangers.files import make_harbor
from strangers.models import MODEL
from synthetic_runs import Script, write_run

import halfway
from halfway.curriculum import Stream, UserError
from halfway.curriculum.boxes import starting_trees
from halfway.curriculum.decision_log import GroupRecord
from halfway.curriculum.repositories.harbor import HarborTasks
from halfway.curriculum.support.atomic import has_more_values, read_json
from halfway.curriculum.support.errors import LONGEST
from halfway.curriculum.support.extras import one_line
from halfway.experiments import api
from halfway.experiments.audit.formats.trl import gaps
from halfway.experiments.audit.reading import read_logs
from halfway.experiments.report.records import read_jsonl
from halfway.experiments.running.retrace import retrace
from halfway.trainers.learner.backend import load_tensors, save_tensors
from halfway.trainers.loop.loop_options import FillOptions
from halfway.trainers.model_folder import check_model_folder
from halfway.trainers.policy import ModelOptions, load_policy


def test_a_message_is_one_line_of_a_bounded_length() -> None:
    line = str(UserError(f"arms: {'x' * 10**6}\r\ncannot be read; remove it"))
    assert len(line) <= LONGEST and line.startswith("arms: xx") and line.endswith("xx cannot be read; remove it")
    assert str(UserError("a: 1\u2028is bad; b")) == "a: 1 is bad; b" and str(UserError("a;  b")) == "a;  b"


def test_a_long_value_is_shown_without_copies_of_all_of_it() -> None:
    text = "a\x1b\n" * 10**7
    tracemalloc.start()
    shown = [one_line(value) for value in (text, text.encode(), ValueError(text))]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert {len(line) for line in shown} == {160} and all(line.isprintable() for line in shown) and peak < 10**8
    assert one_line("a b") == "'a b'" and one_line([1, "x" * 200]).endswith("xxx...")


def test_gaps_of_enormous_steps_cost_nothing() -> None:
    assert gaps([0, 2**40, 2**41]) != [] and gaps([1, 2, 3]) == []
    assert gaps([1, 2, 2**40]) == [f"{2**40 - 3} steps between the tables are missing"]
    assert "2 steps apart" in gaps([0, 2, 4, 7])[0]


@pytest.mark.parametrize("reward", [10**400, -(10**400), 1e308])
def test_a_reward_without_a_float_is_left_out_and_counted(reward: float, tmp_path: Path) -> None:
    row = {"gen_step": "1", "prompt": ["p"] * 4, "completion": list("abcd"), "advantages": [1.0, -1.0, 1.0, -1.0]}
    lines = [{**row, "reward": [1.0, 0.0, 1.0, 0.0]}, {**row, "gen_step": "2", "reward": [1.0, 0.0, 1.0, reward]}]
    (tmp_path / "completions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    [log] = read_logs([tmp_path])
    assert log.history.num_rollouts == 7 and sum(log.reading.dropped.values()) == 1


DEEP: dict[str, Callable[[Path], object]] = {
    "a run": halfway.load,
    "a model": check_model_folder,
    "a log": lambda folder: read_logs([folder]),
    "a task of Harbor": lambda folder: HarborTasks(str(folder)).load(None, Stream(0)),
    "a work tree": lambda folder: starting_trees.store(str(folder), folder / "cache", 0),
}


@pytest.mark.parametrize("name", DEEP)
def test_folders_that_are_nested_too_deep_are_one_line(name: str, tmp_path: Path) -> None:
    """Python's own functions for folders call themselves for each level."""
    place = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    try:
        with pytest.raises(UserError, match=says("more than 100 folders within each other", "remove")):
            DEEP[name](tmp_path)
    finally:
        subprocess.run(["rm", "-r", tmp_path / "d"], check=True)


def test_a_task_of_harbor_that_is_nested_too_deep_is_counted(tmp_path: Path) -> None:
    make_harbor(tmp_path)
    (tmp_path / "one" / "task.toml").write_text("a = " + "[" * 5000)
    report = HarborTasks(str(tmp_path)).load(None, Stream(0)).report
    assert (report.kept, report.dropped) == (1, {"task.toml cannot be read": 1})


@pytest.mark.parametrize("content", [b"", b"PK", b"x" * 100])
def test_damaged_tensors_are_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "optimizer.pt"
    path.write_bytes(content)
    with pytest.raises((UserError, EOFError)):
        load_tensors(path)
    save_tensors({"a": torch.ones(3)}, path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(UserError, match=says(path, "is damaged", "another checkpoint")):
        load_tensors(path)


def test_a_tokenizer_with_an_odd_setting_is_one_line(tmp_path: Path) -> None:
    shutil.copytree(MODEL, tmp_path, dirs_exist_ok=True)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": "x"}))
    with pytest.raises(UserError, match=says("model.path", str(tmp_path), "TypeError")):
        load_policy(ModelOptions(path=str(tmp_path)), str(tmp_path))


def test_records_hold_nothing_that_acts_on_a_terminal(tmp_path: Path) -> None:
    write_run(tmp_path / "run", Script(), 0, steps=2)
    file, sound = tmp_path / "run" / "decisions.jsonl", "\U0001f600é\\u001b\n\t"
    named = ["\ud800é\x1b[2J\x9b\x7f\b", sound, "\\\x1b"]
    record = json.loads(file.read_text().splitlines()[0])
    lines = [json.dumps({**record, "problem": name}) for name in named]
    lines.append(json.dumps({**record, "problem": sound}, ensure_ascii=False))
    file.write_text("".join(f"{line}\n" for line in lines))
    odd = "\N{REPLACEMENT CHARACTER}"
    found = [row.problem for row in read_jsonl(file, GroupRecord)[0]]
    assert found == [f"{odd}é{odd}[2J{odd}{odd}{odd}", sound, f"\\{odd}", sound]


@pytest.mark.parametrize(
    "event",
    [
        {"event": "done"},
        {"event": "weights"},
        {"event": "draw", "tickets": [7]},
        {"event": "draw", "tickets": None},
        {"event": "measured", "passed": 1},
    ],
)
def test_an_event_without_its_parts_is_one_line(event: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(
        json.dumps(event) + "\n" + json.dumps({"event": "weights", "version": 1}) + "\n"
    )
    session: Any = SimpleNamespace(problems=[], controller=SimpleNamespace(needs={"measured"}))
    with pytest.raises(UserError, match=says(tmp_path / "events.jsonl", "is damaged", "put the whole file back")):
        retrace(tmp_path, session, FillOptions(), 1, 0)


@pytest.mark.parametrize(("content", "kept"), [(None, 0), ("", 0), ("[[[[", 0), ('{"step": 3, "prob', 0), ("all", 1)])
def test_the_table_of_decisions_holds_whole_lines_only(content: str | None, kept: int, tmp_path: Path) -> None:
    """A log that is missing gives no rows; a last line that is cut off adds none."""
    write_run(tmp_path / "run", Script(), 0, steps=2)
    log = tmp_path / "run" / "decisions.jsonl"
    whole, columns = log.read_text(), api.load(tmp_path / "run").decisions.columns
    log.unlink()
    if content is not None:
        log.write_text(f'{whole}{{"step": 3, "prob' if content == "all" else content)
    found = api.load(tmp_path / "run").decisions
    assert len(found.fetchall()) == kept * whole.count("\n")
    assert {"arm", "seed", "step", "problem", "k", "n"} <= {*found.columns} & {*columns}


WEIGHTS = {
    "a long text": '"' + "x" * (33 << 20) + '"',
    "many values": "[" + "{}," * 3_000_000 + "{}]",
    "many texts": "[" + '"",' * 3_000_000 + '""]',
}


@pytest.mark.parametrize("name", ["decisions", "steps", "evaluations", "samples"])
@pytest.mark.parametrize("weight", WEIGHTS)
def test_a_record_that_would_fill_the_memory_is_one_line(name: str, weight: str, tmp_path: Path) -> None:
    """Also in a field that no record has, and in a last line that is cut off."""
    write_run(tmp_path / "run", Script(), 0, steps=2)
    log = tmp_path / "run" / f"{name}.jsonl"
    for end in ("\n", ""):
        log.write_text(f'{{"step": 0, "further": {WEIGHTS[weight]}}}{end}')
        with pytest.raises(UserError, match=says(f"{log}:1", "holds more than", "remove it")):
            trained = api.load(tmp_path / "run")
            assert trained.texts and trained.decisions


def test_a_decision_of_many_megabytes_is_read(tmp_path: Path) -> None:
    write_run(tmp_path / "run", Script(), 0, steps=2)
    log = tmp_path / "run" / "decisions.jsonl"
    whole = log.read_text()
    log.write_text(whole.replace("{", f'{{"further": "{"x" * (20 << 20)}", ', 1))
    assert len(api.load(tmp_path / "run").decisions.fetchall()) == whole.count("\n")


def test_marks_within_texts_are_no_values() -> None:
    assert not has_more_values(b'["' + rb",[{\"" * 1000 + b'"]', 10)
    assert has_more_values(b"[" + b'"",' * 10 + b'""]', 10) and not has_more_values(b"[" + b'"",' * 8 + b'""]', 10)


@pytest.mark.parametrize("name", ["status.json", "provenance.json"])
def test_a_file_of_very_many_values_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("[" + "{}," * 3_000_000 + "{}]")
    with pytest.raises(UserError, match=says(tmp_path / name, "holds more than 2,000,000 values")):
        read_json(tmp_path / name)
