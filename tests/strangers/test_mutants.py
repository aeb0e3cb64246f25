"""Some of the changes of `mutate_strangers`, with another seed: each ends in one line or a sound result."""

import gzip
import json
import mmap
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from paths import IMPORTABLE, REPOSITORY
from sandboxes import TROUBLE
from strangers import forks
from strangers.files import every_file
from strangers.forks import FAILED, LARGE, LATE, OTHER, RAN, REFUSED, SAME, SILENT, TRACEBACK, Case, reference, tried
from strangers.kinds import Kind
from strangers.mutations import CANARY, change_of, mutated

from halfway.curriculum import UserError

SCRIPT = REPOSITORY / "tests" / "support" / "mutate_strangers.py"


def test_changed_files_of_strangers_end_in_one_line_or_a_sound_result(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="peft is not installed (extra lora)")
    if TROUBLE:
        pytest.skip(TROUBLE)
    record = tmp_path / "record.jsonl"
    words = [sys.executable, SCRIPT, "--changes", "3", "--bits", "3", "--special", "3", "--heavy", "0.4"]
    words += ["--without", "further", "--seed", "1", "--record", record]
    environment = {**os.environ, "PYTHONPATH": IMPORTABLE, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = [json.loads(line) for line in record.read_text().splitlines()]
    assert [one for one in outcomes if one["outcome"] in FAILED] == []
    seen = {one["kind"].partition(",")[0].partition(" ")[0] for one in outcomes}
    assert seen == {
        *("recipe", "data", "survey", "survey's", "prompt", "pool", "corpus", "log", "run", "comparison"),
        *("checkpoint", "model", "model's", "adapter's", "archive", "repository", "Harbor", "response"),
        *("vLLM's", "MLflow's", "W&B's", "Trackio's"),
    }


def write(folder: Path) -> None:
    (folder / "a.json").write_text('{"a": 1}')


def turn(folder: Path) -> None:
    while True:
        pass


def leave_a_canary(folder: Path) -> None:
    Path(CANARY).touch()


def take_memory(folder: Path) -> None:
    taken = mmap.mmap(-1, 300 << 20)  # new pages, whatever the allocator has kept
    for place in range(0, len(taken), mmap.PAGESIZE):
        taken[place] = 1


def refuse(folder: Path) -> None:
    raise UserError("no")


def end(folder: Path) -> None:
    os._exit(1)


READERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "the same": (lambda folder: 1, SAME),
    "a line": (refuse, REFUSED),
    "an exception": (lambda folder: {}["a"], TRACEBACK),
    "a long time": (turn, LATE),
    "much memory": (take_memory, LARGE),
    "the end of the process": (end, LATE),
    "code that ran": (leave_a_canary, RAN),
}


def tries(kind: Kind, folder: Path, number: int = 1) -> list[dict[str, Any]]:
    specimen = folder / "specimen"
    specimen.mkdir()
    write(specimen)
    cases = [Case("x", "any", i) for i in range(number)]
    return list(tried(kind, cases, specimen, reference(Kind(write, lambda _: 1), specimen), 0))


def outcomes(kind: Kind, folder: Path, number: int = 1) -> list[str]:
    return [one["outcome"] for one in tries(kind, folder, number)]


def fork_mib(folder: Path) -> int:
    """The peak of a fork that reads next to nothing. It lacks the file pages of its parent, whose size says little."""
    folder.mkdir()
    return tries(Kind(write, lambda _: 1), folder)[0]["mib"]


@pytest.mark.parametrize("reader", READERS)
def test_the_ways_to_end_are_distinguished(reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "SECONDS", 1)
    monkeypatch.setattr(forks, "MEBIBYTES", fork_mib(tmp_path / "least") + 150)
    read, wanted = READERS[reader]
    assert outcomes(Kind(write, read), tmp_path, 2) == [wanted] * 2


@pytest.mark.parametrize(("sealed", "wanted"), [(True, SILENT), (False, OTHER)])
def test_another_result_of_a_file_with_a_hash_is_a_failure(
    sealed: bool, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "MEBIBYTES", fork_mib(tmp_path / "least") + 150)
    kind = Kind(write, lambda folder: (folder / "a.json").read_bytes(), sealed=sealed)
    assert outcomes(kind, tmp_path) == [wanted]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.yaml", "a.json", "a.jsonl.gz", "a.bin"])
def test_changes_follow_from_their_seed(name: str) -> None:
    text = b'{"a": [1, 2], "b": "x"}\n' * 4
    content = gzip.compress(text) if name.endswith(".gz") else text
    found = [mutated(name, content, Random(i % 50)) for i in range(100)]
    assert found[:50] == found[50:] and len(set(found)) > 25
    assert Counter(one == content for one in found)[True] < 20 and change_of(name)


def test_every_file_of_a_specimen_is_changed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").touch()
    assert every_file(tmp_path) == [tmp_path / "a" / "b"]
