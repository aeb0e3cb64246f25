"""Requests to a vLLM server over HTTP, bounded in time and size, from one thread of this process."""

import asyncio
import json
import os
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from halfway.curriculum.support.extras import clean, one_line
from halfway.trainers.engines.vllm_servers import auth
from halfway.trainers.engines.vllm_servers.server.protocol import (
    Generated,
    OtherTokenError,
    RefusedError,
    ServerError,
    decode,
)

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

Answer = TypeVar("Answer")
PROBE_SECONDS = 5.0
# A healthy but busy server may take this many times as long over a request as a silent one before it counts as lost.
PATIENCE = 10
OK, UNAUTHORIZED = 200, 401
# Statuses of refusals that say nothing about the request.
TIMED_OUT, TOO_MANY = 408, 429
MOST_BYTES, BYTES_A_TOKEN = 1 << 20, 1 << 9
"""The longest answer, and what a sequence may add to that for each of its tokens."""


@dataclass(eq=False)
class Connection:
    """Asks the server at an address.

    Attributes:
        address: "host:port".
        token: what it asks of every request, see `auth`; empty = nothing.
    """

    address: str
    token: str = field(default="", repr=False, kw_only=True)
    _probe: "asyncio.Future[bool] | None" = field(default=None, init=False, repr=False)

    def call(self, method: str, path: str, body: Any = None, seconds: float = PROBE_SECONDS) -> Any:
        """The answer to a request, as JSON if it has any.

        Raises:
            RefusedError: if the server rejects the request.
            ServerError: if there is no answer within `seconds` of silence, or no end within twice as long, or an error.
        """
        return wait_for(self._call(method, path, body, seconds))

    async def _call(self, method: str, path: str, body: Any, seconds: float) -> Any:
        from aiohttp import ClientError, ClientTimeout

        limits = ClientTimeout(total=2 * seconds, sock_connect=seconds, sock_read=seconds)
        payload = None if body is None else json.dumps(body)
        try:
            async with session() as own, self._request(own, method, path, payload, timeout=limits) as response:
                return await self._accepted(path, response, MOST_BYTES)
        except (OSError, ClientError) as error:
            raise ServerError(f"{self.address}{path}: {one_line(error)}") from error

    async def ask(self, session: "ClientSession", path: str, body: Any, seconds: float) -> Any:
        """The answer to a request for a sequence, which may take long.

        Beyond `seconds`, it is waited for only as long as the server is healthy.

        Raises:
            RefusedError: if the server rejects the request.
            ServerError: if it is not healthy, has not answered within `PATIENCE` times `seconds`, or fails.
        """
        from aiohttp import ClientError

        asking = asyncio.ensure_future(self._post(session, path, body))
        try:
            for _ in range(PATIENCE):
                if (await asyncio.wait({asking}, timeout=seconds))[0]:
                    return asking.result()
                if not await self._answers():
                    raise TimeoutError(f"no response in {seconds:g} s, and none from /health")
            needed = "if it needs so long, raise rollouts.engine.vllm_servers.seconds"
            raise TimeoutError(f"no answer in {PATIENCE * seconds:g} s; {needed}")
        except (OSError, ClientError) as error:
            raise ServerError(f"{self.address}{path}: {one_line(error)}") from error
        finally:
            asking.cancel()

    async def _answers(self) -> bool:
        """What `healthy` says, asked once for all who wait: threads are few, and a frozen server holds one."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.ensure_future(asyncio.to_thread(self.healthy))
        await asyncio.wait({self._probe})  # whoever is cancelled leaves it to the others
        return self._probe.result()

    async def _post(self, session: "ClientSession", path: str, body: Any) -> Any:
        most = MOST_BYTES + BYTES_A_TOKEN * body["sampling_params"]["max_tokens"]
        async with self._request(session, "POST", path, json.dumps(body)) as response:
            return await self._accepted(path, response, most, Generated)

    def _request(self, session: "ClientSession", method: str, path: str, payload: str | None, **limits: Any) -> Any:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **auth.headers(self.token)}
        url = f"http://{self.address}{path}"
        return session.request(method, url, data=payload, headers=headers, allow_redirects=False, **limits)

    async def _accepted(self, path: str, response: "ClientResponse", most: int, kind: Any = Any) -> Any:
        """The content of an answer of at most so many bytes, of this kind.

        Raises:
            ServerError: if its status is not 200, or it is damaged, something else, or too long.
        """
        where, status, content = f"{self.address}{path}", response.status, bytearray()
        async for part in response.content.iter_any():
            content += part
            if len(content) > most:
                break
        if status == UNAUTHORIZED:
            raise OtherTokenError(f"{self.address} asks for another token than {auth.VARIABLE} of this process")
        if status != OK:
            wrong = 400 <= status < 500 and status not in (TIMED_OUT, TOO_MANY)
            text = clean(" ".join(content[:10_000].decode(errors="replace").split()))
            raise (RefusedError if wrong else ServerError)(f"{where}: status {status}: {text[:300]}")
        if len(content) > most:
            raise ServerError(f"{where}: its response is longer than {most} bytes")
        return decode(where, bytes(content), kind)

    def healthy(self) -> bool:
        """True if it answers."""
        try:
            self.call("GET", "/health")
        except ServerError:
            return False
        return True


def session() -> "ClientSession":
    """Connections for requests of this process's thread, see `wait_for`."""
    from aiohttp import ClientSession, ClientTimeout, TCPConnector

    # A server may close a connection that is kept open just when it is used again, which looks like a lost server.
    connector = TCPConnector(limit=0, force_close=True)
    return ClientSession(connector=connector, timeout=ClientTimeout(total=None), auto_decompress=False)


def wait_for(answer: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a coroutine; return its result. All run in one thread of this process; several threads may wait at once."""
    with _STARTING:
        loop = _loop(os.getpid())
    running = asyncio.run_coroutine_threadsafe(answer, loop)
    try:
        return running.result()
    except BaseException:  # an interrupt from the keyboard too
        running.cancel()
        raise


_STARTING = threading.Lock()


@cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """The event loop of a process, in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="vllm-servers", daemon=True).start()
    return loop
