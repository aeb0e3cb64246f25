"""For any content of a file of a run, a study or a survey, its reader gives a result, or one line with its name."""

import gzip
import json
import math
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from messages import says
from propel_study import tiny

from halfway.curriculum import UserError
from halfway.curriculum.support.atomic import LONGEST_LINE, MOST_VALUES
from halfway.experiments.comparing.tuning import area_under_curve
from halfway.experiments.config.paths import model_config
from halfway.experiments.output_flags import as_json
from halfway.experiments.propel import stages
from halfway.experiments.propel.study_summary import summarize_study, write_summary
from halfway.experiments.report.analysis.sweeps import read_tuning
from halfway.experiments.report.provenance import read_provenance as report_provenance
from halfway.experiments.report.records import (
    EvaluationRecord,
    StepRecord,
    load_comparison_records,
    load_run_records,
    read_jsonl,
)
from halfway.experiments.reproduction.run_curves import LARGEST, read_curves
from halfway.experiments.results.when_does_it_pay.verdict_numbers import read_verdict
from halfway.experiments.running.retrace import read_events
from halfway.experiments.running.runs import RecordForwarder
from halfway.experiments.survey.sampling import read_records
from halfway.experiments.survey.survey import prepare_folder
from halfway.trainers.loop.loop_options import Budget
from halfway.trainers.loop.samples import Samples
from halfway.trainers.propel.guessed_problems import read_provenance
from halfway.trainers.propel.probes.sweep import read_cells

DEEP = b"[" * 100_000
TEXTS = [
    b"",
    b"{",
    b"[]",
    b"4",
    b"null",
    b'{"chosen": 1}',
    b'[{"step": 0}]',
    DEEP,
    b"\xff\xfe{",
    b'"\\ud800"',
    b"1" * 5000,
]


def study(folder: Path) -> Any:
    arm = SimpleNamespace(training=SimpleNamespace(steps=4))
    return SimpleNamespace(folder=folder, arm_folder=lambda name: folder, config=SimpleNamespace(arm=lambda name: arm))


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a curve of a study": (
        "sums/seed-0/evaluations/base.curve.json",
        lambda folder: summarize_study(with_an_evaluation(folder)),
    ),
    "an evaluation of a study": ("sums/seed-0/evaluations/base.json", lambda folder: summarize_study(tiny(folder))),
    "the sweep in a summary": ("sums/seed-0/sweep.json", lambda folder: write_summary(tiny(folder))),
    "the command in a report": ("provenance.json", report_provenance),
    "the configuration of a run": ("config.yaml", lambda folder: load_run_records(begun(folder))),
    "the configuration of a run elsewhere": ("hosted.json", lambda folder: load_run_records(begun(folder))),
    "the tuning of a comparison": ("tuning.json", read_tuning),
    "the verdict of a page": ("verdict.json", lambda folder: read_verdict(folder / "verdict.json")),
    "the curves of a page": ("curves.jsonl.gz", lambda folder: read_curves(folder / "curves.jsonl.gz")),
    "the choice of a checkpoint": ("choice.json", lambda folder: stages.load_author(study(folder), "probe")),
    "the oracles of an arm": ("choice.json", lambda folder: stages._offline_oracles(study(folder), "probe")),
    "the chosen probe": ("sweep.json", lambda folder: stages.chosen_cell(study(folder))),
    "the sweep that has ended": ("sweep.json", lambda folder: stages.read_sweep(study(folder))),
    "the training that has ended": ("choice.json", lambda folder: stages.run_training(study(folder), "probe")),
    "the steps of an arm": ("steps.jsonl", lambda folder: stages._online(study(folder), "probe", "x")),
    "the cells of a sweep": ("cells.jsonl", read_cells),
    "a pool of problems": ("pool.parquet", lambda folder: read_provenance(folder / "pool.parquet")),
    "a curve of tuning": ("evaluations.jsonl", lambda folder: area_under_curve(folder, Budget(rollouts=8))),
    "the events of a run": ("events.jsonl", lambda folder: list(read_events(folder / "events.jsonl"))),
    "the steps of a run": ("steps.jsonl", lambda folder: read_jsonl(folder / "steps.jsonl", StepRecord)),
    "the evaluations of a run": (
        "evaluations.jsonl",
        lambda folder: read_jsonl(folder / "evaluations.jsonl", EvaluationRecord),
    ),
    "records that are forwarded": ("steps.jsonl", lambda it: RecordForwarder(it, [])._new_records("steps.jsonl")),
    "the settings of a survey": ("settings.json", lambda folder: prepare_folder({"samples": 4}, folder)),
    "the records of a survey": ("records.jsonl", read_records),
    "the config of a model": ("config.json", lambda folder: model_config(str(folder))),
}


