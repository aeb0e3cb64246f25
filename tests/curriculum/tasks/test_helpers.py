"""Processes that judge: they are replaced, limited in time and memory, and what none can judge is counted."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from halfway.curriculum.problems import Problem
from halfway.curriculum.tasks import helpers
from halfway.curriculum.tasks.answers import SYMBOLIC_TIMEOUT
from halfway.curriculum.tasks.helpers import Helpers, Unjudged, take_counts
from halfway.curriculum.tasks.verifiers import verify, verify_all

HALF = Problem("p", "?", r"\frac{1}{2}", "test", "symbolic")
HOSTILE = (
    *("[" * 50_000, "\\boxed{" * 3000, r"\boxed{9^{9^{9^{9}}}}", r"$10^{10^{10}}!$", "\x00\ud800" * 99, "$" * 9999),
    *(r"\boxed{\frac{1}{0}}", "=" * 10_000, r"$\int" * 500 + "$", "1" * 100_000, r"\boxed{__import__('os').abort()}"),
)


@pytest.fixture(autouse=True)
def counts_of_this_test_only() -> Iterator[None]:
    take_counts()
    yield
    take_counts()


@pytest.fixture(scope="module")
def two() -> Helpers:
    return Helpers(2, memory_mib=256)


def test_values_come_in_order_and_unreadable_references_are_refused(two: Helpers) -> None:
    assert two.map("builtins:len", [["a" * n] for n in range(9)], 60) == list(range(9))
    with pytest.raises(ValueError, match="invalid literal"):
        two.map("builtins:int", [["1"], ["x"]], 60)


def test_a_verdict_comes_from_a_replaced_process_after_it_was_killed() -> None:
    """As by a kernel short of memory."""
    assert verify(HALF, "it is $0.5$")
    for process in children():
        os.kill(process, signal.SIGKILL)
    assert verify_all([HALF] * 6, ["it is $0.5$", "it is $0.4$"] * 3) == [True, False] * 3
    assert take_counts() == {}


def children() -> list[int]:
    """Processes of helpers that this process has started."""
    found = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "helper_process"], capture_output=True, text=True)
    return [int(number) for number in found.stdout.split()]


def test_what_ends_its_process_twice_is_counted_and_disturbs_nothing_else(two: Helpers) -> None:
    assert two.map("os:_exit", [[1]], 60) == [Unjudged("died")]
    assert two.map("builtins:len", [["ab"]], 60) == [2]
    assert take_counts() == {"died": 1}


def test_memory_is_limited(two: Helpers) -> None:
    assert two.map("operator:mul", [["x", 2**32], ["x", 2**10]], 60) == [Unjudged("died"), "x" * 2**10]


def test_what_takes_too_long_is_ended_and_counted_apart(two: Helpers) -> None:
    two.map("builtins:len", [["a"]] * 4, 60)  # both run
    began = time.monotonic()
    assert two.map("time:sleep", [[600]], 0.2) == [Unjudged("time")]
    assert time.monotonic() - began < 60 and take_counts() == {"time": 1}


def test_what_a_reader_does_not_survive_has_failed(two: Helpers) -> None:
    assert two.map("operator:truediv", [[1, 0], [4, 2]], 60) == [Unjudged("raised"), 2.0]
    assert take_counts() == {"raised": 1}


def test_several_work_at_once(two: Helpers) -> None:
    assert len(set(two.map("os:getpid", [[]] * 400, 60))) == 2 <= helpers.PROCESSES


def test_no_text_finds_a_secret_in_a_helper(two: Helpers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert Helpers(1).map("os:getenv", [["HF_TOKEN"]], 60) == [None]


def test_a_helper_ends_with_a_killed_parent() -> None:
    program = (
        "import os, signal\n"
        "from halfway.curriculum.tasks.helpers import Helpers\n"
        "print(Helpers(1).map('os:getpid', [[]], 60)[0], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while Path(f"/proc/{killed.stdout.strip()}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_scripts_without_a_guard_may_judge(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from halfway.curriculum.problems import Problem\n"
        "from halfway.curriculum.tasks.verifiers import verify\n"
        "print(verify(Problem('p', '?', '1/2', '', 'symbolic'), '$0.5$'))\n"
    )
    assert subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120).stdout == "True\n"


def test_hostile_answers_end_in_a_verdict_or_are_counted() -> None:
    began = time.monotonic()
    wanted = [f"{text} so $0.5$" if i % 2 else text for i, text in enumerate(HOSTILE)]
    verdicts = verify_all([HALF] * (len(wanted) + 1), [*wanted, "it is $0.5$"])
    assert verdicts[-1] and not any(verdicts[: len(HOSTILE) : 2])
    assert time.monotonic() - began < 8 * SYMBOLIC_TIMEOUT * len(HOSTILE)
    assert set(take_counts()) <= {"time", "died"}


def test_a_reply_is_json_and_never_an_object() -> None:
    """A process that a text has taken over could otherwise run code on this side."""
    [reply] = Helpers(1).map("json:loads", [[json.dumps({"value": ["a", {"b": None}]})]], 60)
    assert reply == {"value": ["a", {"b": None}]}
