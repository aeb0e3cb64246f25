"""Ports of this host."""

import subprocess
import sys
from pathlib import Path

import pytest

from halfway.trainers.distributed import ports

CLAIMING = "import sys; from halfway.trainers.distributed.ports import free_port; print(free_port(), flush=True)"


def test_two_processes_are_never_given_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens on it until what was started there is up, so it would be handed out again."""
    words = [sys.executable, "-c", f"{CLAIMING}; sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        monkeypatch.setattr(ports, "_listening_ports", lambda: [theirs, theirs, theirs + 1])
        assert {ports.free_port()} == {theirs + 1}
        other.communicate("")
    monkeypatch.setattr(ports, "_listening_ports", lambda: [theirs])
    assert ports.free_port() == theirs  # it has ended


def test_no_connection_takes_the_port_before_its_server_listens() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    found = {ports.free_port() for _ in range(50)}
    assert len(found) == 50 and not found & set(range(low, high + 1))


@pytest.mark.parametrize(("kept", "expected"), [("1024\t65535\n", {0}), ("9000\t60000\n", set(range(60001, 65536)))])
def test_few_ports_that_no_connection_takes(monkeypatch: pytest.MonkeyPatch, kept: str, expected: set[int]) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self: kept)
    assert set(ports._listening_ports()) == expected
    assert ports.free_port() > 0
