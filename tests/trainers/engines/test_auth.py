"""Nobody without the token of a run is answered by its servers."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from messages import says

from halfway.curriculum import UserError
from halfway.trainers.engines.vllm_servers.auth import FILE_VARIABLE, VARIABLE, Guard, given_token, new_token
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


@pytest.mark.parametrize(
    "said",
    [
        [],
        [(b"authorization", b"")],
        [(b"authorization", TOKEN.encode())],
        [(b"authorization", b"Bearer " + TOKEN[:-1].encode())],
        [(b"authorization", b"Bearer \xff\xfe")],
        [(b"x-token", b"Bearer " + TOKEN.encode())],
        [(b"authorization", b"Bearer x"), (b"authorization", b"Bearer " + TOKEN.encode())],
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_a_request_without_the_token_is_refused(said: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    reached, sent = answers({"type": "http", "method": method, "headers": said})
    assert not reached and sent[0]["status"] == 401
    assert answers({"type": "websocket", "headers": said}) == (False, [{"type": "websocket.close", "code": 1008}])


def test_a_request_with_the_token_and_the_servers_own_messages_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    assert answers({"type": "http", "headers": [(b"authorization", f"Bearer {TOKEN}".encode())]}) == (True, [])
    assert answers({"type": "lifespan"}) == (True, [])


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
