"""The faults that `mutate_strangers` found, each as its own test."""

import base64
import json
import math
import os
import shutil
import subprocess
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hostile_pickles import RUN
from messages import says
from numpy.typing import NDArray
from strangers.files import make_harbor
from strangers.models import MODEL
from synthetic_runs import Script, write_run
from typer.testing import CliRunner

import halfway
from halfway.curriculum import Stream, UserError
from halfway.curriculum.boxes import starting_trees
from halfway.curriculum.decision_log import GroupRecord
from halfway.curriculum.repositories.harbor import HarborTasks
from halfway.curriculum.rollouts import FloatArray, IntArray
from halfway.curriculum.states import from_plain
from halfway.curriculum.support.atomic import DAMAGED, LARGEST, has_more_values, is_finite, read_json
from halfway.curriculum.support.errors import LONGEST
from halfway.curriculum.support.extras import one_line
from halfway.experiments import api
from halfway.experiments.audit.formats.trl import gaps
from halfway.experiments.audit.log_reading import read_logs
from halfway.experiments.cli import app
from halfway.experiments.report.records import read_jsonl
from halfway.experiments.running.retrace import retrace
from halfway.trainers.learner.backend import load_tensors, save_tensors
from halfway.trainers.loop.events import unpack
from halfway.trainers.loop.loop_options import FillOptions
from halfway.trainers.loop.manifest import write_manifest
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


def odd(log: Path, change: Callable[[str], str]) -> Path:
    """The folder of a run in whose log each line is changed."""
    write_run(log.parent, Script(), 0, steps=3)
    log.write_bytes(
        "".join(f"{change(line)}\n" for line in log.read_text().splitlines()).encode("utf-8", "surrogateescape")
    )
    (log.parent / "samples.jsonl").write_text(json.dumps(SAMPLE) + "\n")
    return log.parent


