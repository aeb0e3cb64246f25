"""Sends weights from the learner to vLLM servers: in files, or by a broadcast between devices.

The servers' side is `halfway.trainers.engines.vllm_servers.weights.receiver`.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from torch import Tensor, distributed

from halfway.curriculum import UserError
from halfway.curriculum.support.extras import blaming, one_line
from halfway.trainers.distributed.ports import own_address
from halfway.trainers.engines.vllm_servers.server.protocol import ServerError
from halfway.trainers.engines.vllm_servers.server.server import Server
from halfway.trainers.engines.vllm_servers.server_options import FIELD
from halfway.trainers.engines.vllm_servers.weights.private_store import PrivateStore, open_store

# Bytes of weights in one part: the most of the gathered model that the learner holds in memory at a time.
PART_BYTES = 2**28
# NCCL's own timeout ends the process, so it is far longer than ours, which raises.
NCCL_LIMITS = 5
Weights = Iterator[tuple[str, Tensor]]
c10d: Any = distributed  # only half typed


class Transfer(Protocol):
    """Sends the learner's weights to vLLM servers."""

    def send(self, weights: Weights, servers: Sequence[Server], version: str) -> None:
        """Send the weights to all of these servers. The `version` of a server that fails becomes None.

        Raises:
            UserError: if the transfer fails as a whole.
        """
        ...

    def catch_up(self, server: Server, version: str) -> None:
        """Send a server the last weights, or leave its `version` at None if it has to wait for the next `send`.

        Before the first `send`, the server keeps the weights with which it started.

        Raises:
            ServerError: if the server fails.
        """
        ...


class Files:
    """Sends weights in files that every server can read, in shared memory or on a shared disk."""

    def __init__(self, folder: Path, seconds: float):
        """
        Args:
            seconds: longest silence of a server over one part.
        """
        self.folder, self.seconds = folder, seconds
        self._paths: list[str] = []
        self._sent = 0  # a version may be sent again, since an update may have had nothing to train on

    def send(self, weights: Weights, servers: Sequence[Server], version: str) -> None:
        """See `Transfer.send`.

        Raises:
            UserError: if the files cannot be written.
        """
        previous = {Path(path).parent for path in self._paths}
        self._sent += 1
        folder = self.folder / f"{version}.{self._sent}"
        remedy = "make room there, or name another folder that every server can read"
        with blaming(
            f"{FIELD}.folder: {str(self.folder.parent)!r} cannot store the weights", remedy, OSError, SafetensorError
        ):
            folder.mkdir()
            self._paths = list(write_files(weights, folder))
        for old in previous:
            shutil.rmtree(old, ignore_errors=True)

        def load(server: Server) -> None:
            try:
                self.catch_up(server, version)
            except ServerError as error:
                assert server.version is None
                server.failure = str(error)

        in_parallel(load, servers)

    def catch_up(self, server: Server, version: str) -> None:
        with updates([server], version, self.seconds, changes=bool(self._paths)):
            for path in self._paths:
                server.receive({"path": path}, self.seconds)


class Broadcast:
    """Broadcasts weights from the learner's device to all servers' devices: by NCCL between GPUs, by gloo between CPUs.

    A lost server comes back at the next `send`: only then do all learner processes gather the weights.
    """

    def __init__(self, folder: Path, seconds: float):
        """
        Args:
            folder: not needed.
            seconds: longest silence of a server over one part.
        """
        self.seconds = seconds
        self._members: Sequence[object] = []  # the servers' processes, which reveal a restart
        self._group: Any = None
        self._door: PrivateStore | None = None
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._sent = False

    def send(self, weights: Weights, servers: Sequence[Server], version: str) -> None:
        """See `Transfer.send`.

        Raises:
            UserError: if a server is lost on the way: the others then have a mix of two versions.
        """
        self._sent = True
        try:
            self._connect(servers)
            with ThreadPoolExecutor(len(servers)) as pool, updates(servers, version, self.seconds):
                for part in parts(weights):
                    info = {
                        "names": [name for name, _ in part],
                        "dtypes": [str(weight.dtype).removeprefix("torch.") for _, weight in part],
                        "shapes": [list(weight.shape) for _, weight in part],
                    }
                    receipts = [pool.submit(server.receive, info, self.seconds) for server in servers]
                    self._broadcast([weight for _, weight in part], receipts)
        except (ServerError, RuntimeError) as error:
            self._group, self._members = None, []
            raise UserError(
                f"{FIELD}.transfer: 'broadcast' lost a server while it took new weights "
                f"({one_line(error)}); restart the servers that are given by address and resume the run, or use "
                f"{FIELD}.transfer=files"
            ) from error

    def catch_up(self, server: Server, version: str) -> None:
        server.version = None
        if not self._sent:
            with updates([server], version, self.seconds, changes=False):
                pass

    def _broadcast(self, weights: Sequence[Tensor], receipts: Sequence["Future[None]"]) -> None:
        for weight in weights:
            broadcast(self._group, weight.to(self._device).contiguous(), self.seconds)
        for receipt in receipts:
            receipt.result()

    def _connect(self, servers: Sequence[Server]) -> None:
        """Make a group of this process, rank 0, and all workers of the servers, unless it already exists."""
        members = [server.process or server.address for server in servers]
        # After a restart, another process may have the same address.
        lost = any(server.version is None for server in servers)
        if self._group is not None and members == self._members and not lost:
            return
        # Servers on other hosts cannot reach this one by the address that a local server uses.
        address = max((own_address(server.address) for server in servers), key=lambda a: not a.startswith("127."))
        size = 1 + sum(server.width for server in servers)
        limit = timedelta(seconds=self.seconds)
        if self._door is not None:
            self._door.close()
        self._door = door = open_store(address, size, limit)
        first = [1 + sum(server.width for server in servers[:i]) for i in range(len(servers))]
        with ThreadPoolExecutor(len(servers)) as pool:
            about = {"address": address, "port": door.port, "key": door.key, "size": size, "seconds": self.seconds}
            answers = [
                pool.submit(server.join, about | {"rank": rank}, self.seconds)
                for server, rank in zip(servers, first, strict=True)
            ]
            self._group = make_group(door.store, 0, size, self._device, address, self.seconds)
            for answer in answers:
                answer.result()
        self._members = members