def begun(folder: Path) -> Path:
    (folder / "steps.jsonl").touch()
    return folder


def with_an_evaluation(folder: Path) -> Any:
    """A study whose base generator has been judged, as far as a summary reads it."""
    names = ("utility", "valid", "too_easy", "too_hard", "self_bleu_3", "block_self_bleu_3", "distinct_3", "top_topic")
    whole = dict.fromkeys((*names, "offline_trials", "online_trials", "step", "generations"), 0.5)
    file = folder / "sums/seed-0/evaluations/base.json"
    file.write_text(json.dumps(whole | {"solve_counts": [1] * 5, "features": {}, "generations": 9}))
    return tiny(folder)


@pytest.mark.parametrize("reader", READERS)
def test_a_damaged_file_ends_in_one_line_or_a_result(reader: str, tmp_path: Path) -> None:
    name, read = READERS[reader]
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    random, refused = Random(reader), set[bytes]()
    mixed = [bytes(random.choice(random.choice(TEXTS[:-2]) or b"\n") for _ in range(30)) for _ in range(20)]
    for text in (*TEXTS, *mixed):
        file.write_bytes(text + b"\n")
        try:
            read(tmp_path)
        except UserError as error:
            line = str(error)
            assert (
                str(file) in line.replace(f"{tmp_path}: holds a survey", str(file))
                and "\n" not in line
                and len(line) < 1000
            ), line
            refused.add(text)
    assert {b"{", DEEP, b"\xff\xfe{"} <= refused


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_or_a_device_in_place_of_a_file_is_one_line(reader: str, tmp_path: Path) -> None:
    name, read = READERS[reader]
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    for plant in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        file.unlink(missing_ok=True)
        plant(file)
        with in_time(), pytest.raises(UserError, match=r"\A[^\n]*: is not a regular file; [^\n]*\Z"):
            read(tmp_path)


MANY, LONG = (b"{}," * (MOST_VALUES + 2) + b"{}", b" " * (LONGEST_LINE + 2))
HEAVY = {"many values": b'{"a": [' + MANY + b"]}\n", "a long line": b'{"a": "' + LONG + b'"}\n'}


@pytest.mark.parametrize("reader", [name for name, (file, _) in READERS.items() if file.endswith((".json", ".jsonl"))])
@pytest.mark.parametrize("content", HEAVY)
def test_a_file_that_would_fill_the_memory_is_not_decoded(reader: str, content: str, tmp_path: Path) -> None:
    name, read = READERS[reader]
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(HEAVY[content])
    with pytest.raises(UserError, match=r"(holds|has) more than [\d,]+ (values|[KM]iB)"):
        read(tmp_path)


def test_packed_curves_that_would_fill_the_memory_are_not_decoded(tmp_path: Path) -> None:
    file = tmp_path / "curves.jsonl.gz"
    for content in (b" " * (LARGEST + 1), b"{}," * LARGEST):
        file.write_bytes(gzip.compress(content, 1))
        with pytest.raises(UserError, match=says(file, "holds more than 64 MiB")):
            read_curves(file)


def test_samples_of_a_resumed_run_bound_the_lines_that_they_count(tmp_path: Path) -> None:
    file = tmp_path / "decisions.jsonl"
    file.write_bytes(b"{}\n" + HEAVY["many values"])
    with pytest.raises(UserError, match=says(f"{file}:2", "holds more than 2,000,000 values")):
        list(Samples(["a"], str, file)._logged())


def test_a_pipe_anywhere_in_a_run_is_one_line(tmp_path: Path) -> None:
    (begun(tmp_path) / "checkpoints").mkdir()
    os.mkfifo(tmp_path / "checkpoints" / "loop.json")
    with in_time(), pytest.raises(UserError, match=r"loop.json: is not a regular file; remove it"):
        load_run_records(tmp_path)


