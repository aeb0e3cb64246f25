"""Nobody without the token of a run is answered by its servers."""

import asyncio
import json
import socket
import sys
import threading
import time
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest
from messages import says

from halfway.curriculum import UserError
from halfway.trainers.engines.vllm_servers import auth
from halfway.trainers.engines.vllm_servers.auth import FILE_VARIABLE, VARIABLE, Guard, given_token, headers, new_token
from halfway.trainers.engines.vllm_servers.server.connection import Connection
from halfway.trainers.engines.vllm_servers.server.server import Server
from halfway.trainers.engines.vllm_servers.start import token_of_servers

TOKEN = "0123456789abcdef"


@pytest.fixture(autouse=True)
def _without_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv(FILE_VARIABLE, raising=False)


async def told(guard: Guard, sent: list[dict[str, Any]], scope: dict[str, Any], *parts: bytes) -> None:
    """Send the guard a request whose body comes in parts, and then its sender's farewell."""
    messages: list[Any] = [{"type": "http.request", "body": part, "more_body": True} for part in parts[:-1]]
    messages += [{"type": "http.request", "body": part} for part in parts[-1:]] + [{"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await guard({"headers": [], **scope}, receive, send)


def guarded() -> tuple[Guard, list[list[Any]]]:
    """A guard, and what the application behind it received."""
    reached: list[list[Any]] = []

    async def app(scope: Any, receive: Any, _: Any) -> None:
        reached.append([] if scope["type"] == "lifespan" else [await receive(), await receive()])

    return Guard(app), reached


def answers(scope: dict[str, Any], *parts: bytes) -> tuple[bool, list[dict[str, Any]]]:
    """Whether the application behind a new guard was reached, and what the guard itself sent."""
    guard, reached = guarded()
    sent: list[dict[str, Any]] = []
    asyncio.run(told(guard, sent, scope, *(parts or (b"",))))
    return bool(reached), sent


ADDRESS, ROUTE = "127.0.0.1:8000", "/pause"
HTTP = {"type": "http", "method": "POST", "path": ROUTE, "query_string": b"", "server": ("127.0.0.1", 8000)}


def signed(
    token: str = TOKEN, method: str = "POST", address: str = ADDRESS, path: str = ROUTE, body: bytes = b""
) -> list[Any]:
    """The headers of a request, as ASGI has them."""
    named = headers(token, method, address, path, body)
    return [(name.lower().encode(), value.encode()) for name, value in named.items()]


def changed(place: int, word: str) -> list[Any]:
    """Headers with another time (0), nonce (1), digest (2) or signature (3) than what was signed."""
    host, (name, value) = signed()
    words = value.decode().split(" ")
    return [host, (name, " ".join([*words[:place], word, *words[place + 1 :]]).encode())]


HOST, SIGNATURE = signed()


@pytest.mark.parametrize(
    "said",
    [
        [],
        [HOST],
        [SIGNATURE],
        [HOST, (b"authorization", b"")],
        [HOST, (b"authorization", TOKEN.encode())],
        [HOST, (b"authorization", b"Bearer " + TOKEN.encode())],
        [HOST, (b"authorization", SIGNATURE[1][:-1])],
        [HOST, (b"authorization", SIGNATURE[1].rpartition(b" ")[2])],
        [HOST, (b"authorization", SIGNATURE[1].partition(b" ")[2])],
        [HOST, (b"authorization", b"0 " + SIGNATURE[1])],
        [HOST, (b"authorization", b"\xff\xfe")],
        [HOST, (b"x-token", SIGNATURE[1])],
        [HOST, (b"authorization", b"x"), SIGNATURE],
        [HOST, HOST, SIGNATURE],
        [(b"host", b"localhost:8000"), SIGNATURE],
        signed(token=TOKEN[:-1] + "x"),
        signed(method="GET"),
        signed(path="/health"),
        signed(body=b"{}"),
        signed(address="127.0.0.1:8001"),  # passed on by a server at that port
        changed(0, f"{time.time() + 1:.6f}"),
        changed(0, "nan"),
        changed(1, "another"),
        changed(2, sha256(b"{}").hexdigest()),
        changed(3, 64 * "0"),
    ],
)
def test_a_request_that_is_not_signed_for_this_server_is_refused(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    reached, sent = answers({**HTTP, "headers": said})
    assert not reached and sent[0]["status"] == 401


def test_a_channel_whose_messages_nobody_signs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    channel = {"type": "websocket", "path": ROUTE, "server": HTTP["server"], "headers": signed(method="GET")}
    assert answers(channel) == (False, [{"type": "websocket.close", "code": 1008}])


def test_a_signed_request_and_the_servers_own_messages_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    assert answers({**HTTP, "headers": signed()}) == (True, [])
    assert answers({**HTTP, "headers": signed(path="/pause?mode=keep"), "query_string": b"mode=keep"}) == (True, [])
    assert answers({**HTTP, "headers": signed(), "query_string": b"mode=keep"})[0] is False
    assert answers({**HTTP, "headers": signed(), "server": None})[0] is False
    assert answers({"type": "lifespan"}) == (True, [])


def test_the_application_gets_the_signed_body_and_what_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    guard, reached = guarded()
    asyncio.run(told(guard, [], {**HTTP, "headers": signed(body=b'{"a": 1}')}, b'{"a"', b": 1}"))
    assert reached == [[{"type": "http.request", "body": b'{"a": 1}'}, {"type": "http.disconnect"}]]


@pytest.mark.parametrize("parts", [[b'{"a": 2}'], [b'{"a": 1} '], [b'{"a": 1}', b" "], [b""], []])
def test_a_relay_cannot_change_the_body_of_a_request(parts: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener at 127.0.0.1:8000 was asked, and sends what it got to the server 10.0.0.5:8000."""
    monkeypatch.setenv(VARIABLE, TOKEN)
    guard, reached = guarded()
    sent: list[dict[str, Any]] = []
    there = {**HTTP, "server": ("10.0.0.5", 8000), "headers": signed(body=b'{"a": 1}')}
    asyncio.run(told(guard, sent, there, *parts))
    assert not reached and sent[0]["status"] == 401


def test_a_body_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    monkeypatch.setattr(auth, "MOST_BYTES", 100)
    for parts, passes in (([b"x" * 100], True), ([b"x" * 101], False), ([b"x"] * 1000, False)):
        assert answers({**HTTP, "headers": signed(body=b"".join(parts))}, *parts)[0] is passes

    read = []

    async def endless() -> Any:
        read.append(1)
        assert len(read) < 4, "read on"
        return {"type": "http.request", "body": b"x" * 50, "more_body": True}

    assert asyncio.run(auth._read(endless)) is None


def test_a_request_passes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    guard, reached = guarded()
    sent: list[dict[str, Any]] = []
    scope = {**HTTP, "headers": signed()}
    for _ in range(3):
        asyncio.run(told(guard, sent, scope, b""))
    assert len(reached) == 1 and [one["status"] for one in sent if "status" in one] == [401, 401]
    for _ in range(2):  # the same request, said again by who has the token
        asyncio.run(told(guard, sent, {**HTTP, "headers": signed()}, b""))
    assert len(reached) == 3


@pytest.mark.parametrize(("seconds", "passes"), [(0, True), (299, True), (301, False), (-299, True), (-301, False)])
def test_a_request_passes_for_five_minutes(seconds: float, passes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    said, now = signed(), time.time()
    monkeypatch.setattr(auth.time, "time", lambda: now + seconds)
    assert answers({**HTTP, "headers": said})[0] is passes


def test_nonces_are_bounded_and_never_taken_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order of times: what was forgotten is refused for its time."""
    monkeypatch.setattr(auth, "MOST_NONCES", 10)
    clock = [1e9]
    monkeypatch.setattr(auth.time, "time", lambda: clock[0])
    nonces, random = auth.Nonces(), Random(0)
    asked = [(1e9 + random.uniform(-400, 1400), str(i)) for i in range(500)]
    taken = []
    for said, nonce in sorted(asked, key=lambda one: one[0] + random.uniform(-350, 350)):
        clock[0] = max(clock[0], said + random.uniform(-350, 350))
        if nonces.take(said, nonce):
            assert abs(said - clock[0]) <= auth.WINDOW_SECONDS
            taken.append((said, nonce))
        assert not any(nonces.take(*one) for one in taken)
        assert len(nonces._seen) == len(nonces._oldest) <= 10
    assert len(taken) > 50
    clock[0] += 2 * auth.WINDOW_SECONDS + 1
    assert nonces.take(clock[0], "last") and nonces._seen == {"last"}


def test_a_server_at_a_named_address_never_sees_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"

        def listen() -> None:
            connection, _ = listening.accept()
            with connection:
                seen.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        assert Connection(address, token=TOKEN).call("GET", "/health") == {}
        thread.join(10)
    assert TOKEN.encode() not in seen[0]
    signature = next(line for line in seen[0].split(b"\r\n") if line.startswith(b"Authorization: "))
    scope = {**HTTP, "method": "GET", "path": "/health", "server": address.split(":")}
    monkeypatch.setenv(VARIABLE, TOKEN)
    said = [(b"host", address.encode()), (b"authorization", signature.partition(b": ")[2])]
    assert answers({**scope, "headers": said}) == (True, [])
    assert seen[0].lower().count(b"host: ") == 1


def test_a_server_without_a_token_does_not_start() -> None:
    with pytest.raises(RuntimeError, match="a server needs a token"):
        answers({"type": "lifespan"})


def test_a_token_comes_from_the_environment_or_from_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert given_token() is None
    with pytest.raises(UserError, match=says("addresses", "token", f"set {VARIABLE}")):
        token_of_servers()
    file = tmp_path / "token"
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    with pytest.raises(UserError, match=says(FILE_VARIABLE, "token'", "FileNotFoundError")):
        given_token()
    file.write_text(TOKEN + "\n")
    file.chmod(0o640)
    with pytest.raises(UserError, match=says("chmod 600")):
        given_token()
    file.chmod(0o600)
    assert token_of_servers() == TOKEN
    monkeypatch.setenv(VARIABLE, "another_token_of_a_run")
    assert given_token() == "another_token_of_a_run" and len(new_token()) > 40 and new_token() != new_token()
    for bad in ("short", "with spaces in the middle", "with\nnewlines-in-it", "ümläüts-and-so-on-and-on"):
        monkeypatch.setenv(VARIABLE, bad)
        with pytest.raises(UserError, match=says("'***'", "at least 16", "letters and digits")):
            given_token()


def test_the_token_is_in_the_environment_of_an_own_server_and_on_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a server inherit what makes torch look for the store of the ranks, or what is set for the learner."""
    for name in ("TORCHELASTIC_USE_AGENT_STORE", "RANK", "GROUP_RANK", "CUBLAS_WORKSPACE_CONFIG", FILE_VARIABLE):
        monkeypatch.setenv(name, "inherited")
    monkeypatch.setenv("HF_HOME", "/kept")
    code = "import json, os, sys; print(json.dumps([dict(os.environ), sys.orig_argv]))"
    own = Server("127.0.0.1:1", (sys.executable, "-c", code), tmp_path / "log", token=TOKEN)
    own.start()
    assert own.process is not None
    own.process.wait(60)
    environment, words = json.loads((tmp_path / "log").read_text())
    assert environment[VARIABLE] == TOKEN and TOKEN not in " ".join(words) and environment["HF_HOME"] == "/kept"
    assert "inherited" not in environment.values()
    assert TOKEN not in repr(own) and TOKEN not in " ".join(map(str, own.process.args))
