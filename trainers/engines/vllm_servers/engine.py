"""Sampling through vLLM servers: one or many, here or elsewhere, any of which may die."""

import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import nn

from halfway.curriculum.rollouts import IntArray
from halfway.curriculum.support.errors import UserError
from halfway.trainers.distributed.collectives import wait_for_all
from halfway.trainers.engines.base import Completion, EngineSetup, Finished
from halfway.trainers.engines.vllm.options import LARGEST_SEED
from halfway.trainers.engines.vllm_servers.client import Client, Errand, room_for_connections
from halfway.trainers.engines.vllm_servers.options import FIELD, NEEDED_BY, ServerOptions
from halfway.trainers.engines.vllm_servers.server import OtherWeightsError, Server, ServerError
from halfway.trainers.engines.vllm_servers.transfer import TRANSFERS, Transfer, in_parallel
from halfway.trainers.learner.weights import named_weights

POLL_SECONDS = 0.5
GRACE_SECONDS = 10.0


class VllmServersEngine:
    """Spreads sequences over servers by load; those that share a context, such as a group, go to one server.

    All servers that get work hold the weights of the last `sync`; a completion sampled by any others is not accepted.
    The others sample again, with the same seeds, what a failed server has not answered. Halfway's own servers are
    restarted and get the current weights before they work; a server given by address is used again once it answers, and
    also gets the weights first.
    """

    serves_all = True

    def __init__(
        self,
        servers: Sequence[Server],
        options: ServerOptions,
        setup: EngineSetup,
        folder: Path,
        dtype: torch.dtype | None = None,
    ):
        """
        Args:
            folder: for logs and weights; every server can read it.
            dtype: of the servers' weights; None = the learner's.
        """
        self.servers = list(servers)
        self.options = options
        self.folder = folder
        self.transfer: Transfer = TRANSFERS[options.transfer](folder, options.seconds)
        connections = room_for_connections(setup.max_sequences * len(self.servers)) // len(self.servers)
        self.client = Client(max(1, min(setup.max_sequences, connections)), options.seconds)
        self._lock = threading.RLock()  # around the servers' states: several threads may sample at once
        self._dtype = dtype
        self.retried = 0  # sequences that had to be sampled again
        self._setup = setup
        self._run = uuid.uuid4().hex[:8]
        self._synced = False
        self.policy_version = setup.policy_version
        self._asleep = False
        self._max_length: int | None = None  # None = not asked yet

    @property
    def version(self) -> str:
        """The name of the current weights at the servers, see `version_in`."""
        return f"{self._run}-{self.policy_version}"

    @property
    def replicas(self) -> int:
        """Servers with the current weights."""
        return sum(server.usable for server in self.servers)

    def begin(self) -> None:
        """Start Halfway's own servers, and wait for all. Servers given by address have no weights until `sync`.

        Raises:
            UserError: if a server is not up in time, or cannot take weights.
        """
        for server in self.servers:
            if server.command:
                server.start()
        deadline = time.monotonic() + self.options.start_seconds
        for server in self.servers:
            while not (server.ready() and (not server.command or self._refresh(server))):
                ended = server.ended()
                if ended or time.monotonic() > deadline:
                    why = "ended at once" if ended else f"is not up in {self.options.start_seconds:g} s"
                    raise UserError(f"{NEEDED_BY}: the server {server.address} {why}: {server.last_words()}")
                time.sleep(POLL_SECONDS)
        try:
            self._max_length = min(server.max_length() for server in self.servers)
        except ServerError as error:
            raise UserError(f"{NEEDED_BY}: a server does not say how long a sequence may be ({error})") from error

    def close(self) -> None:
        """End Halfway's own servers, and remove the files."""
        self.client.close()
        for server in self.servers:  # without threads: an interpreter that ends starts none
            server.ask_to_end()
        for server in self.servers:
            server.stop(GRACE_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)

    def generate(
        self,
        contexts: Sequence[IntArray],
        max_new_tokens: Sequence[int],
        seeds: Sequence[int],
        finished: Finished | None = None,
    ) -> list[Completion]:
        """Continue each context, see `halfway.trainers.engines.base.Engine.generate`.

        Raises:
            UserError: if a context and its limit together exceed what a server was made for, or if sequences are still
                unanswered after the allowed number of rounds.
        """
        assert self._synced or all(server.command for server in self.servers), "a sync before the first sequence"
        longest = max((len(c) + n for c, n in zip(contexts, max_new_tokens, strict=True)), default=0)
        # A server would silently lower the limit.
        if self._max_length is not None and longest > self._max_length:
            raise UserError(
                f"{FIELD}.max_length: a prompt and its response may need {longest} tokens and a server holds "
                f"{self._max_length}; raise it, or lower rollouts.max_response_tokens"
            )
        samplings = [self._sampling(limit, seed) for limit, seed in zip(max_new_tokens, seeds, strict=True)]
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
                f"{self.options.rounds} rounds; {self._last_words()}"
            )
        return [done[i] for i in range(len(contexts))]

    def sleep(self) -> None:
        """Have the servers clear their devices until the next `sync`; own servers that have only started are ended."""
        self._asleep = True
        in_parallel(self._send_to_sleep, self.servers)

    def _send_to_sleep(self, server: Server) -> None:
        if server.usable:
            try:
                server.sleep(self.options.seconds)
            except ServerError as error:
                self._lost(server, error)
        elif server.command:
            server.stop()

    def _wake(self, server: Server) -> None:
        if server.usable:
            try:
                server.wake(self.options.seconds)
            except ServerError as error:
                self._lost(server, error)
        elif server.command:
            server.start()

    def sync(self, policy: nn.Module, version: int) -> None:
        """Hand the weights of `policy` to every server that answers, a few tensors at a time, in the servers' dtype.

        Raises:
            UserError: if no server takes them.
        """
        if self._asleep:
            self._asleep = False
            in_parallel(self._wake, self.servers)
        self._synced, self.policy_version = True, version
        ready = self._wait_for(self._answers)
        for server in self.servers:
            if server.usable and server not in ready:
                self._lost(server)
        wait_for_all()  # gathering weights does not wait long for processes that come late
        weights = named_weights(policy)
        self.transfer.send(((name, weight.to(self._dtype)) for name, weight in weights), ready, self.version)
        for server in ready:
            if server.version is None:
                self._lost(server)
            else:
                self._use(server)
        self._available()

    def _use(self, server: Server) -> None:
        server.usable, server.attempts, server.failure = True, 0, ""

    def _refresh(self, server: Server) -> bool:
        """Give a server that answers the current weights. Returns whether it has them now.

        Raises:
            UserError: if that has to wait for the next `sync` and no other server has them.
        """
        try:
            self.transfer.catch_up(server, self.version)
        except ServerError as error:
            self._lost(server, error)
            return False
        if server.version is not None:
            self._use(server)
        if not any(server.usable for server in self.servers):
            raise UserError(
                f"{FIELD}.transfer: {self.options.transfer!r} brings weights to a lost server at the "
                "next step only, and no server that has them is left; resume the run, or use "
                f"{FIELD}.transfer=files"
            )
        return server.usable

    def _answers(self, server: Server) -> bool:
        """Whether a server can take weights. An own server that has ended is restarted."""
        server.start_again()
        return server.ready()

    def _revive(self, server: Server) -> bool:
        """Use a server again if it answers. Returns whether it can work."""
        return server.usable or (self._answers(server) and self._refresh(server))

    def _lost(self, server: Server, error: ServerError | None = None) -> None:
        """Send nothing more to a server; restart it if it is our own and the learner does not need its device now."""
        if error is not None:
            server.failure = str(error)
        if server.usable and not server.command:
            print(
                f"{NEEDED_BY}: lost a server; if it does not come back, restart it: {server.last_words()}",
                file=sys.stderr,
            )
        server.usable, server.version = False, None
        if server.command and self._asleep:
            server.stop()
        elif server.command:
            server.start()

    def _last_words(self) -> str:
        """What is known about the servers that cannot work."""
        return " | ".join(server.last_words() for server in self.servers if not server.usable)

    def _available(self) -> list[Server]:
        """Servers with the current weights."""
        return self._wait_for(self._revive)

    def _wait_for(self, answers: Callable[[Server], bool]) -> list[Server]:
        """The servers for which `answers` is true. Waits until there is one.

        Raises:
            UserError: if there is none in time.
        """
        deadline = time.monotonic() + self.options.start_seconds
        while True:
            with ThreadPoolExecutor(len(self.servers)) as pool:
                replies = pool.map(answers, self.servers)
                answering = [server for server, reply in zip(self.servers, replies, strict=True) if reply]
            if answering:
                return answering
            if time.monotonic() > deadline:
                raise UserError(f"{NEEDED_BY}: no server can work any more: {self._last_words()}")
            time.sleep(POLL_SECONDS)

    def _round(
        self, missing: Sequence[int], contexts: Sequence[IntArray], samplings: Sequence[dict[str, Any]], done: Finished
    ) -> None:
        """Send out what is missing, once. `done` gets the answers as they come."""
        with self._lock:
            servers, version = self._available(), self.version
        shares = assign(missing, contexts, [sampling["max_tokens"] for sampling in samplings], len(servers))
        # In turns, so that every server has something to do from the beginning.
        errands = [
            Errand(i, server, contexts[i], samplings[i])
            for turn in zip_longest(*shares)
            for server, i in zip(servers, turn, strict=True)
            if i is not None
        ]
        failed = self.client.run(errands, version, done)
        with self._lock:
            for server, error in failed.items():
                if isinstance(error, OtherWeightsError):
                    server.usable = False  # it gets the right weights before the next round
                else:
                    self._lost(server, error)

    def _sampling(self, limit: int, seed: int) -> dict[str, Any]:
        return {
            "temperature": self._setup.temperature,
            "max_tokens": limit,
            "seed": seed & LARGEST_SEED,
            "stop_token_ids": list(self._setup.eos_token_ids),
            "ignore_eos": True,  # the model's own: ours are above
            "logprobs": 0,  # of the sampled token alone
            "detokenize": False,
        }


def assign(
    missing: Sequence[int], contexts: Sequence[IntArray], limits: Sequence[int], num_servers: int
) -> list[list[int]]:
    """The sequences of every server: equal contexts together, with about equally many tokens to generate each."""
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
