"""Sampling through vLLM servers: one or many, here or elsewhere, any of which may die."""

import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import nn

from halfway.curriculum import UserError
from halfway.trainers.distributed.collectives import wait_for_all
from halfway.trainers.engines.contract import EngineSetup
from halfway.trainers.engines.vllm_servers.load_balancing import Spreading
from halfway.trainers.engines.vllm_servers.server.protocol import OtherWeightsError, ServerError
from halfway.trainers.engines.vllm_servers.server.server import Server
from halfway.trainers.engines.vllm_servers.server_options import FIELD, NEEDED_BY, ServerOptions
from halfway.trainers.engines.vllm_servers.weights.transfer import TRANSFERS, Transfer, in_parallel
from halfway.trainers.learner.weights import checkpoint_weights

POLL_SECONDS = 0.5
GRACE_SECONDS = 10.0


class VllmServersEngine(Spreading):
    """Samples through servers, which it starts, restarts and sends weights to.

    Only servers with the weights of the last `sync` get work; completions sampled by other weights are refused. If a
    server fails, the others sample its unanswered sequences with the same seeds. Halfway's own servers are restarted;
    a server given by address is used again once it answers. Both get the current weights before they work.
    """

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
            dtype: type of the servers' weights; None = the learner's.
        """
        super().__init__(options, setup, len(servers))
        self.servers = list(servers)
        self.folder = folder
        self.transfer: Transfer = TRANSFERS[options.transfer](folder, options.seconds)
        self._lock = threading.RLock()  # guards the servers' states: several threads may sample at once
        self._dtype = dtype
        self._run = uuid.uuid4().hex[:8]
        self._synced = False
        self.policy_version = setup.policy_version
        self._asleep = False
        self._failures: dict[Server, tuple[str, str]] = {}  # each server's first error, and the weights it held then

    @property
    def version(self) -> str:
        """The name of the current weights at the servers, see `version_in`."""
        return f"{self._run}-{self.policy_version}"

    @property
    def replicas(self) -> int:
        """Servers with the current weights."""
        return sum(server.usable for server in self.servers)

    def begin(self) -> None:
        """Start Halfway's own servers, and wait for all servers. Those given by address have no weights until `sync`.

        Raises:
            UserError: if a server does not start in time, or cannot take weights.
        """
        for server in self.servers:
            if server.command:
                server.start()
        begun = time.monotonic()
        deadline = begun + self.options.start_seconds
        for server in self.servers:
            # Own servers take their time to load a model.
            due = begun + (self.options.seconds if server.command else 0.0)
            while not (server.ready() and (not server.command or self._refresh(server))):
                ended = server.ended()
                if ended or server.refuses or time.monotonic() > deadline:
                    late = "refuses this run" if server.refuses else f"is not up in {self.options.start_seconds:g} s"
                    why = "ended at once" if ended else late
                    raise UserError(f"{NEEDED_BY}: the server {server.address} {why}: {server.last_words()}")
                due = self._say_waiting([server], begun, due)
                time.sleep(POLL_SECONDS)
        try:
            self.max_length = min(server.max_length() for server in self.servers)
        except ServerError as error:
            raise UserError(f"{NEEDED_BY}: a server does not report its longest sequence ({error})") from error

    def close(self) -> None:
        """End Halfway's own servers, and remove the files."""
        for server in self.servers:  # one by one: an exiting interpreter cannot start threads
            server.ask_to_end()
        for server in self.servers:
            server.stop(GRACE_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)

    def sleep(self) -> None:
        """Clear the servers' devices until the next `sync`; own servers that are still starting are ended."""
        self._asleep = True
        self._all(lambda server: server.sleep(self.options.seconds), lambda server: server.stop())

    def _all(self, usable: Callable[[Server], None], other: Callable[[Server], None]) -> None:
        """Call a method of every usable server, and another of our own that are not usable."""

        def act(server: Server) -> None:
            if not server.usable:
                return other(server) if server.command else None
            try:
                usable(server)
            except ServerError as error:
                self._lost(server, error)

        in_parallel(act, self.servers)

    def sync(self, policy: nn.Module, version: int) -> None:
        """Send the weights of `policy` to every server that answers, a few tensors at a time, in the servers' dtype.

        Raises:
            UserError: if no server takes them.
        """
        with self._lock:  # other threads, with sequences in flight, may ask for servers
            self._sync(policy, version)

    def _sync(self, policy: nn.Module, version: int) -> None:
        if self._asleep:
            self._asleep = False
            self._all(lambda server: server.wake(self.options.seconds), lambda server: server.start())
        self._synced, self.policy_version = True, version
        ready = self._wait_for(self._answers)
        for server in self.servers:
            if server.usable and server not in ready:
                self._lost(server)
        wait_for_all()  # gathering weights has a short timeout for late processes
        weights = checkpoint_weights(policy)
        self.transfer.send(((name, weight.to(self._dtype)) for name, weight in weights), ready, self.version)
        for server in ready:
            if server.version is None:
                self._lost(server)
            else:
                self._use(server)
        self.available()

    def _use(self, server: Server) -> None:
        if not server.usable:
            server.remember_memory()
        server.usable, server.attempts, server.failure = True, 0, ""

    def _refresh(self, server: Server) -> bool:
        """Send the current weights to a server that answers. Returns whether it has them now.

        Raises:
            UserError: if the transfer has to wait for the next `sync` and no other server has the weights.
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
                f"{FIELD}.transfer: {self.options.transfer!r} sends weights only at the next step, "
                "and no server with the current weights is left; resume the run, or use "
                f"{FIELD}.transfer=files"
            )
        return server.usable

    def _answers(self, server: Server) -> bool:
        """True if a server can take weights. Restarts an own server that has ended."""
        if server.is_due():
            self._restart(server)
        return server.ready()

    def _revive(self, server: Server) -> bool:
        """Use a server again if it answers. Returns whether it can take work."""
        return server.usable or (self._answers(server) and self._refresh(server))

    def _lost(self, server: Server, error: ServerError | None = None) -> None:
        """Stop using a server; restart it if it is our own and the learner does not need its device now.

        Raises:
            UserError: see `_restart`.
        """
        if error is not None:
            server.failure = str(error)
        if server.usable:
            remedy = "it will be restarted" if server.command else "if it does not come back, restart it"
            reason = ": ".join(filter(None, (server.failure or server.address, server.first_error())))
            print(f"{NEEDED_BY}: lost a server; {remedy} ({reason})", file=sys.stderr)
        server.usable, server.version = False, None
        if server.command and self._asleep:
            server.stop()
        elif server.command:
            self._restart(server)

    def _restart(self, server: Server) -> None:
        """Restart an own server.

        Raises:
            UserError: if it failed before with the same error and the same weights.
        """
        failure = (server.first_error(), self.version)
        if failure[0] and self._failures.get(server) == failure:
            raise UserError(
                f"{NEEDED_BY}: the server {server.address} failed twice in the same way, so it is not "
                f"restarted again: {server.last_words()}"
            )
        self._failures[server] = failure
        server.start()

    def last_words(self) -> str:
        """The last errors of the servers that have failed."""
        return " | ".join(server.last_words() for server in self.servers if not server.usable)

    def available(self) -> tuple[list[Server], str]:
        """See `Spreading.available`."""
        assert self._synced or all(server.command for server in self.servers), "a sync before the first sequence"
        with self._lock:
            return self._wait_for(self._revive), self.version

    def note_failures(self, errors: Mapping[Server, ServerError]) -> None:
        """See `Spreading.note_failures`."""
        with self._lock:
            for server, error in errors.items():
                if isinstance(error, OtherWeightsError):
                    server.usable = False  # it gets the right weights before the next round
                else:
                    self._lost(server, error)

    def _say_waiting(self, servers: Sequence[Server], begun: float, due: float) -> float:
        """Print the servers awaited if a line is due, one every `seconds`. Returns when the next one is due."""
        now = time.monotonic()
        if now < due:
            return due
        names, limit = ", ".join(server.address for server in servers), self.options.start_seconds
        so_far = f" for {now - begun:.0f} s" if now - begun >= 1 else ""
        print(f"{NEEDED_BY}: no answer{so_far}; waiting up to {limit:g} s for {names}", file=sys.stderr)
        return now + self.options.seconds

    def _wait_for(self, answers: Callable[[Server], bool]) -> list[Server]:
        """Wait for servers for which `answers` is true; returns all of them.

        Own servers that worked and say nothing for `seconds` are restarted, and get the time of a start.

        Raises:
            UserError: if there is none in time.
        """
        begun = due = time.monotonic()
        deadline = begun + self.options.start_seconds
        frozen = [server for server in self.servers if server.usable and server.command]
        while True:
            with ThreadPoolExecutor(len(self.servers)) as pool:
                replies = pool.map(answers, self.servers)
                answering = [server for server, reply in zip(self.servers, replies, strict=True) if reply]
            if answering:
                return answering
            now = time.monotonic()
            if frozen and now > begun + self.options.seconds:
                for server in frozen:
                    self._lost(server, ServerError(f"{server.address} gave no answer for {self.options.seconds:g} s"))
                frozen, deadline = [], now + self.options.start_seconds
            if now > deadline:
                raise UserError(f"{NEEDED_BY}: no server is left: {self.last_words()}")
            due = self._say_waiting(self.servers, begun, due)
            time.sleep(POLL_SECONDS)
