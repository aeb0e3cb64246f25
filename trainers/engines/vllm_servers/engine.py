"""Sampling through vLLM servers: one or many, here or elsewhere, any of which may die."""

import atexit
import fcntl
import os
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

from halfway.curriculum.rollouts import IntArray
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import load_extra, one_line
from halfway.trainers.distributed.collectives import wait_for_all
from halfway.trainers.distributed.ports import free_port
from halfway.trainers.engines.base import Completion, Engine, EngineSetup, Finished
from halfway.trainers.engines.vllm.options import LARGEST_SEED
from halfway.trainers.engines.vllm_servers.options import FIELD, ServerOptions
from halfway.trainers.engines.vllm_servers.server import (
    OtherWeightsError,
    Server,
    ServerError,
    server_command,
)
from halfway.trainers.engines.vllm_servers.transfer import TRANSFERS, Transfer, in_parallel
from halfway.trainers.learner.weights import named_weights

NEEDED_BY = "rollouts.engine: 'vllm_servers'"
POLL_SECONDS = 0.5
GRACE_SECONDS = 10.0
# Of this host: a shared disk may keep the locks of another one to itself.
PREFIX, CLAIM = f"halfway-{socket.gethostname()}-", "in-use"


def vllm_servers_engine(options: ServerOptions, setup: EngineSetup) -> Engine:
    """The engine, with the servers that it starts here or that are given by address.

    With several training processes the first one speaks to the servers.

    Raises:
        UserError: if vLLM is not installed, the weights cannot get to the servers, or these do not start.
    """
    if distributed.is_initialized() and distributed.get_rank() > 0:
        return with_own_weights(SyncOnlyEngine(), options, setup)
    if not options.addresses:
        load_extra("vllm", NEEDED_BY, "vllm")
    dtype, width = options.weight_dtype(str(setup.policy.dtype).removeprefix("torch.")), options.tensor_parallel
    if options.transfer == "broadcast" and torch.cuda.is_available():
        require_own_devices(options, next(setup.policy.parameters()).device.index or 0)
    folder = own_folder(options.folder)
    if options.addresses:
        servers = [Server(address, width=width) for address in options.addresses]
    else:
        servers = []
        for number in range(options.count):
            address, chunked = f"127.0.0.1:{free_port()}", torch.cuda.is_available()
            command = server_command(setup.model_path, address, dtype, options, setup.max_sequences, chunked)
            log, devices = folder / f"server-{number}.log", own_devices(number, width)
            servers.append(Server(address, command, log, devices, width=width))
    engine = VllmServersEngine(servers, options, setup, folder, getattr(torch, dtype))
    atexit.register(engine.close)
    engine.begin()
    return with_own_weights(engine, options, setup)


def with_own_weights(engine: Engine, options: ServerOptions, setup: EngineSetup) -> Engine:
    """The engine, its servers with the policy's weights: those given by address may hold another run's.

    All processes have to call it, since each may hold a part of the weights.
    """
    if options.addresses:
        wait_for_all()  # the others wait with patience for the one that waits for the servers
        engine.sync(setup.policy, setup.policy_version)
    return engine


def own_folder(parent: str) -> Path:
    """A new folder for weights and logs. What killed runs have left beside it, and nobody has removed, is removed.

    A run locks a file in its folder for as long as it lives. A file system that cannot lock keeps what was left.

    Raises:
        UserError: if there can be no folder.
    """
    for left in Path(parent).glob(f"{PREFIX}*"):
        with suppress(OSError), (left / CLAIM).open("rb+") as claim:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        own = os.open(folder / "claim", os.O_RDWR | os.O_CREAT)  # stays open until the process ends
    except OSError as error:
        raise UserError(
            f"{FIELD}.folder: {parent!r} cannot be written to ({one_line(error)}); make room there, or name a "
            "folder that every server can read"
        ) from error
    with suppress(OSError):
        fcntl.flock(own, fcntl.LOCK_EX)
    (folder / "claim").rename(folder / CLAIM)  # none without its lock is ever seen
    return folder


def own_devices(number: int, width: int) -> dict[str, str]:
    """Which devices of this host a server sees; servers beyond the last one start again at the first."""
    if not torch.cuda.is_available():
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(index) for index in range(torch.cuda.device_count())]
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[index].strip() for index in device_indices(number, width))}


def device_indices(number: int, width: int) -> list[int]:
    """The devices of a server, counted among those that this process sees."""
    return [(number * width + i) % torch.cuda.device_count() for i in range(width)]


def require_own_devices(options: ServerOptions, learner: int) -> None:
    """Refuse a broadcast between processes that share a device: NCCL has one process on each.

    Args:
        learner: the device of this process.

    Raises:
        UserError: if servers sleep, or are started on the learner's device or on one another's.
    """
    count = 0 if options.addresses else options.count
    devices = [learner, *(i for number in range(count) for i in device_indices(number, options.tensor_parallel))]
    if options.sleep or len(set(devices)) < len(devices):
        raise UserError(
            f"{FIELD}.transfer: 'broadcast' needs a GPU of its own for the learner and for every worker of a "
            f"server; use {FIELD}.transfer=files, or give addresses of servers on other GPUs, and sleep=false"
        )


