"""Checks on every route of our vLLM servers that a request comes from somebody who has the token of the run.

vLLM's own API key does not protect the routes that replace weights, pause, sleep and call methods. The token is passed
in the environment or in a file that only its owner can read, never on a command line: every user of a host sees those.
Nor is it sent: a request is signed with it, for one method, path, address, body and time. Whoever listens at an address
can at most pass a request on as it is, in time and once, to a server at the same port of another host.
"""

import hashlib
import heapq
import hmac
import os
import secrets
import stat
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from halfway.curriculum import require
from halfway.curriculum.support.extras import blaming

VARIABLE = "HALFWAY_SERVER_TOKEN"
FILE_VARIABLE = f"{VARIABLE}_FILE"
SHORTEST = 16
OTHERS = stat.S_IRWXG | stat.S_IRWXO
WINDOW_SECONDS = 300
"""A request is taken for so long; clocks of a run's hosts differ by less."""
MOST_NONCES, MOST_BYTES = 100_000, 1 << 26
"""The requests that a guard remembers, and the longest body that it reads."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


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
    what = f"{FILE_VARIABLE}: {str(file)!r} cannot be read"
    with blaming(what, "name a readable file", OSError, UnicodeDecodeError), file.open() as opened:
        mode = os.fstat(opened.fileno()).st_mode
        require(not mode & OTHERS, FILE_VARIABLE, str(file), f"other users can read it; chmod 600 {file}")
        return opened.readline().strip()


def headers(token: str, method: str, address: str, path: str, body: bytes = b"") -> dict[str, str]:
    """HTTP headers that authorize one request to an address, "host:port"; none without a token."""
    if not token:
        return {}
    words = f"{time.time():.6f}", secrets.token_urlsafe(16), _digest(body)
    return {"Host": address, "Authorization": " ".join([*words, _signature(token, *words, method, address, path)])}


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _signature(token: str, *words: str) -> str:
    return hmac.new(token.encode(), "\n".join(words).encode(), "sha256").hexdigest()


class Nonces:
    """Tells whether a nonce is new, for nonces of the last `WINDOW_SECONDS`."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._oldest: list[tuple[float, str]] = []  # a heap
        self._forgotten = 0.0  # the last time of which a nonce was forgotten for want of room

    def take(self, said: float, nonce: str) -> bool:
        """Remember the nonce of a request of this time; returns False if it is known, or its time not ours."""
        now = time.time()
        while self._oldest and self._oldest[0][0] < now - WINDOW_SECONDS:
            self._seen.remove(heapq.heappop(self._oldest)[1])
        if nonce in self._seen or not abs(said - now) <= WINDOW_SECONDS or said <= self._forgotten:
            return False
        heapq.heappush(self._oldest, (said, nonce))
        self._seen.add(nonce)
        if len(self._seen) > MOST_NONCES:
            self._forgotten, forgotten = heapq.heappop(self._oldest)
            self._seen.remove(forgotten)
        return True


class Guard:
    """Passes an HTTP request to an ASGI application if it is signed with this process's token, and new.

    Any other is refused with status 401, and a WebSocket, whose messages nobody signs, with 403. Lifespan messages
    pass: they come from the server itself.
    """

    def __init__(self, app: App):
        """Raises RuntimeError if this process has no token: no server may run without one."""
        token = given_token()
        if token is None:
            raise RuntimeError(f"{VARIABLE}: a server needs a token; set this variable, or {FILE_VARIABLE}")
        self._app, self._token, self._nonces = app, token, Nonces()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            digest = self._signed_digest(scope)
            body = None if digest is None else await _read(receive)
            if body is not None and _digest(body) == digest:
                await self._app(scope, _again(body, receive), send)
                return
            kind = (b"content-type", b"text/plain")
            await send({"type": "http.response.start", "status": 401, "headers": [kind]})
            await send({"type": "http.response.body", "body": f"{VARIABLE} is missing or wrong".encode()})
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _signed_digest(self, scope: Scope) -> str | None:
        """The digest that the body must have; None if the headers are not signed for this server, or not new."""
        names = (b"host", b"authorization")
        found = {name: [value for each, value in scope["headers"] if each == name] for name in names}
        if any(len(values) != 1 for values in found.values()):
            return None
        host, said = (values[0].decode("latin-1") for values in found.values())
        _, port = scope.get("server") or ("", None)
        path = scope["path"] + (f"?{query.decode('latin-1')}" if (query := scope.get("query_string")) else "")
        *words, signature = said.split(" ")
        expected = _signature(self._token, *words, scope["method"], host, path)
        signed = len(words) == 3 and hmac.compare_digest(signature.encode(), expected.encode())
        # A server at another port of this host may pass on what it was sent.
        known = signed and host.rpartition(":")[2] == str(port) and self._nonces.take(float(words[0]), words[1])
        return words[2] if known else None


async def _read(receive: Receive) -> bytes | None:
    """Read the body of a request; None if it is too long, or if its sender has gone."""
    body = bytearray()
    while len(body) <= MOST_BYTES:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request":
            return None
        if not message.get("more_body"):
            return bytes(body) if len(body) <= MOST_BYTES else None
    return None


def _again(body: bytes, receive: Receive) -> Receive:
    """The messages of a request whose body has been read."""
    first: list[Scope] = [{"type": "http.request", "body": body}]

    async def messages() -> Scope:
        return first.pop() if first else await receive()

    return messages
