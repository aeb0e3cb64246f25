"""A server that answers anything: each answer is refused in one line, in time, and costs little memory."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from memory import peak_mib

from halfway.curriculum import UserError
from halfway.trainers.engines.vllm_servers.load_balancing import Client, Errand
from halfway.trainers.engines.vllm_servers.server import connection as module
from halfway.trainers.engines.vllm_servers.server.protocol import ServerError
from halfway.trainers.engines.vllm_servers.server.server import Server

SOUND = {
    "choices": [
        {
            "token_ids": [1, 2],
            "finish_reason": "stop",
            "logprobs": {"content": [{"logprob": -1.0}, {"logprob": -0.5}]},
            "weight_versions": [{"version": "run-3"}],
        }
    ]
}


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "Connection: close", "", ""]).encode() + body


def changed(**fields: Any) -> bytes:
    """A sound answer with other fields in its sequence."""
    return answer(json.dumps({"choices": [{**SOUND["choices"][0], **fields}]}).encode())


@contextmanager
def serving(content: bytes, again: bytes = b"", pause: float = 0.0) -> Iterator[Server]:
    """A server that sends `content` to everybody, and then `again` as long as anybody reads."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    def talk(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.recv(1 << 16)
            connection.sendall(content)
            while again:
                time.sleep(pause)
                connection.sendall(again)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield Server(f"127.0.0.1:{listener.getsockname()[1]}", usable=True, vocabulary=100)


def sampled(server: Server) -> str:
    """The tokens of a sequence, or why the server counts as lost."""
    client, found = Client(1, 0.3), []
    errand = Errand(0, server, np.asarray([5], np.int32), {"max_tokens": 4})
    failed = client.run([errand], "run-3", lambda _, done: found.append(done.tokens_T.tolist()))
    return str(failed.get(server) or found[0])


def test_a_sound_answer_is_accepted() -> None:
    with serving(answer(json.dumps(SOUND).encode())) as server:
        assert sampled(server) == "[1, 2]"


HOSTILE = {
    "nothing": answer(b""),
    "no HTTP": b"\x00\xff" * 100,
    "text": answer(b"hello"),
    "half of it": answer(b'{"choices": [{"token_ids"'),
    "deep lists": answer(b"[" * 100_000),
    "deep mappings": answer(b'{"a":' * 100_000),
    "a list": answer(b"[]"),
    "no choice": answer(b'{"choices": []}'),
    "two choices": answer(json.dumps({"choices": SOUND["choices"] * 2}).encode()),
    "choices that are not a list": answer(b'{"choices": {"0": 1}}'),
    "more tokens than asked for": changed(token_ids=[1] * 5, logprobs={"content": [{"logprob": -1.0}] * 5}),
    "fewer log-probabilities": changed(logprobs={"content": [{"logprob": -1.0}]}),
    "no log-probabilities": changed(logprobs=None),
    "NaN": changed(logprobs={"content": [{"logprob": float("nan")}] * 2}),
    "infinity": changed(logprobs={"content": [{"logprob": float("-inf")}] * 2}),
    "no likelihood at all": changed(logprobs={"content": [{"logprob": -1e308}] * 2}),
    "more than certain": changed(logprobs={"content": [{"logprob": 7.0}] * 2}),
    "a word as a log-probability": changed(logprobs={"content": [{"logprob": "-1"}] * 2}),
    "a token below 0": changed(token_ids=[1, -2]),
    "a token beyond the vocabulary": changed(token_ids=[1, 100]),
    "a token beyond 32 bits": changed(token_ids=[1, 2**40]),
    "a token that is half": changed(token_ids=[1, 1.5]),
    "tokens that are text": changed(token_ids="12"),
    "another end": changed(finish_reason="\x1b[2J"),
    "other weights": changed(weight_versions=[{"version": "\x1b[2Jrun-4"}]),
    "weights of no kind": changed(weight_versions=[{"version": ["run-3"]}]),
    "packed": answer(b"\x1f\x8b" + b"\0" * 100, "Content-Encoding: gzip"),
    "another place": answer(b"", "Location: http://127.0.0.1:1/", status="302 Found"),
    "a length that is too large": answer(b"{}", "Content-Length: 999999999"),
    "a length below 0": answer(b"{}", "Content-Length: -5"),
    "an error with escapes": answer(b"\x1b[2J" * 1000, status="500 Oops"),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_answer_is_a_lost_server_in_one_line(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 2)
    with serving(content) as server:
        line = sampled(server)
        assert line.startswith(server.address) and line.isprintable(), line
        assert not server.ready() and server.failure.isprintable()
        with pytest.raises(ServerError) as caught:
            server.max_length()
        assert str(caught.value).isprintable()
        with suppress(ServerError):
            server.end_update("run-3", 1.0)


@pytest.mark.parametrize("digits", [16, 400, 5000])
def test_a_version_that_no_run_has_is_a_lost_server(digits: int) -> None:
    with serving(changed(weight_versions=[{"version": f"run-{'9' * digits}"}])) as server:
        server.in_flight = True
        assert sampled(server).startswith(f"{server.address}: sampled with weights")


ENDLESS = {
    "headers": (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
    "one header": (b"HTTP/1.1 200 OK\r\nA: ", b"x" * 4096),
    "content": (answer(b'{"choices": ['), b"[[]]," * 10_000),
    "chunks": (answer(b"", "Transfer-Encoding: chunked"), b"400\r\n" + b"{" * 1024 + b"\r\n"),
    "blanks": (answer(b""), b" " * 50_000),
}


@pytest.mark.parametrize("pause", [0.0, 0.1])
@pytest.mark.parametrize(("content", "again"), ENDLESS.values(), ids=ENDLESS.keys())
def test_an_endless_answer_is_a_lost_server_in_time(
    content: bytes, again: bytes, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 3)
    monkeypatch.setattr(Server, "healthy", lambda self: True)
    monkeypatch.setattr(Server.call, "__defaults__", (None, 0.5))
    before, began = peak_mib(), time.monotonic()
    with serving(content, again, pause) as server:
        assert sampled(server).startswith(server.address)
        assert not server.ready()
    assert time.monotonic() - began < 20
    assert peak_mib() - before < 200


def test_a_server_that_refuses_controls_no_terminal() -> None:
    with serving(answer(b"\x1b[2J no", status="400 Bad")) as server, pytest.raises(UserError) as caught:
        sampled(server)
    assert str(caught.value).isprintable()