class VllmServersEngine:
    """Spreads sequences over servers by load; those with one context, such as a group, go to one server.

    All servers that get work hold the weights of the last `sync`; a completion sampled by any others is not accepted.
    What a failed server has not answered is sampled again, with the same seeds, by the others. A server of ours is
    started again and gets the current weights before work; one given by address is taken back once it answers, and
    gets weights before its first work too.
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
        """Start the servers that are ours, and wait for all. Those given by address have no weights until `sync`.

        Raises:
            UserError: if one is not up in time, or cannot take weights.
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
        """End the servers that are ours, and remove the files."""
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
                unanswered after so many rounds as there may be.
        """
        assert self._synced or all(server.command for server in self.servers), "a sync before the first sequence"
        longest = max((len(c) + n for c, n in zip(contexts, max_new_tokens, strict=True)), default=0)
        # A server would lower the limit without a word.
        if self._max_length is not None and longest > self._max_length:
            raise UserError(
                f"{FIELD}.max_length: a prompt and its response may need {longest} tokens and a server holds "
                f"{self._max_length}; raise it, or lower rollouts.max_response_tokens"
            )
        samplings = [self._sampling(limit, seed) for limit, seed in zip(max_new_tokens, seeds, strict=True)]
        done: dict[int, Completion] = {}
        for number in range(self.options.rounds):
            missing = [i for i in range(len(contexts)) if i not in done]
            if not missing:
                break
            self.retried += len(missing) if number > 0 else 0
            for i, completion in self._round(missing, contexts, samplings):
                done[i] = completion
                if finished is not None:
                    finished(i, completion)
        if len(done) < len(contexts):
            raise UserError(
                f"{NEEDED_BY}: {len(contexts) - len(done)} sequences found no server in "
                f"{self.options.rounds} rounds; {self._last_words()}"
            )
        return [done[i] for i in range(len(contexts))]

    def sleep(self) -> None:
        """Have the servers clear their devices until the next `sync`; our own that have only started are ended."""
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
        wait_for_all()  # gathering weights has no patience with those who come late
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
            UserError: if that has to wait for the next `sync`, and no other server has them.
        """
        try:
            self.transfer.catch_up(server, self.version)
        except ServerError as error:
            self._lost(server, error)
            return False
        if server.version is not None:
            self._use(server)
        if not any(each.usable for each in self.servers):
            raise UserError(
                f"{FIELD}.transfer: {self.options.transfer!r} brings weights to a lost server at the "
                "next step only, and no server that has them is left; resume the run, or use "
                f"{FIELD}.transfer=files"
            )
        return server.usable

    def _answers(self, server: Server) -> bool:
        """Whether it can take weights. If it is ours and has ended, it is started again."""
        server.start_again()
        return server.ready()

    def _revive(self, server: Server) -> bool:
        """Take a server back if it answers. Returns whether it can work."""
        return server.usable or (self._answers(server) and self._refresh(server))

    def _lost(self, server: Server, error: ServerError | None = None) -> None:
        """Send nothing more to a server; start it again, if it is ours and its device is not the learner's now."""
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
        """What is known of the servers that cannot work."""
        return " | ".join(server.last_words() for server in self.servers if not server.usable)

    def _available(self) -> list[Server]:
        """Servers with the current weights."""
        return self._wait_for(self._revive)

    def _wait_for(self, answers: Callable[[Server], bool]) -> list[Server]:
        """The servers for which it is true. Waits until there is one.

        Raises:
            UserError: if there is none in time.
        """
        deadline = time.monotonic() + self.options.start_seconds
        while True:
            with ThreadPoolExecutor(len(self.servers)) as pool:
                found = [s for s, answer in zip(self.servers, pool.map(answers, self.servers), strict=True) if answer]
            if found:
                return found
            if time.monotonic() > deadline:
                raise UserError(f"{NEEDED_BY}: no server can work any more: {self._last_words()}")
            time.sleep(POLL_SECONDS)

    def _round(
        self, missing: Sequence[int], contexts: Sequence[IntArray], samplings: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[int, Completion]]:
        """Send out what is missing, once. Gives what is answered, as it comes."""
        servers = self._available()
        of_server = assign(missing, contexts, [sampling["max_tokens"] for sampling in samplings], len(servers))
        version, seconds = self.version, self.options.seconds
        failed: dict[Server, ServerError] = {}

        def ask(server: Server, i: int) -> Completion | None:
            if server in failed:
                return None
            try:
                return server.generate(contexts[i], samplings[i], version, seconds)
            except ServerError as error:
                failed.setdefault(server, error)
                return None

        # One pool a server: each has as much to do as it was made for, and no more.
        pools = [ThreadPoolExecutor(self._setup.max_sequences) for _ in servers]
        try:
            asked = {
                pool.submit(ask, server, i): i
                for pool, server, share in zip(pools, servers, of_server, strict=True)
                for i in share
            }
            for answer in as_completed(asked):
                done = answer.result()
                if done is not None:
                    yield asked[answer], done
        finally:
            for wait in (False, True):
                for pool in pools:
                    pool.shutdown(wait, cancel_futures=True)
        for server, error in failed.items():
            if isinstance(error, OtherWeightsError):
                server.usable = False  # and is given the right weights before the next round
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


class SyncOnlyEngine:
    """The engine of a training process that does not speak to the servers."""

    serves_all = True
    replicas = 1

    def generate(
        self,
        contexts: Sequence[IntArray],
        max_new_tokens: Sequence[int],
        seeds: Sequence[int],
        finished: Finished | None = None,
    ) -> list[Completion]:
        assert not contexts, "only the first process samples"
        return []

    def sync(self, policy: nn.Module, version: int) -> None:
        """Help to gather weights that are spread over the processes."""
        wait_for_all()
        for _ in named_weights(policy):
            pass


def assign(
    missing: Sequence[int], contexts: Sequence[IntArray], limits: Sequence[int], num_servers: int
) -> list[list[int]]:
    """The sequences of every server: equal contexts together, about equally many tokens to generate each."""
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
