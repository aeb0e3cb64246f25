"""Spreads sequences over vLLM servers in rounds until all are sampled, over a bounded number of connections."""

import asyncio
import resource
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from halfway.curriculum import IntArray, UserError
from halfway.trainers.engines.contract import Completion, EngineSetup, Finished
from halfway.trainers.engines.vllm.vllm_options import require_length, sampling_parameters
from halfway.trainers.engines.vllm_servers.server.connection import session, wait_for
from halfway.trainers.engines.vllm_servers.server.protocol import ServerError
from halfway.trainers.engines.vllm_servers.server.server import Server
from halfway.trainers.engines.vllm_servers.server_options import FIELD, NEEDED_BY, ServerOptions

if TYPE_CHECKING:
    from aiohttp import ClientSession


class Spreading(ABC):
    """Spreads sequences over servers by load. Sequences with the same context, such as a group, go to one server.

    If a server fails, the others sample its unanswered sequences with the same seeds. Several threads may call
    `generate` at once.

    Attributes:
        max_length: maximum number of tokens of prompt and response together; None = not known yet.
        retried: number of sequences sampled again.
    """

    serves_all = concurrent = True

    def __init__(self, options: ServerOptions, setup: EngineSetup, num_servers: int):
        self.options = options
        self.max_length: int | None = None
        self.retried = 0
        self._temperature, self._end_tokens = setup.temperature, list(setup.eos_token_ids)
        room = room_for_connections(setup.max_sequences * num_servers) // num_servers
        self.client = Client(max(1, min(setup.max_sequences, room)), options.seconds)

    @abstractmethod
    def available(self) -> tuple[Sequence[Server], str]:
        """Wait for servers with the current weights; returns at least one, and the weights' name.

        Raises:
            UserError: if there is none in time.
        """

    @abstractmethod
    def note_failures(self, errors: Mapping[Server, ServerError]) -> None:
        """Note which servers failed in a round."""

    @abstractmethod
    def last_words(self) -> str:
        """The last errors of the servers that have failed."""

    def generate(
        self,
        contexts: Sequence[IntArray],
        max_new_tokens: Sequence[int],
        seeds: Sequence[int],
        finished: Finished | None = None,
    ) -> list[Completion]:
        """Continue each context, see `halfway.trainers.engines.contract.Engine.generate`.

        Raises:
            UserError: if a context and its limit together exceed `max_length`, or if sequences are still unanswered
                after the allowed number of rounds.
        """
        if self.max_length is not None:
            require_length(FIELD, contexts, max_new_tokens, self.max_length)
        samplings = [
            sampling_parameters(self._temperature, limit, seed, self._end_tokens)
            for limit, seed in zip(max_new_tokens, seeds, strict=True)
        ]
        done: dict[int, Completion] = {}

        def accept(i: int, completion: Completion) -> None:
            done[i] = completion
            if finished is not None:
                finished(i, completion)

        for number in range(self.options.rounds):
            missing = [i for i in range(len(contexts)) if i not in done]
            if not missing:
                break
            self.retried += len(missing) if number > 0 else 0
            self._round(missing, contexts, samplings, accept)
        if len(done) < len(contexts):
            raise UserError(
                f"{NEEDED_BY}: {len(contexts) - len(done)} sequences found no server in "
                f"{self.options.rounds} rounds; {self.last_words()}"
            )
        return [done[i] for i in range(len(contexts))]

    def _round(
        self, missing: Sequence[int], contexts: Sequence[IntArray], samplings: Sequence[dict[str, Any]], done: Finished
    ) -> None:
        """Send out each missing sequence once. `done` gets the completions as they arrive."""
        servers, version = self.available()
        shares = assign(missing, contexts, [sampling["max_tokens"] for sampling in samplings], len(servers))
        # In turns, so that every server has work from the start.
        errands = [
            Errand(i, server, contexts[i], samplings[i])
            for turn in zip_longest(*shares)
            for server, i in zip(servers, turn, strict=True)
            if i is not None
        ]
        self.note_failures(self.client.run(errands, version, done))


def assign(
    missing: Sequence[int], contexts: Sequence[IntArray], limits: Sequence[int], num_servers: int
) -> list[list[int]]:
    """Assign sequences to servers: equal contexts together, about equally many tokens to generate per server."""
    groups: dict[bytes, list[int]] = {}
    for i in missing:
        groups.setdefault(contexts[i].tobytes(), []).append(i)
    shares: list[list[int]] = [[] for _ in range(num_servers)]
    loads = [0] * num_servers
    for group in sorted(groups.values(), key=lambda group: -sum(limits[i] for i in group)):
        server = loads.index(min(loads))
        shares[server] += group
        loads[server] += sum(limits[i] for i in group)
    return shares


class Errand(NamedTuple):
    """A sequence for a server to continue, with its index in the call of `Engine.generate`."""

    position: int
    server: Server
    context_P: IntArray
    sampling: dict[str, Any]


class Client:
    """Has servers continue sequences. Several threads may call it at once; they share the connections.

    Attributes:
        connections: maximum number of connections to one server at a time.
        seconds: seconds for a request, see `Connection.ask`.
    """

    def __init__(self, connections: int, seconds: float):
        self.connections, self.seconds = connections, seconds
        self._slots: dict[Server, asyncio.Semaphore] = {}

    def run(self, errands: Sequence[Errand], version: str, finished: Finished) -> dict[Server, ServerError]:
        """Send every sequence once; return when all are sampled or their servers have failed.

        Args:
            version: name of the weights that must sample the sequences.
            finished: called for every completion, from another thread.

        Returns:
            The failed servers with their first error; nothing was sent to them after it.

        Raises:
            UserError: if a server refuses a sequence, or is too old.
        """
        return wait_for(self._run(errands, version, finished))

    async def _run(self, errands: Sequence[Errand], version: str, finished: Finished) -> dict[Server, ServerError]:
        failed: dict[Server, ServerError] = {}
        async with session() as own:
            tasks = [asyncio.create_task(self._do(each, version, own, failed, finished)) for each in errands]
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
    """Raise the limit on open files; returns how many of the wanted connections fit, at least 1.

    Half of the limit is left for everything else.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < 2 * wanted:
        soft = 2 * wanted if hard == unlimited else min(hard, 2 * wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == unlimited else max(1, min(wanted, soft // 2))