@contextmanager
def in_time() -> Iterator[None]:
    """A scope that fails after five seconds, as an open of a pipe would wait for ever."""

    def fail(*_: object) -> None:
        raise AssertionError("waited for five seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(5)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


SCORES = dict.fromkeys(("balanced_accuracy", "ece", "auc", "f1", "spearman"), 0.5)
CELL = {"layer": 1, "pooling": "mean", "head": "linear", "balance": "weighted", "test": SCORES, "rvp": 0.1}
LOOKUP = {"feature": "length", "test": SCORES, "probe_gain": 0.1, "probe_gain_interval": [0, 1]}
SWEEP = {
    "chosen": {**CELL, "test_interval": [0, 1]},
    "permuted": [0.5],
    "surface": [LOOKUP],
    "costs": {"trials": 5},
}


@pytest.mark.parametrize(("part", "name"), [("", key) for key in SWEEP] + [("chosen", key) for key in SWEEP["chosen"]])
def test_a_sweep_that_lacks_a_key_of_the_tables_is_one_line(part: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "sums/seed-0/sweep.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(SWEEP))
    table = write_summary(tiny(tmp_path)).read_text()
    assert "| 0 | 1 | mean | linear | weighted | 0.500 [0.000, 1.000] |" in table and "| 0 | 5 |" in table
    for odd in (None, "x", [[]]):
        changed = json.loads(json.dumps(SWEEP))
        (changed[part] if part else changed)[name] = odd
        if odd is None:
            (changed[part] if part else changed).pop(name)
        file.write_text(json.dumps(changed))
        if odd == "x" and name in ("pooling", "head", "balance"):
            continue
        with pytest.raises(UserError, match=says(file, "damaged", name, "remove it")):
            write_summary(tiny(tmp_path))


@pytest.mark.parametrize(
    "field", ["seed: [1]", "seed: abc", "budget: {steps: x}", "budget: 3", "arms: 3", "instances: 3", "targets: 3"]
)
def test_a_field_of_another_type_is_one_line(field: str, tmp_path: Path) -> None:
    file = begun(tmp_path) / "config.yaml"
    file.write_text(f"{field}\n")
    with pytest.raises(UserError, match=says(file, "damaged", field.partition(":")[0], "put back")):
        load_run_records(tmp_path)


STEP = {"step": 0, "rollouts": 8, "tokens": 9, "seconds": 1.0}
EVALUATION = {**STEP, "pass_at_1": 0.5, "stderr": 0.1, "samples": 2, "passed": [1]}


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        *((StepRecord, name, value) for name in STEP for value in (-1, 10**99)),
        *((EvaluationRecord, name, -1) for name in (*STEP, "pass_at_1", "stderr")),
        *((EvaluationRecord, "pass_at_1", value) for value in (1.5, math.nan, 10**400)),
        (EvaluationRecord, "passed", [3]),
    ],
)
def test_numbers_that_no_run_has_are_one_line(kind: Any, field: str, value: Any, tmp_path: Path) -> None:
    file, whole = tmp_path / "records.jsonl", STEP if kind is StepRecord else EVALUATION
    file.write_text(json.dumps(whole) + "\n")
    assert len(read_jsonl(file, kind)[0]) == 1
    file.write_text(json.dumps({**whole, field: value}) + "\n")
    with pytest.raises(UserError, match=says(f"{file}:1", "fix or remove")):
        read_jsonl(file, kind)


def test_names_in_records_cannot_control_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    odd = {**EVALUATION, "strata": {"\x1b[2J\x9b": {"problems": 1, "passed": 1}}}
    file.write_text(json.dumps(odd) + "\n")
    [[record], _] = read_jsonl(file, EvaluationRecord)
    assert all(name.isprintable() for name in record.strata) and len(record.strata) == 1


def test_json_on_stdout_cannot_control_a_terminal() -> None:
    odd = {"name": "\x1b[2J \x9b2J \u202e \U000e0001 \xe9 \U0001f600"}
    text = as_json(odd)
    assert json.loads(text) == odd and text.replace("\n", "").isprintable() and "\xe9 \U0001f600" in text


def test_a_folder_of_runs_that_names_no_seed_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "grpo" / "seed-x"
    folder.mkdir(parents=True)
    begun(folder)
    with pytest.raises(UserError, match=says(folder, "'x'", "rename it seed-NUMBER")):
        load_comparison_records(tmp_path)
