"""Ports of this host."""

import socket
import subprocess
import sys

import pytest

from halfway.trainers.distributed.ports import free_port

CLAIMING = "import sys; from halfway.trainers.distributed.ports import free_port; print(free_port(), flush=True)"


def test_two_processes_are_never_given_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens on it until what was started there is up, so the system would hand it out again."""
    words = [sys.executable, "-c", f"{CLAIMING}; sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        named = socket.socket.getsockname
        given = iter([theirs])
        monkeypatch.setattr(
            socket.socket, "getsockname", lambda self: ("127.0.0.1", next(given, None) or named(self)[1])
        )
        assert free_port() != theirs
        other.communicate("")
    given = iter([theirs])
    assert free_port() == theirs  # it has ended
