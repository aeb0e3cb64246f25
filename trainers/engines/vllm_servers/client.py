"""How sequences reach servers: many at once, over a bounded number of connections, from one thread."""

import asyncio
import resource
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from halfway.curriculum.rollouts import IntArray
from halfway.trainers.engines.base import Finished
from halfway.trainers.engines.vllm_servers.server import Server, ServerError

if TYPE_CHECKING:
    from aiohttp import ClientSession


STARTING = threading.Lock()


class Errand(NamedTuple):
    """A sequence for a server to continue, with its position in the call of `Engine.generate`."""

    position: int
    server: Server
    context_P: IntArray
    sampling: dict[str, Any]


class Client:
    """Has servers continue sequences. Several threads may call it at once; they share its connections.

    Attributes:
        connections: most connections to one server at a time.
        seconds: how long a server may be silent, see `Server.ask`.
    """

    def __init__(self, connections: int, seconds: float):
        self.connections, self.seconds = connections, seconds
        self._slots: dict[Server, asyncio.Semaphore] = {}

    def run(self, errands: Sequence[Errand], version: str, finished: Finished) -> dict[Server, ServerError]:
        """Send every sequence once, and return when all are answered or their servers have failed.

        Args:
            version: the name of the weights that must sample them.
            finished: called for every answer, from the client's thread.

        Returns:
            The servers that failed, with their first error; they were sent nothing more.

        Raises:
            UserError: if a server refuses a sequence, or is too old.
        """
        with STARTING:
            loop = self._loop
        running = asyncio.run_coroutine_threadsafe(self._run(errands, version, finished), loop)
        try:
            return running.result()
        except BaseException:  # an interrupt from the keyboard too
            running.cancel()
            raise

    def close(self) -> None:
        """End the client's thread."""
        if "_loop" in vars(self):
            self._loop.call_soon_threadsafe(self._loop.stop)

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="vllm-servers", daemon=True).start()
        return loop

    async def _run(self, errands: Sequence[Errand], version: str, finished: Finished) -> dict[Server, ServerError]:
        from aiohttp import ClientSession, ClientTimeout, TCPConnector

        failed: dict[Server, ServerError] = {}
        # A server may close a connection that is kept open just when it is used again, which looks like a lost server.
        connector = TCPConnector(limit=0, force_close=True)
        options: Any = {"timeout": ClientTimeout(total=None), "auto_decompress": False}
        async with ClientSession(connector=connector, **options) as session:
            tasks = [asyncio.create_task(self._do(each, version, session, failed, finished)) for each in errands]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        return failed

    async def _do(
        self,
        errand: Errand,
        version: str,
        session: "ClientSession",
        failed: dict[Server, ServerError],
        finished: Finished,
    ) -> None:
        server = errand.server
        async with self._slots.setdefault(server, asyncio.Semaphore(self.connections)):
            if server in failed:
                return
            try:
                done = await server.generate(session, errand.context_P, errand.sampling, version, self.seconds)
            except ServerError as error:
                failed.setdefault(server, error)
                return
        finished(errand.position, done)


def room_for_connections(wanted: int) -> int:
    """How many of the wanted connections this process can hold, at least 1, after raising its limit on open files.

    Half of that limit is left to everything else.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < 2 * wanted:
        soft = 2 * wanted if hard == unlimited else min(hard, 2 * wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == unlimited else max(1, min(wanted, soft // 2))
