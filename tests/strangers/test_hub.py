"""Data sets of the hub whose README is hostile: one line or rows of the data set, in time, and nothing runs."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from memory import peak_mib
from strangers.mutations import SPECIAL

from halfway.curriculum import Stream, UserError
from halfway.curriculum.tasks.hub import Hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROW = '{"prompt": "1+1?", "answer": "2"}\n'
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9))
MERGED = "m0: &m0 {x: 1, y: 2}\n" + "".join(
    f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 10)}]}}\n" for i in range(1, 9)
)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Hub]:
    """Puts a data set with this README into a local cache, beside a file that is none of it; there is no network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)

    def keep(readme: str) -> Hub:
        folder = tmp_path / "hub" / "datasets--a--b"
        inside = folder / "snapshots" / COMMIT
        for path, text in {
            inside / "README.md": readme,
            inside / "data" / "train.jsonl": ROW,
            inside / "b.py": f"open({str(tmp_path / 'ran')!r}, 'w')",
            folder / "refs" / "main": COMMIT,
            tmp_path / "secret.jsonl": ROW.replace("1+1", "secret"),
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for i in range(8):
            (inside / "data" / "/".join("abcdefgh"[: i + 1])).mkdir(exist_ok=True)
        return Hub("a/b")

    return keep


@pytest.mark.parametrize("special", SPECIAL)
def test_a_cache_whose_version_has_no_end_is_one_line(special: str, hub: Callable[[str], Hub], tmp_path: Path) -> None:
    """The client would wait for a pipe, and read a device until the memory is full."""
    source, ref = hub(head("data/*")), tmp_path / "hub" / "datasets--a--b" / "refs" / "main"
    ref.unlink()
    SPECIAL[special](ref)
    with pytest.raises(UserError, match=r"\A[^\n]*refs/main[^\n]*; (remove it|check hub.name and the network)\Z"):
        source.load(None, Stream(0))


@pytest.mark.parametrize("special", [name for name in SPECIAL if name != "a folder"])
def test_a_token_without_end_is_one_line(
    special: str, hub: Callable[[str], Hub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    SPECIAL[special](tmp_path / "token")
    with pytest.raises(UserError, match=r"\A[^\n]*/token: [^\n]*; remove it\Z"):
        hub(head("data/*")).load(None, Stream(0))


def head(data_files: str, more: str = "") -> str:
    return f"---\nconfigs:\n- config_name: default\n  data_files: {data_files}\n{more}---\n# B\n"


HOSTILE = {
    "another folder": head("../../../../../secret.jsonl"),
    "another folder, by a folder": head('"*.jsonl"', "  data_dir: ../../../../..\n"),
    "another folder, in the middle": head("data/../../../../../../secret.jsonl"),
    "an absolute path": head("/etc/passwd.jsonl"),
    "an absolute folder": head("passwd", "  data_dir: /etc\n"),
    "a home folder": head("~/secret.jsonl"),
    "a variable": head('"${HOME}/secret.jsonl"'),
    "an address": head("http://127.0.0.1:1/secret.jsonl"),
    "a data set elsewhere": head("hf://datasets/c/d/secret.jsonl"),
    "all folders, many times": head('"' + "**/" * 40 + '*.jsonl"'),
    "all folders, many times, apart": head('"' + "**/a*/" * 20 + '*.jsonl"'),
    "stars": head('"' + "*a" * 60 + '.jsonl"'),
    "brackets": head('"[' + "a-z" * 900 + '.jsonl"'),
    "braces": head('"{data,../../..}/*.jsonl"'),
    "a null byte": head('"data/\\0train.jsonl"'),
    "half a character": head('"data/\\uD800.jsonl"'),
    "a long name": head("x" * 5000 + ".jsonl"),
    "a device": head("/dev/zero"),
    "no name": head('""'),
    "a number": head("7"),
    "lists in lists": head("[[[data/train.jsonl]]]"),
    "mappings": head("{a: {b: c}}"),
    "splits that are lists": head("[{split: [train], path: data/train.jsonl}, {split: {a: 1}, path: 7}]"),
    "a text of aliases": BOMB.join(
        ("---\n", "configs: [{config_name: *a8, data_files: [{split: *a8, path: *a8}]}]\n---\n")
    ),
    "merged mappings": f"---\n{MERGED}configs: []\n---\n",
    "many values": "---\nx: [" + "1, " * 300_000 + "1]\nconfigs: []\n---\n",
    "deep lists": "---\nconfigs: " + "[" * 100_000 + "\n---\n",
    "an object": head("!!python/object/apply:os.system [touch ran]"),
    "a name of Python": head("!!python/name:os.system"),
    "a number of many digits": f"---\nconfigs: [{{config_name: {'9' * 5000}}}]\n---\n",
    "a date that is none": "---\nconfigs: [{config_name: 2020-99-99}]\n---\n",
    "escapes": head('"\\e[2J.jsonl"'),
    "no YAML": "---\n{\n---\n",
    "configurations that are a text": "---\nconfigs: data\n---\n",
    "a list": "---\n- a\n---\n",
    "a key that is a list": "---\n? [a]\n: b\nconfigs: []\n---\n",
    "no end": "---\nconfigs: []\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_readme_is_one_line_or_rows_of_its_data_set(
    name: str, hub: Callable[[str], Hub], tmp_path: Path
) -> None:
    source, began, before = hub(HOSTILE[name]), time.process_time(), peak_mib()
    try:
        prompts = [problem.prompt for problem in source.load(None, Stream(0)).problems]
    except UserError as error:
        assert "\n" not in str(error)
        prompts = []
    assert prompts in ([], ["1+1?"])
    assert not (tmp_path / "ran").exists()
    assert time.process_time() - began < 10 and peak_mib() - before < 300


def test_a_sound_readme_is_read(hub: Callable[[str], Hub]) -> None:
    for stated in ("data/train.jsonl", '"data/**/*.jsonl"', "[{split: train, path: data/*}]", '"**/train*"'):
        assert [problem.prompt for problem in hub(head(stated)).load(None, Stream(0)).problems] == ["1+1?"]
