"""Starts the engine: its servers, their devices, their token, and the folder of a run for weights and logs.

The folder is checked for room, locked while the run lives, and removed after it dies.
"""

import atexit
import fcntl
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import distributed, nn

from halfway.curriculum import IntArray, UserError
from halfway.curriculum.support.extras import blaming, load_extra
from halfway.trainers.distributed.collectives import wait_for_all
from halfway.trainers.distributed.ports import free_port
from halfway.trainers.engines.contract import Completion, Engine, EngineSetup, Finished
from halfway.trainers.engines.part import GIB, require_known_servers
from halfway.trainers.engines.vllm_servers.auth import FILE_VARIABLE, VARIABLE, given_token, new_token
from halfway.trainers.engines.vllm_servers.engine import VllmServersEngine
from halfway.trainers.engines.vllm_servers.server.server import Server
from halfway.trainers.engines.vllm_servers.server_options import (
    FIELD,
    FILE_COPIES,
    NEEDED_BY,
    SERVER_ENVIRONMENT,
    ServerOptions,
    server_command,
)
from halfway.trainers.learner.weights import named_weights

# This host's name: on a shared disk, another host's locks may not be visible.
PREFIX, CLAIM = f"halfway-{socket.gethostname()}-", "in-use"


def vllm_servers_engine(options: ServerOptions, setup: EngineSetup) -> Engine:
    """Make the engine. Its servers are started here or given by address.

    With several training processes, the first one talks to the servers.

    Raises:
        UserError: if vLLM is not installed, the weights cannot reach the servers, or the servers do not start.
    """
    if distributed.is_initialized() and distributed.get_rank() > 0:
        return with_own_weights(SyncOnlyEngine(), options, setup)
    if not options.addresses:
        load_extra("vllm", NEEDED_BY, "vllm")
    dtype, width = options.weight_dtype(str(setup.policy.dtype).removeprefix("torch.")), options.tensor_parallel
    if options.transfer == "broadcast" and torch.cuda.is_available():
        require_own_devices(options, next(setup.policy.parameters()).device.index or 0)
    require_known_servers(f"{FIELD}.addresses", options.addresses)
    if options.transfer == "files":
        require_room_for_weights(options.folder, setup.policy, getattr(torch, dtype).itemsize)
    folder = own_folder(options.folder)
    if options.addresses:
        token = token_of_servers()
        servers = [Server(address, width=width, token=token) for address in options.addresses]
    else:
        servers, token = [], new_token()
        for number in range(options.count):
            address, chunked = f"127.0.0.1:{free_port()}", torch.cuda.is_available()
            command = server_command(setup.model_path, address, dtype, options, setup.max_sequences, chunked)
            log, environment = folder / f"server-{number}.log", SERVER_ENVIRONMENT | own_devices(number, width)
            servers.append(Server(address, command, log, environment, width=width, token=token))
    shape = getattr(setup.policy, "config", None)
    for server in servers:
        server.vocabulary = int(getattr(shape, "vocab_size", server.vocabulary))
        server.in_flight = setup.in_flight
    engine = VllmServersEngine(servers, options, setup, folder, getattr(torch, dtype))
    atexit.register(engine.close)
    engine.begin()
    return with_own_weights(engine, options, setup)


def token_of_servers() -> str:
    """Read the token of servers given by address. Raises UserError if the environment does not have it."""
    token = given_token()
    if token is None:
        raise UserError(
            f"{FIELD}.addresses: servers need a token; set {VARIABLE}, or {FILE_VARIABLE} to a file of mode 600, "
            "to the token that they were started with"
        )
    return token


def with_own_weights(engine: Engine, options: ServerOptions, setup: EngineSetup) -> Engine:
    """Send the policy's weights to the engine's servers, since servers given by address may have another run's.

    All processes must call it: each may hold a part of the weights.
    """
    if options.addresses:
        wait_for_all()  # with a long timeout: the first process may wait long for the servers
        engine.sync(setup.policy, setup.policy_version)
    return engine


def own_devices(number: int, width: int) -> dict[str, str]:
    """Assign devices of this host to a server; after the last device, servers start again at the first."""
    if not torch.cuda.is_available():
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(index) for index in range(torch.cuda.device_count())]
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[index].strip() for index in device_indices(number, width))}


def device_indices(number: int, width: int) -> list[int]:
    """Indices of a server's devices among those that this process sees."""
    return [(number * width + i) % torch.cuda.device_count() for i in range(width)]


def require_own_devices(options: ServerOptions, learner: int) -> None:
    """Refuse a broadcast between processes that share a device: NCCL allows one process per device.

    Args:
        learner: the device of this process.

    Raises:
        UserError: if servers sleep, or share a device with the learner or with each other.
    """
    count = 0 if options.addresses else options.count
    devices = [learner, *(i for number in range(count) for i in device_indices(number, options.tensor_parallel))]
    if options.sleep or len(set(devices)) < len(devices):
        raise UserError(
            f"{FIELD}.transfer: 'broadcast' needs a GPU of its own for the learner and for every worker of a "
            f"server; use {FIELD}.transfer=files, or give addresses of servers on other GPUs, and sleep=false"
        )


class SyncOnlyEngine(Engine):
    """The engine of a training process that does not talk to the servers."""

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

    def sync(self, policy: nn.Module, version: int) -> None:
        """Help to gather weights that are split over the processes."""
        wait_for_all()
        for _ in named_weights(policy):
            pass


def require_room_for_weights(folder: str, policy: nn.Module, bytes_each: int) -> None:
    """Refuse a folder without room for two versions of the weights. `own_folder` refuses a missing folder.

    Raises:
        UserError: if there is too little room, as in a container's default 64 MB of shared memory.
    """
    weights = sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in policy.parameters())
    wanted = FILE_COPIES * weights * bytes_each
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
        if free < wanted:
            raise UserError(
                f"{FIELD}.folder: {folder!r} has {free / GIB:.2f} GiB free but two versions of the weights need "
                f"{wanted / GIB:.2f}; give a container more (docker run --shm-size, an emptyDir with medium: Memory), "
                "or name another folder that every server can read"
            )


def own_folder(parent: str) -> Path:
    """Make a folder for weights and logs; remove the folders of killed runs beside it.

    A run locks a file in its folder while it lives. On a file system without locks, old folders stay.

    Raises:
        UserError: if the folder cannot be made.
    """
    for left in filter(_is_ours, Path(parent).glob(f"{PREFIX}*")):
        with suppress(OSError), _claim(left):
            shutil.rmtree(left, ignore_errors=True)
    remedy = "make room there, or name a folder that every server can read"
    with blaming(f"{FIELD}.folder: {parent!r} cannot be written to", remedy, OSError):
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        own = os.open(folder / "claim", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)  # stays open until the process ends
    with suppress(OSError):
        fcntl.flock(own, fcntl.LOCK_EX)
    (folder / "claim").rename(folder / CLAIM)  # the claim is never visible without its lock
    return folder


def _is_ours(folder: Path) -> bool:
    """True if this user made a folder: in shared memory, others may plant links and folders of the same name."""
    with suppress(OSError):
        made = folder.lstat()
        return stat.S_ISDIR(made.st_mode) and made.st_uid == os.geteuid()
    return False


@contextmanager
def _claim(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. Raises OSError if its run lives, or if the folder is not a run's."""
    claim = os.open(folder / CLAIM, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(claim)