TRANSFERS: dict[str, Callable[[Path, float], Transfer]] = {"files": Files, "broadcast": Broadcast}


@contextmanager
def updates(servers: Sequence[Server], version: str, seconds: float, changes: bool = True) -> Iterator[None]:
    """Let the servers receive weights in a `with` block. Afterwards they have `version` and an empty cache.

    Args:
        changes: False = they already have these weights; none will be sent.
    """
    in_parallel(lambda server: server.begin_update(version, seconds, changes), servers)
    yield
    in_parallel(lambda server: server.end_update(version, seconds, changes), servers)


def in_parallel(act: Callable[[Server], object], servers: Sequence[Server]) -> None:
    """Call `act` with every server at once. Raises the first server's exception."""
    if servers:
        with ThreadPoolExecutor(len(servers)) as pool:
            list(pool.map(act, servers))


def make_group(store: Any, rank: int, size: int, device: str, address: str, seconds: float) -> Any:
    """Make a process group beside any others of this process: NCCL's on "cuda", gloo's on "cpu".

    All members have communicated when this returns: NCCL connects them only at the first broadcast.

    Args:
        address: this process's address, for gloo.
        seconds: longest wait for a member.

    Raises:
        RuntimeError: if a member does not join.
    """
    limit = timedelta(seconds=seconds)
    if torch.device(device).type == "cuda":
        options = c10d.ProcessGroupNCCL.Options()
        options._timeout = NCCL_LIMITS * limit
        group = c10d.ProcessGroupNCCL(store, rank, size, options)
    else:
        options = c10d.ProcessGroupGloo._Options()
        options._devices = [c10d.ProcessGroupGloo.create_device(hostname=address)]
        options._timeout = limit
        group = c10d.ProcessGroupGloo(store, rank, size, options)
    broadcast(group, torch.zeros(1, device=device), seconds)
    return group


def broadcast(group: Any, tensor: Tensor, seconds: float) -> None:
    """Copy the tensor of rank 0 to every member. Raises RuntimeError within `seconds` if a member is lost.

    Without a timeout, NCCL's `wait` only orders the streams and does not report a lost member.
    """
    options = c10d.BroadcastOptions()
    options.rootRank, options.rootTensor = 0, 0
    group.broadcast([tensor], options).wait(timedelta(seconds=seconds))


def parts(weights: Weights) -> Iterator[list[tuple[str, Tensor]]]:
    """Yield the weights in parts of at least `PART_BYTES`. A part is cleared when the caller asks for the next."""
    held: list[tuple[str, Tensor]] = []
    size = 0
    for name, weight in weights:
        held.append((name, weight))
        size += weight.nbytes
        if size >= PART_BYTES:
            yield held
            held.clear()  # the caller holds this list too: keeping both parts would double the memory
            held, size = [], 0
    if held:
        yield held


def write_files(weights: Weights, folder: Path) -> Iterator[str]:
    """Write weights to one file after the other, and yield the paths."""
    from safetensors.torch import save_file

    for number, part in enumerate(parts(weights)):
        path = str(folder / f"{number:05d}.safetensors")
        save_file({name: weight.to("cpu").contiguous() for name, weight in part}, path)
        yield path
