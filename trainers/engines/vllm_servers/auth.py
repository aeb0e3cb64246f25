"""Checks on every route of our vLLM servers that a request comes from somebody who has the token of the run.

vLLM's own API key does not protect the routes that replace weights, pause, sleep and call methods. The token is passed
in the environment or in a file that only its owner can read, never on a command line: every user of a host sees those.
Nor is it sent: a request is signed with it, for one method, path and address, so that whoever listens at an address
learns nothing that another server accepts.
"""

import hmac
import os
import secrets
import stat
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from halfway.curriculum.support.errors import UserError, require
from halfway.curriculum.support.extras import one_line

VARIABLE = "HALFWAY_SERVER_TOKEN"
FILE_VARIABLE = f"{VARIABLE}_FILE"
SHORTEST = 16
OTHERS = stat.S_IRWXG | stat.S_IRWXO

Scope = MutableMapping[str, Any]
Send = Callable[[Scope], Awaitable[None]]
App = Callable[[Scope, Any, Send], Awaitable[None]]


def new_token() -> str:
    """Make a random token."""
    return secrets.token_urlsafe(32)


def given_token() -> str | None:
    """Read the token from the environment, or from the file that the environment names; None if neither is set.

    Raises:
        UserError: if the token is too short, or if the file cannot be read or other users can read it.
    """
    token, file = os.environ.get(VARIABLE), os.environ.get(FILE_VARIABLE)
    if not token and not file:
        return None
    name = VARIABLE if token else FILE_VARIABLE
    token = token or _content(Path(str(file)))
    visible = token.isascii() and token.isprintable() and " " not in token
    require(len(token) >= SHORTEST and visible, name, "***", f"give at least {SHORTEST} letters and digits")
    return token


def _content(file: Path) -> str:
    try:
        with file.open() as opened:
            mode = os.fstat(opened.fileno()).st_mode
            require(not mode & OTHERS, FILE_VARIABLE, str(file), f"other users can read it; chmod 600 {file}")
            return opened.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{FILE_VARIABLE}: {str(file)!r} cannot be read ({one_line(error)}); name another") from error


def headers(token: str, method: str, address: str, path: str) -> dict[str, str]:
    """HTTP headers that authorize a request to an address, "host:port"; none without a token."""
    return {"Host": address, "Authorization": _signature(token, method, path, address)} if token else {}


def _signature(token: str, *words: str) -> str:
    return hmac.new(token.encode(), " ".join(words).encode(), "sha256").hexdigest()


class Guard:
    """Passes a request to an ASGI application if it is signed with this process's token and names the server's port.

    Any other is refused with status 401. Lifespan messages pass: they come from the server itself.
    """

    def __init__(self, app: App):
        """Raises RuntimeError if this process has no token: no server may run without one."""
        token = given_token()
        if token is None:
            raise RuntimeError(f"{VARIABLE}: a server needs a token; set this variable, or {FILE_VARIABLE}")
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        if scope["type"] == "lifespan" or self._knows(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            kind = (b"content-type", b"text/plain")
            await send({"type": "http.response.start", "status": 401, "headers": [kind]})
            await send({"type": "http.response.body", "body": f"{VARIABLE} is missing or wrong".encode()})
        else:  # closing a WebSocket before accepting it refuses it with status 403
            await send({"type": "websocket.close", "code": 1008})

    def _knows(self, scope: Scope) -> bool:
        names = (b"host", b"authorization")
        found = {name: [value for each, value in scope["headers"] if each == name] for name in names}
        if any(len(values) != 1 for values in found.values()):
            return False
        host, said = (values[0].decode("latin-1") for values in found.values())
        _, port = scope.get("server") or ("", None)
        path = scope["path"] + (f"?{query.decode('latin-1')}" if (query := scope.get("query_string")) else "")
        expected = _signature(self._token, scope.get("method", "GET"), path, host)
        # A server at another port of this host may pass on what it was sent.
        return host.rpartition(":")[2] == str(port) and hmac.compare_digest(said.encode(), expected.encode())
