"""Small files of problems that stand for very much, and odd paths to them, end soon in one line or a sound result."""

import gzip
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import IMPORTABLE, REPOSITORY

from halfway.curriculum import Problem, Stream, UserError
from halfway.curriculum.tasks import files, reference_checks
from halfway.curriculum.tasks.files import File
from halfway.experiments.config.paths import locate, model_config
from halfway.experiments.running import validation
from halfway.trainers.model_folder import check_model_folder
from halfway.trainers.rollouts.chat import Prompts

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra propel)")

MIB = 1 << 20
LONG = "x" * (6 * MIB)
READ = """
import sys
from halfway.curriculum import Stream, UserError
from halfway.curriculum.tasks.files import File
from memory import peak_mib
for path in sys.argv[1:]:
    options = {"verifier_column": "verifier"} if "named" in path else {}
    try:
        print(path, len(File(path, on_bad_row="drop", **options).load(None, Stream(0)).problems))
    except UserError as error:
        print(error)
print(peak_mib())
"""


def texts(numbers: "np.typing.NDArray[np.int32]", *values: str) -> "pa.Array":
    """Texts of which each is stored once."""
    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(values))


def table(path: Path, prompts: "pa.Array") -> None:
    import pyarrow.parquet

    answers = texts(np.zeros(len(prompts), np.int32), "1")
    pyarrow.parquet.write_table(pa.table({"prompt": prompts, "answer": answers}), path, compression="zstd")


def zstd(path: Path, text: str) -> None:
    path.write_bytes(pa.compress(text.encode(), codec="zstd", asbytes=True))


def packed(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode(), 1))


def one_list(values: "pa.Array") -> "pa.Array":
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


SHORT_THEN_LONG = np.repeat(np.array([0, 1], np.int32), (3000, 3000))
SHORT_LINES = "".join(f'{{"prompt": "{i}", "answer": "1"}}\n' for i in range(3000))
BOMBS = {
    "later.parquet": lambda path: table(path, texts(SHORT_THEN_LONG, "x", LONG)),
    "numbers.parquet": lambda path: table(path, one_list(pa.array(np.zeros(7 * MIB, np.int8)))),
    "lists.parquet": lambda path: table(path, one_list(pa.array([[]] * (2 * MIB), pa.list_(pa.int8())))),
    "texts.parquet": lambda path: table(path, one_list(texts(np.zeros(60, np.int32), LONG))),
    "objects.json.gz": lambda path: packed(path, "[" + "{}," * (10 * MIB) + "{}]"),
    "line.jsonl.gz": lambda path: packed(path, '{"prompt": "x", "answer": "1", "c": [' + "{}," * (9 * MIB) + "{}]}\n"),
    "named.jsonl.gz": lambda path: packed(path, f'{{"prompt": "x", "answer": "1", "verifier": "{LONG * 4}"}}\n'),
    "columns.csv.gz": lambda path: packed(path, f"prompt,answer{',' * 500_000}\nx,1{',' * 500_000}\n"),
    "later.jsonl.zst": lambda path: zstd(path, SHORT_LINES + ('{"prompt": "' + LONG + '", "answer": "1"}\n') * 200),
}


