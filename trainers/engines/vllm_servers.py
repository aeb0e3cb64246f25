"""Sampling through vLLM servers: one or many, here or elsewhere, any of which may die."""

import atexit
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

from curriculum.errors import UserError
from curriculum.extras import load_extra
from curriculum.rollouts import IntArray
from trainers.deepspeed_backend import free_port
from trainers.engines.base import Completion, Engine, EngineSetup, Finished
from trainers.engines.transfer import TRANSFERS, Transfer, in_parallel
from trainers.engines.vllm_server import LARGEST_SEED, OtherWeightsError, Server, ServerError, server_command
from trainers.options import RolloutOptions
from trainers.weights import named_weights

NEEDED_BY = "rollouts.engine: 'vllm_servers'"
POLL_SECONDS = 0.5
GRACE_SECONDS = 10.0


def vllm_servers_engine(setup: EngineSetup) -> Engine:
    """Sampling through vLLM servers, started here or given by address; a lost one costs a retry, and is restarted.

    With several training processes the first one speaks to the servers.

    Raises:
        UserError: if vLLM is not installed, or the servers do not start.
    """
    options = setup.options
    if options.vllm.entropies:
        raise UserError("rollouts.vllm.entropies: servers do not tell them; use rollouts.engine=vllm, or false")
    if distributed.is_initialized() and distributed.get_rank() > 0:
        return Bystander()
    if not options.servers.addresses:
        load_extra("vllm", NEEDED_BY, "vllm")
    dtype = str(setup.policy.dtype).removeprefix("torch.") if options.vllm.dtype == "auto" else options.vllm.dtype
    width = options.servers.tensor_parallel
    folder = Path(tempfile.mkdtemp(prefix="halfway-", dir=options.servers.folder))
    if options.servers.addresses:
        servers = [Server(address, width=width) for address in options.servers.addresses]
    else:
        servers = []
        for number in range(options.servers.count):
            port = free_port()
            command = server_command(setup.model_path, dtype, port, options, chunked=torch.cuda.is_available())
            log, devices = folder / f"server-{number}.log", own_devices(number, width)
            servers.append(Server(f"127.0.0.1:{port}", command, log, devices, width=width))
    engine = VllmServersEngine(servers, setup.eos_token_ids, options, folder, getattr(torch, dtype))
    atexit.register(engine.close)
    engine.begin()
    return engine


def own_devices(number: int, width: int) -> dict[str, str]:
    """Which devices of this host a server sees; servers beyond the last one start again at the first."""
    if not torch.cuda.is_available():
        return {}
    count = torch.cuda.device_count()
    return {"CUDA_VISIBLE_DEVICES": ",".join(str((number * width + i) % count) for i in range(width))}


