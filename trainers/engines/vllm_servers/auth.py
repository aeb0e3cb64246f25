"""Checks the bearer token of a run on every route of our vLLM servers.

vLLM's own API key does not protect the routes that replace weights, pause, sleep and call methods. The token is passed
in the environment or in a file that only its owner can read, never on a command line: every user of a host sees those.
"""

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


def headers(token: str) -> dict[str, str]:
    """HTTP headers that authorize a request."""
    return {"Authorization": f"Bearer {token}"} if token else {}


class Guard:
    """Passes a request to an ASGI application if it has this process's token; refuses any other with status 401.

    Lifespan messages pass: they come from the server itself.
    """

    def __init__(self, app: App):
        """Raises RuntimeError if this process has no token: no server may run without one."""
        token = given_token()
        if token is None:
            raise RuntimeError(f"{VARIABLE}: a server needs a token; set this variable, or {FILE_VARIABLE}")
        self._app, self._expected = app, f"Bearer {token}".encode()

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
        said = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(said) == 1 and secrets.compare_digest(said[0], self._expected)