def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in BOMBS]
    for path in paths:
        BOMBS[path.name](path)
        assert path.stat().st_size < 200_000
    environment = {**os.environ, "PYTHONPATH": IMPORTABLE}
    words = [sys.executable, "-c", READ, *paths]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=300)
    *said, peak = done.stdout.splitlines()
    assert done.returncode == 0 and len(said) == len(paths), done.stderr[-2000:]
    assert all(line.startswith(f"{path}:") for line, path in zip(said, paths, strict=True)), said
    assert int(peak) < 900


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "returns.csv.gz"])
def test_a_file_of_bad_rows_is_given_up(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BAD", 10_000)
    text = "1\n" * 2_000_000 if name == "rows.jsonl.gz" else "prompt,answer\r" + ",\r" * 100_000
    packed(tmp_path / name, text)
    with pytest.raises(UserError, match=r"rows?\b.*, and \d{5,6} more bad rows; no row is left") as error:
        File(str(tmp_path / name), on_bad_row="drop").load(None, Stream(0))
    assert int(str(error.value).partition(", and ")[2].split()[0]) < 1_000_000 // (1 if "jsonl" in name else 10)


def test_many_bad_rows_beside_good_ones_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BAD", 10)
    good = "".join(f'{{"prompt": "{i}", "answer": "1"}}\n' for i in range(100))
    (tmp_path / "rows.jsonl").write_text(good + "1\n" * 300)
    loaded = File(str(tmp_path / "rows.jsonl"), on_bad_row="drop").load(None, Stream(0))
    assert (len(loaded.problems), loaded.report.dropped) == (100, {"not an object": 300})
    assert len(loaded.report.examples) == 5


def test_tiny_problems_without_end_are_a_line(tmp_path: Path) -> None:
    """A million are read by default; two million cost more than a gigabyte."""
    for name in "ab":
        rows = (f'{{"prompt": "{name}{i}", "answer": "1"}}\n' for i in range(60))
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
    source = File(str(tmp_path / "*.jsonl"), max_problems=120)
    assert len(source.load(None, Stream(0)).problems) == 120 and 10**6 < File.max_problems < 2 * 10**6
    with pytest.raises(UserError, match=r"^\S+/b.jsonl: has more than 119 problems; .* max_problems if memory"):
        replace(source, max_problems=119).load(None, Stream(0))
    with pytest.raises(UserError, match=r"^file.max_problems: must be at least 1, not 0$"):
        replace(source, max_problems=0)


ROW = '{"prompt": "x", "answer": "1"}\n'


@pytest.mark.parametrize("pattern", ["**/x.jsonl", f"{'*/' * 30}x.jsonl", "", "**", "*/**/*.jsonl"])
def test_links_that_lead_in_circles_are_followed_once(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(ROW)
    for name in "abc":
        (tmp_path / name).symlink_to(".")
    assert len(File(str(tmp_path / pattern)).load(None, Stream(0)).problems) == 1


def test_folders_behind_links_are_part_of_a_pattern_and_not_of_a_folder(tmp_path: Path) -> None:
    for name in ("data", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.jsonl").write_text(ROW.replace("x", name))
    (tmp_path / "data" / "link").symlink_to(tmp_path / "elsewhere")
    numbers = [
        len(File(str(tmp_path / path)).load(None, Stream(0)).problems) for path in ("data", "data/**", "data/*/*")
    ]
    assert numbers == [1, 2, 1]


ODD = ["a\0b.jsonl", "\ud800.jsonl", "~no such user/x.jsonl", "~root\0/x.jsonl", "x" * 300, f"{'**/' * 3000}x.jsonl"]


@pytest.mark.parametrize("path", ODD)
def test_a_path_that_no_file_has_is_one_line(path: str, tmp_path: Path) -> None:
    for read in (lambda: File(path).load(None, Stream(0)), lambda: locate(path, tmp_path) and File(path).files()):
        with pytest.raises(UserError, match=r"^path '.*: .*; correct it$") as error:
            read()
        assert len(str(error.value)) < 500


@pytest.mark.parametrize("slow", [0.0, 0.2])
def test_a_file_of_answers_that_take_long_is_given_up(
    slow: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def trouble(problem: Problem) -> str:
        asked.append(problem)
        time.sleep(slow)
        return ""

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(reference_checks, "_trouble", trouble)
    monkeypatch.setattr(reference_checks, "SLOW", 0.1)
    monkeypatch.setattr(reference_checks, "PATIENCE", 0.5)
    monkeypatch.setattr(reference_checks, "PATIENCE_PER_ANSWER", 0.001)
    (tmp_path / "x.jsonl").write_text("".join(ROW.replace("x", str(i)) for i in range(2000)))
    source = File(str(tmp_path / "x.jsonl"), verifier="symbolic")
    if not slow:
        assert len(source.load(None, Stream(0)).problems) == len(asked) == 2000
        return
    with pytest.raises(UserError, match=r"x.jsonl: verifiers take more than 0.1 s for many of its answers; correct"):
        source.load(None, Stream(0))
    assert len(asked) < 200


SUMS = REPOSITORY / "experiments" / "starting_models" / "sums"
COSTLY = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
PREPENDED = {"type": "Prepend", "prepend": "a" * 10**6}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("config.json", "[" + "{}," * 700_000 + "{}]", "holds more than 2 MiB"),
        ("generation_config.json", "[" + "{}," * 700_000 + "{}]", "holds more than 2 MiB"),
        ("tokenizer_config.json", '"' + "x" * (5 << 20) + '"', "holds more than 4 MiB"),
        ("tokenizer.json", "[" + "{}," * 4_000_000 + "{}]", "holds more than 4,000,000 values"),
    ],
)
def test_a_model_described_at_length_is_one_line(name: str, value: str, words: str, tmp_path: Path) -> None:
    """transformers copies a configuration many times."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_text(f'{{"further": {value}}}')
    with pytest.raises(UserError, match=rf"^\S+/{name}: is damaged \(ValueError: {words}\); copy or download"):
        check_model_folder(tmp_path)
    if name == "config.json":
        with pytest.raises(UserError, match=words):
            model_config(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pre_tokenizer": COSTLY}, "cannot encode"),
        ({"normalizer": PREPENDED}, "replaces single characters"),
        ({"model": {"type": "none"}}, "tokenizer.json: is damaged"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "tokenizer.json: is damaged"),
    ],
)
def test_a_tokenizer_that_works_long_or_not_at_all_is_one_line(
    change: dict[str, Any], words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed (extra train)")
    content = json.loads((SUMS / "tokenizer.json").read_text()) | change
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=words) as error:
        Prompts(validation._Quick(tmp_path / "tokenizer.json")).of_problem(
            Problem("p", "a" * 60 + "!", "1", "s", "exact", {})
        )
    assert "\n" not in str(error.value)


def test_a_quick_tokenizer_neither_pads_nor_cuts_a_prompt(tmp_path: Path) -> None:
    """A run does neither, whatever the file says; 10**9 tokens of padding take 8 GiB."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed (extra train)")
    padding = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": 0}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "x"}
    cutting = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    content = json.loads((SUMS / "tokenizer.json").read_text()) | {"padding": padding, "truncation": cutting}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    prompt = Problem("p", "1+2=", "3", "s", "exact", {})
    ids = [
        Prompts(validation._Quick(folder / "tokenizer.json")).of_problem(prompt).tolist() for folder in (tmp_path, SUMS)
    ]
    assert ids[0] == ids[1] and len(ids[0]) > 2