class VllmServersEngine:
    """Spreads sequences over servers by load; those with one context, such as a group, go to one server.

    All servers that get work hold the weights of the last `sync`; a completion sampled by any others is not accepted.
    What a failed server has not answered is sampled again, with the same seeds, by the others. A server of ours is
    started again and gets the current weights before work; one given by address is taken back once it answers.
    """

    serves_all = True

    def __init__(
        self,
        servers: Sequence[Server],
        eos_token_ids: Sequence[int],
        options: RolloutOptions,
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
        self.transfer: Transfer = TRANSFERS[options.servers.transfer](folder, options.servers.seconds)
        self._dtype = dtype
        self.retried = 0  # sequences that had to be sampled again
        self._eos_token_ids = list(eos_token_ids)
        self._number = 0
        self._asleep = False

    def begin(self) -> None:
        """Start the servers that are ours, and wait for all.

        Raises:
            UserError: if one is not up in time.
        """
        for server in self.servers:
            if server.command:
                server.start()
        deadline = time.monotonic() + self.options.servers.start_seconds
        for server in self.servers:
            while not self._revive(server):
                ended = server.process is not None and server.process.poll() is not None
                if ended or time.monotonic() > deadline:
                    why = "ended at once" if ended else f"gave no answer in {self.options.servers.start_seconds:g} s"
                    raise UserError(
                        f"{NEEDED_BY}: the server {server.address} {why}; see {server.log or 'its own log'}"
                    )
                time.sleep(POLL_SECONDS)

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
        """Continue each context, see `trainers.engines.base.Engine.generate`.

        Raises:
            UserError: if sequences are still unanswered after so many rounds as there may be.
        """
        samplings = [self._sampling(limit, seed) for limit, seed in zip(max_new_tokens, seeds, strict=True)]
        done: dict[int, Completion] = {}
        for number in range(self.options.servers.rounds):
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
                f"{self.options.servers.rounds} rounds; see the servers' logs in {self.folder}"
            )
        return [done[i] for i in range(len(contexts))]

    def sleep(self) -> None:
        """Have the servers clear their devices, until the next `sync`."""
        in_parallel(self._send_to_sleep, [server for server in self.servers if server.usable])
        self._asleep = True

    def _send_to_sleep(self, server: Server) -> None:
        try:
            server.sleep(self.options.servers.seconds)
        except ServerError:
            self._lost(server)

    def _wake(self, server: Server) -> None:
        try:
            server.wake(self.options.servers.seconds)
        except ServerError:
            self._lost(server)

    def sync(self, policy: nn.Module) -> None:
        """Hand the weights of `policy` to every server that answers, a few tensors at a time, in the servers' dtype.

        Raises:
            UserError: if no server takes them.
        """
        if self._asleep:
            in_parallel(self._wake, [server for server in self.servers if server.usable])
            self._asleep = False
        self._number += 1
        ready = self._wait_for(Server.healthy)
        for server in self.servers:
            if server.usable and server not in ready:
                self._lost(server)
        weights = named_weights(policy)
        self.transfer.send(((name, weight.to(self._dtype)) for name, weight in weights), ready, str(self._number))
        for server in ready:
            server.usable = server.version is not None
            if not server.usable:
                self._lost(server)
        self._available()

    def _refresh(self, server: Server) -> bool:
        """Give a server that answers the current weights. Returns whether it has them now.

        Raises:
            UserError: if that has to wait for the next `sync`, and no other server has them.
        """
        try:
            self.transfer.catch_up(server, str(self._number))
        except ServerError:
            self._lost(server)
            return False
        server.usable = server.version is not None
        if not any(each.usable for each in self.servers):
            raise UserError(
                f"rollouts.servers.transfer: {self.options.servers.transfer!r} brings weights to a lost server at the "
                "next step only, and no server that has them is left; resume the run, or use "
                "rollouts.servers.transfer=files"
            )
        return server.usable

    def _revive(self, server: Server) -> bool:
        """Take a server back if it answers. Returns whether it can work."""
        return server.usable or (server.healthy() and self._refresh(server))

    def _lost(self, server: Server) -> None:
        """Send nothing more to a server; start it again, if it is ours."""
        server.usable, server.version = False, None
        if server.command:
            server.start()

    def _available(self) -> list[Server]:
        """Servers with the current weights."""
        return self._wait_for(self._revive)

    def _wait_for(self, answers: Callable[[Server], bool]) -> list[Server]:
        """The servers for which it is true. Waits until there is one.

        Raises:
            UserError: if there is none in time.
        """
        deadline = time.monotonic() + self.options.servers.start_seconds
        while True:
            with ThreadPoolExecutor(len(self.servers)) as pool:
                found = [s for s, answer in zip(self.servers, pool.map(answers, self.servers), strict=True) if answer]
            if found:
                return found
            if time.monotonic() > deadline:
                raise UserError(f"{NEEDED_BY}: no server answers any more; see their logs in {self.folder}")
            time.sleep(POLL_SECONDS)

    def _round(
        self, missing: Sequence[int], contexts: Sequence[IntArray], samplings: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[int, Completion]]:
        """Send out what is missing, once. Gives what is answered, as it comes."""
        servers = self._available()
        of_server = assign(missing, contexts, [sampling["max_tokens"] for sampling in samplings], len(servers))
        version, seconds = str(self._number), self.options.servers.seconds
        failed: dict[Server, ServerError] = {}

        def ask(server: Server, i: int) -> Completion | None:
            if server in failed:
                return None
            try:
                return server.generate(contexts[i], samplings[i], version, seconds)
            except ServerError as error:
                failed.setdefault(server, error)
                return None

        jobs = [(server, i) for server, share in zip(servers, of_server, strict=True) for i in share]
        with ThreadPoolExecutor(min(len(jobs), self.options.max_sequences * len(servers))) as pool:
            asked = {pool.submit(ask, server, i): i for server, i in jobs}
            for answer in as_completed(asked):
                done = answer.result()
                if done is not None:
                    yield asked[answer], done
        for server, error in failed.items():
            if isinstance(error, OtherWeightsError):
                server.usable = False  # and is given the right ones before the next round
            else:
                self._lost(server)

    def _sampling(self, limit: int, seed: int) -> dict[str, Any]:
        return {
            "temperature": self.options.temperature,
            "max_tokens": limit,
            "seed": seed & LARGEST_SEED,
            "stop_token_ids": self._eos_token_ids,
            "ignore_eos": True,  # the model's own: ours are above
            "logprobs": 0,  # of the sampled token alone
            "detokenize": False,
        }


class Bystander:
    """The engine of a training process that does not speak to the servers."""

    serves_all = True

    def generate(
        self,
        contexts: Sequence[IntArray],
        max_new_tokens: Sequence[int],
        seeds: Sequence[int],
        finished: Finished | None = None,
    ) -> list[Completion]:
        assert not contexts, "only the first process samples"
        return []

    def sync(self, policy: nn.Module) -> None:
        """Help to gather weights that are spread over the processes."""
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