SAMPLE = {
    "step": 0,
    "problem": "p0",
    "visit": 1,
    "origin": "fresh",
    "k": 1,
    "n": 2,
    "prompt": "",
    "hint": "",
    "rollouts": [],
}
DECISIONS: dict[str, Callable[[str], str]] = {
    "a carriage return": lambda line: line.replace(", ", ",\r", 2),
    "a number of many digits": lambda line: f'{line[:-1]}, "further": {"9" * 5000}}}',
    "bytes that are no text": lambda line: f'{line[:-1]}, "further": "\udcff"}}',
    "no reason": lambda line: line.replace('"reason"', '"x"'),
    "no decisions": lambda line: line.replace('"decisions"', '"x"'),
    "no prefix": lambda line: line.replace('"prefix_', '"x').replace('"parent_passed": null', '"parent_passed": 1'),
    "a very large group": lambda line: line.replace('"n": 8', f'"n": {2**17 - 1}'),
    "a parent of a very large group": lambda line: line.replace(
        '"fresh", "prefix_length": 0, "prefix_unit": null, "prefix_tokens": 0, "parent_passed": null, '
        '"parent_size": null',
        f'"prefix", "prefix_tokens": 1, "parent_passed": 5, "parent_size": {2**62}',
    ),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_decisions_as_others_may_write_them_have_a_report(name: str, tmp_path: Path) -> None:
    folder = odd(tmp_path / "run" / "decisions.jsonl", DECISIONS[name])
    assert (folder / "decisions.jsonl").read_bytes().count(b"p0") and halfway.load(folder).report().exists()


def test_a_group_that_no_memory_holds_is_a_line_or_left_out(tmp_path: Path) -> None:
    folder = odd(
        tmp_path / "run" / "decisions.jsonl", lambda line: line.replace('"n": 8', f'"n": {2**30}', "p1" in line)
    )
    with pytest.raises(UserError, match=says("decisions.jsonl:33", "of 1073741824 rollouts", "fix or remove the line")):
        halfway.load(folder)
    done = CliRunner().invoke(app, ["audit", str(folder)])
    assert done.exit_code == 0 and "of 64 groups" in done.output, done.output


def test_a_run_that_lacks_lines_of_its_steps_has_a_report(tmp_path: Path) -> None:
    write_run(tmp_path / "run", Script(), 0, steps=4)
    steps = tmp_path / "run" / "steps.jsonl"
    steps.write_text("".join(steps.read_text().splitlines(keepends=True)[1:]))
    assert halfway.load(tmp_path / "run").report().exists()


def test_many_held_out_problems_cost_little_memory(tmp_path: Path) -> None:
    folder = odd(
        tmp_path / "run" / "evaluations.jsonl",
        lambda line: json.dumps({**json.loads(line), "passed": [0] * 40_000, "problems": 40_000, "samples": 1}),
    )
    tracemalloc.start()
    assert halfway.load(folder).summary.arms
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 700 << 20
    odd(folder.parent / "other" / "evaluations.jsonl", lambda line: f'{line[:-1]}, "passed": [{"0," * 60_000}0]}}')
    with pytest.raises(UserError, match=says("evaluations.jsonl:1", "length <= 50000")):
        halfway.load(folder.parent / "other")


@pytest.mark.parametrize("name", [f"seed-{10**200}"[:250], "seed--1"])
def test_a_seed_that_no_run_has_is_one_line(name: str, tmp_path: Path) -> None:
    write_run(tmp_path / "arm" / name, Script(), 0, steps=2)
    with pytest.raises(UserError, match=says("rename it seed-NUMBER")):
        halfway.load(tmp_path)


def test_a_plan_of_very_many_arms_is_one_line(tmp_path: Path) -> None:
    write_run(tmp_path / "arm" / "seed-0", Script(), 0, steps=2)
    (tmp_path / "comparison.yaml").write_text(f"arms: {{{', '.join(f'a{i}: 1' for i in range(4000))}}}\n")
    with pytest.raises(UserError, match=says("comparison.yaml", "length <= 200", "put back")):
        halfway.load(tmp_path)


def test_decisions_behind_a_link_out_of_the_folder_are_one_line(tmp_path: Path) -> None:
    write_run(tmp_path / "run", Script(), 0, steps=2)
    log = tmp_path / "run" / "decisions.jsonl"
    log.rename(tmp_path / "elsewhere.jsonl")
    log.symlink_to(tmp_path / "elsewhere.jsonl")
    with pytest.raises(UserError, match=says(tmp_path / "run", "decisions.jsonl", "put it back")):
        assert api.load(tmp_path / "run").decisions


def test_a_file_that_is_a_hole_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("{}\n" * 10)
    os.truncate(path, LARGEST)
    assert is_finite(path)
    os.truncate(path, 1 << 40)
    assert not is_finite(path)


TRAINED = {
    "learner.json": [("optimizer_steps", -1), ("optimizer_steps", {}), ("policy_version", 10**300)],
    "loop.json": [("session.controller.uniform.epoch", 10**400), ("progress.tokens", 10**30), ("progress.step", -1)],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "run.yaml").write_text(f"{RUN}output: {folder}\n")
    return halfway.run(folder / "run.yaml", quiet=True).folder


@pytest.mark.parametrize(("file", "name", "value"), [(file, *one) for file in TRAINED for one in TRAINED[file]])
def test_a_checkpoint_whose_values_no_run_has_is_one_line(
    file: str, name: str, value: object, trained: Path, tmp_path: Path
) -> None:
    """Its checksums fit: who changes a folder can write them too."""
    shutil.copytree(trained, tmp_path / "run")
    [checkpoint] = (tmp_path / "run" / "checkpoints").iterdir()
    plain = inner = json.loads((checkpoint / file).read_text())
    *parts, last = name.split(".")
    for part in parts:
        inner = inner[part]
    assert last in inner
    inner[last] = value
    (checkpoint / file).write_text(json.dumps(plain))
    write_manifest(checkpoint)
    config = (tmp_path / "run" / "config.yaml").read_text()
    (tmp_path / "run" / "config.yaml").write_text(config.replace("steps: 2", "steps: 3"))
    done = CliRunner().invoke(app, ["resume", str(tmp_path / "run")])
    assert done.exit_code == 2 and done.stderr.count("error:") == 1 and "resume" in done.stderr, done.stderr


@pytest.mark.parametrize("content", [b"\0" * (400 << 20), b"\xdd\x18\0\0\0" + b"\0" * (400 << 20)])
def test_a_group_of_an_event_log_unpacks_to_little(content: bytes) -> None:
    text = base64.b64encode(zlib.compress(content, 9)).decode()
    tracemalloc.start()
    with pytest.raises(UserError, match=says("events.jsonl", "a group is damaged")):
        unpack(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400 << 20


@dataclass
class Kept:
    tokens_T: IntArray
    rates_P: FloatArray
    known_P: NDArray[np.bool_]


ARRAYS = {"tokens_T": ("<i2", [1]), "rates_P": ("<f4", [0.5]), "known_P": ("|b1", [True])}


def kept(**changes: Any) -> Any:
    plain = {name: {"dtype": dtype, "values": values} for name, (dtype, values) in ARRAYS.items()}
    return from_plain(Kept, {name: value | changes.get(name, {}) for name, value in plain.items()})


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize(
    "dtype", ["|O", "<U100000000", "i4,i4", "<M8[s]", "<c16", "|V8", "(9,9)f8", None, [["a", "<i4"]]]
)
def test_an_array_of_another_type_is_refused(name: str, dtype: object, tmp_path: Path) -> None:
    assert kept().tokens_T.tolist() == [1] and kept(rates_P={"values": [math.nan]}).rates_P.dtype == np.float32
    with pytest.raises(DAMAGED):
        kept(**{name: {"dtype": dtype}})


def test_an_array_of_numbers_is_not_one_of_other_numbers() -> None:
    for name, dtype in (("tokens_T", "<f8"), ("tokens_T", "|b1"), ("rates_P", "<i8"), ("known_P", "<i8")):
        with pytest.raises(DAMAGED):
            kept(**{name: {"dtype": dtype}})
