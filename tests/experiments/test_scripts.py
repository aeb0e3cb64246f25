"""Commands and scripts show a user's mistake in one line with status 2, and let errors of our own through."""

import errno
import subprocess
import sys
from collections.abc import Callable

import pytest

from halfway.curriculum.support.errors import UserError
from halfway.experiments.scripts import script, script_parser


def failing(error: Exception) -> Callable[[], int]:
    @script
    def main() -> int:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("seeds: none is given"), "error: seeds: none is given"),
        (
            ModuleNotFoundError("no", name="pyro.infer"),
            "error: tool: needs the package pyro; pip install 'halfway[bayes]'",
        ),
        (
            OSError(errno.ENOSPC, "No space left", "/data"),
            "error: /data: No space left; check space, rights and the path",
        ),
    ],
)
def test_a_mistake_is_one_line(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["results/tool.py"])
    monkeypatch.setattr("halfway.curriculum.support.extras.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as stopped:
        failing(error)()
    assert stopped.value.code == 2 and capsys.readouterr().err == f"{line}\n"


@pytest.mark.parametrize("error", [ValueError("ours"), ModuleNotFoundError("no", name="ours")])
def test_an_error_of_our_own_is_raised(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        failing(error)()
    assert caught.value is error


def test_a_reader_that_leaves_ends_a_script_without_a_word() -> None:
    lines = "from halfway.experiments.scripts import script; script(lambda: [print(i) for i in range(100000)])()"
    words = [sys.executable, "-c", lines]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None and started.stderr is not None
        assert started.stdout.readline() == "0\n"
        started.stdout.close()
        assert started.stderr.read() == ""
    assert started.returncode == 1


def test_a_script_that_ends_well_returns_its_value() -> None:
    @script
    def main(value: int) -> int:
        return value

    assert main(7) == 7


def test_wrong_words_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    parser = script_parser("What it does.\n\n    how to call it\n")
    parser.add_argument("--seed", type=int)
    assert "What it does.\n\n    how to call it\n" in parser.format_help()
    for words, complaint in (
        (["--seed", "x"], "argument --seed: invalid int value: 'x'"),
        (["--sede", "1"], "unrecognized arguments: --sede 1"),
    ):
        with pytest.raises(SystemExit) as stopped:
            parser.parse_args(words)
        assert stopped.value.code == 2
        assert capsys.readouterr().err == f"error: {complaint}; --help lists the options\n"
