"""HTTP requests to a vLLM server, bounded in time and size, from one thread of this process."""

import asyncio
import json
import os
import sys
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
# A server that answers /health gets this many times the time of a silent one before it counts as lost.
PATIENCE = 10
OK, UNAUTHORIZED = 200, 401
# Refusals for which the request is not to blame.
TIMED_OUT, TOO_MANY = 408, 429
MOST_BYTES, BYTES_A_TOKEN = 1 << 20, 1 << 9
"""The longest response, and the bytes that each token of a sequence may add to it."""


@dataclass(eq=False)
class Connection:
    """Sends requests to the server at an address.

    Attributes:
        address: "host:port".
        token: signs every request, see `auth`; empty = none.
        failure: the last failure.
        refuses: whether it needs another token; waiting does not help then.
    """

    address: str
    token: str = field(default="", repr=False, kw_only=True)
    failure: str = field(default="", kw_only=True)
    refuses: bool = field(default=False, kw_only=True)
    _slow: bool = field(default=False, init=False, repr=False)
    _probe: "asyncio.Future[bool] | None" = field(default=None, init=False, repr=False)

    def call(self, method: str, path: str, body: Any = None, seconds: float = PROBE_SECONDS) -> Any:
        """Send a request; returns the response's JSON, None without any.

        Raises:
            RefusedError: if the server rejects the request.
            ServerError: on an error, after `seconds` of silence, or if the response takes more than twice as long.
        """
        return wait_for(self._call(method, path, body, seconds))

    async def _call(self, method: str, path: str, body: Any, seconds: float) -> Any:
        from aiohttp import ClientError, ClientTimeout

        limits = ClientTimeout(total=2 * seconds, sock_connect=seconds, sock_read=seconds)
        payload = b"" if body is None else json.dumps(body).encode()
        try:
            async with session() as own, self._request(own, method, path, payload, timeout=limits) as response:
                return await self._accept(path, response, MOST_BYTES)
        except (OSError, ClientError) as error:
            raise ServerError(f"{self.address}{path}: {one_line(error)}") from error

    async def ask(self, session: "ClientSession", path: str, body: Any, seconds: float) -> Any:
        """Request a sequence, which may take long.

        Waits longer than `seconds` only while the server is healthy.

        Raises:
            RefusedError: if the server rejects the request.
            ServerError: if the server is not healthy, has not answered within `PATIENCE` times `seconds`, or fails.
        """
        from aiohttp import ClientError

        asking = asyncio.ensure_future(self._post(session, path, body))
        try:
            for _ in range(PATIENCE):
                if (await asyncio.wait({asking}, timeout=seconds))[0]:
                    return asking.result()
                if not await self._answers():
                    raise TimeoutError(f"no response in {seconds:g} s, and none from /health")
                if not self._slow:
                    self._slow = True
                    until = f"giving up after {PATIENCE * seconds:g} s"
                    print(
                        f"{self.address} answers /health, but has finished no request in {seconds:g} s; {until}",
                        file=sys.stderr,
                    )
            needed = "if requests take this long, raise rollouts.engine.vllm_servers.seconds"
            raise TimeoutError(f"no answer in {PATIENCE * seconds:g} s; {needed}")
        except (OSError, ClientError) as error:
            raise ServerError(f"{self.address}{path}: {one_line(error)}") from error
        finally:
            asking.cancel()

    async def _answers(self) -> bool:
        """Call `healthy` once for all waiting requests: threads are few, and a frozen server blocks one."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.ensure_future(asyncio.to_thread(self.healthy))
        await asyncio.wait({self._probe})  # `wait`, since a cancelled request must not cancel the probe
        return self._probe.result()

    async def _post(self, session: "ClientSession", path: str, body: Any) -> Any:
        most = MOST_BYTES + BYTES_A_TOKEN * body["sampling_params"]["max_tokens"]
        async with self._request(session, "POST", path, json.dumps(body).encode()) as response:
            return await self._accept(path, response, most, Generated)

    def _request(self, session: "ClientSession", method: str, path: str, payload: bytes, **limits: Any) -> Any:
        kinds = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        headers = kinds | auth.headers(self.token, method, self.address, path, payload)
        url = f"http://{self.address}{path}"
        return session.request(method, url, data=payload or None, headers=headers, allow_redirects=False, **limits)

    async def _accept(self, path: str, response: "ClientResponse", most: int, kind: Any = Any) -> Any:
        """Read a response of at most `most` bytes as this kind.

        Raises:
            ServerError: if its status is not 200, or its content is damaged, of another kind, or too long.
        """
        where, status, content = f"{self.address}{path}", response.status, bytearray()
        async for part in response.content.iter_any():
            content += part
            if len(content) > most:
                break
        if status == UNAUTHORIZED:
            clock = f"or its clock differs by more than {auth.WINDOW_SECONDS} s"
            why = f"needs another token than {auth.VARIABLE} of this process, listens on another port, {clock}"
            raise OtherTokenError(f"{self.address} {why}")
        if status != OK:
            wrong = 400 <= status < 500 and status not in (TIMED_OUT, TOO_MANY)
            text = clean(" ".join(content[:10_000].decode(errors="replace").split()))
            raise (RefusedError if wrong else ServerError)(f"{where}: status {status}: {text[:300]}")
        if len(content) > most:
            raise ServerError(f"{where}: its response is longer than {most} bytes")
        return decode(where, bytes(content), kind)

    def healthy(self) -> bool:
        """True if the server answers /health."""
        try:
            self.call("GET", "/health")
        except OtherTokenError as error:
            self.failure, self.refuses = str(error), True
            return False
        except ServerError:
            return False
        return True


def session() -> "ClientSession":
    """Open a session for requests from the thread of `wait_for`."""
    from aiohttp import ClientSession, ClientTimeout, TCPConnector

    # Connections are not reused: a server may close an idle one just as we use it, which looks like a lost server.
    connector = TCPConnector(limit=0, force_close=True)
    return ClientSession(connector=connector, timeout=ClientTimeout(total=None), auto_decompress=False)


def wait_for(answer: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a coroutine in one thread for the whole process; return its result. Several threads may wait at once."""
    with _STARTING:
        loop = _loop(os.getpid())
    running = asyncio.run_coroutine_threadsafe(answer, loop)
    try:
        return running.result()
    except BaseException:  # KeyboardInterrupt too
        running.cancel()
        raise


_STARTING = threading.Lock()


@cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """The event loop of a process, in its own thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="vllm-servers", daemon=True).start()
    return loop
