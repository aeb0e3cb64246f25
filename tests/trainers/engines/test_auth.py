"""Nobody without the token of a run is answered by its servers."""

import asyncio
import json
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from messages import says

from halfway.curriculum import UserError
from halfway.trainers.engines.vllm_servers.auth import FILE_VARIABLE, VARIABLE, Guard, given_token, headers, new_token
from halfway.trainers.engines.vllm_servers.server.connection import Connection
from halfway.trainers.engines.vllm_servers.server.server import Server
from halfway.trainers.engines.vllm_servers.start import token_of_servers

TOKEN = "0123456789abcdef"


@pytest.fixture(autouse=True)
def _without_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv(FILE_VARIABLE, raising=False)


def answers(scope: dict[str, Any]) -> tuple[bool, list[dict[str, Any]]]:
    """Whether the application behind the guard was reached, and what the guard itself sent."""
    reached, sent = [], []

    async def app(*_: Any) -> None:
        reached.append(True)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Guard(app)({"headers": [], **scope}, None, send))
    return bool(reached), sent


ADDRESS, ROUTE = "127.0.0.1:8000", "/pause"
HTTP = {"type": "http", "method": "POST", "path": ROUTE, "query_string": b"", "server": ("127.0.0.1", 8000)}


def signed(token: str = TOKEN, method: str = "POST", address: str = ADDRESS, path: str = ROUTE) -> list[Any]:
    """The headers of a request, as ASGI has them."""
    return [(name.lower().encode(), value.encode()) for name, value in headers(token, method, address, path).items()]


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
        [HOST, (b"authorization", b"\xff\xfe")],
        [HOST, (b"x-token", SIGNATURE[1])],
        [HOST, (b"authorization", b"x"), SIGNATURE],
        [HOST, HOST, SIGNATURE],
        [(b"host", b"localhost:8000"), SIGNATURE],
        signed(token=TOKEN[:-1] + "x"),
        signed(method="GET"),
        signed(path="/health"),
        signed(address="127.0.0.1:8001"),  # passed on by a server at that port
    ],
)
def test_a_request_that_is_not_signed_for_this_server_is_refused(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    reached, sent = answers({**HTTP, "headers": said})
    assert not reached and sent[0]["status"] == 401
    channel = {"type": "websocket", "path": ROUTE, "server": HTTP["server"], "headers": said}
    refused = [{"type": "websocket.close", "code": 1008}]
    assert answers(channel) == ((False, refused) if said != signed(method="GET") else (True, []))


def test_a_signed_request_and_the_servers_own_messages_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    assert answers({**HTTP, "headers": signed()}) == (True, [])
    assert answers({**HTTP, "headers": signed(path="/pause?mode=keep"), "query_string": b"mode=keep"}) == (True, [])
    assert answers({**HTTP, "headers": signed(), "query_string": b"mode=keep"})[0] is False
    assert answers({**HTTP, "headers": signed(), "server": None})[0] is False
    assert answers({"type": "lifespan"}) == (True, [])


def test_a_server_at_a_named_address_never_sees_the_token() -> None:
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
    assert f"Authorization: {headers(TOKEN, 'GET', address, '/health')['Authorization']}".encode() in seen[0]
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
