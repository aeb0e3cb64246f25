"""Options of the engine of vLLM servers, and the command that starts a server."""

import json
import sys
from dataclasses import dataclass
from typing import ClassVar, Literal

from halfway.curriculum import require
from halfway.trainers.distributed.cluster import ShapeOptions
from halfway.trainers.distributed.ports import HOST
from halfway.trainers.engines.part import GIB, EngineMemory, PlannedRun, bytes_of
from halfway.trainers.engines.vllm.vllm_options import FREE_SHARE, VllmOptions

FIELD, NEEDED_BY = "rollouts.engine.vllm_servers", "rollouts.engine: 'vllm_servers'"
FILE_COPIES = 2
ASLEEP_GIB = 2.0
"""Memory of a sleeping server on its device."""

BACKEND = "halfway"
# Tokens that a server reads in one step, on the smallest and on the largest GPUs. A server does not start with fewer
# than its sequences.
SMALLEST_STEP, LARGEST_STEP = 2048, 8192
EXTENSION = "halfway.trainers.engines.vllm_servers.weights.receiver.Registration"
MIDDLEWARE = "halfway.trainers.engines.vllm_servers.auth.Guard"
SERVER_ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",  # opens the endpoints for weights
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # otherwise all servers of a host share its first core
    "OMP_WAIT_POLICY": "PASSIVE",
    "PYTHONSAFEPATH": "1",  # imports nothing from the user's current folder
}


@dataclass(frozen=True)
class ServerOptions(VllmOptions):
    """Sampling with vLLM servers.

    Attributes:
        addresses: "host:port" of running servers, started with the same flags as Halfway's own; none = start `count`
            servers on this host.
        count: number of servers to start.
        transfer: transfer of weights: "files" that all servers can read; or "broadcast" to all servers at once, by NCCL
            between GPUs, one GPU per process, and by gloo between CPUs. With "broadcast", a lost server comes back at
            the next sync.
        folder: folder for the files and the servers' logs: shared memory on one host, a shared disk on several.
        start_seconds: seconds until a server must answer for the first time; many servers that load and compile a large
            model at once are slow. A server that exits is noticed at once.
        seconds: seconds for a request before another server samples it instead. While a server still answers /health, a
            sequence may take ten times as long. An own server that does not answer /health for so long is restarted,
            even if it is the only one; servers that are waited for are named every so many seconds.
        rounds: maximum number of times that a call sends its unanswered sequences before it fails.
        tensor_parallel: number of devices over which one server splits the model.
        sleep: whether the servers clear their devices during the update, for servers that share devices with the
            learner. A server that is still starting is ended, and restarted at the sync.
    """

    name: ClassVar[str] = "vllm_servers"
    placement: ClassVar[tuple[str, ...]] = ("addresses", "folder")
    address_option: ClassVar[str] = "addresses"

    addresses: tuple[str, ...] = ()
    count: int = 1
    transfer: Literal["files", "broadcast"] = "files"
    folder: str = "/dev/shm"
    start_seconds: float = 1200.0
    seconds: float = 120.0
    rounds: int = 5
    tensor_parallel: int = 1
    sleep: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for address in self.addresses:
            host, _, port = address.rpartition(":")
            numbered = port.isdecimal() and 0 < int(port) < 2**16
            known = HOST.fullmatch(host.removeprefix("[").removesuffix("]"))
            require(bool(known) and numbered, f"{self.name}.addresses", address, "write host:port")
        different = len(set(self.addresses)) == len(self.addresses)
        require(different, f"{self.name}.addresses", list(self.addresses), "name each server once")
        self._require("folder", self.folder != "", "give a folder such as /dev/shm")
        for option in ("count", "rounds", "tensor_parallel"):
            self._require(option, getattr(self, option) >= 1, "give at least 1")
        for option in ("start_seconds", "seconds"):
            self._require(option, getattr(self, option) > 0, "give a positive number")

    @property
    def uses_module(self) -> bool:
        return False

    @property
    def samples_here(self) -> bool:
        return not self.addresses

    @property
    def sleeps(self) -> bool:
        return self.sleep

    def check(self, run: PlannedRun) -> None:
        """Refuse lengths that servers cannot hold, and a `tensor_parallel` that cannot split the model."""
        super().check(run)
        width, cluster = self.tensor_parallel, run.cluster
        field, devices = f"{FIELD}.tensor_parallel", cluster.devices_per_node
        fits = width == 1 or not cluster.gpus or devices % width == 0
        require(fits, field, width, f"give a divisor of cluster.devices_per_node={devices}")
        if width == 1 or run.shape is None:
            return
        heads, pairs = run.shape.num_attention_heads, run.shape.num_key_value_heads
        require(heads % width == 0, field, width, f"give a divisor of the model's {heads} attention heads")
        shared = pairs % width == 0 or width % pairs == 0
        require(shared, field, width, f"give a divisor, or a multiple, of the model's {pairs} key-value heads")

    def memory(self, run: PlannedRun, shape: ShapeOptions) -> EngineMemory:
        parts = self.device_parts(run, shape, self.tensor_parallel)
        remedy = f"{FIELD}.kv_cache_gib"
        beside = self._host_memory(run, shape)
        if not self.sleep:
            return EngineMemory(parts, parts, beside, remedy)
        beside["engines asleep"] = parts["engine's weights"]
        return EngineMemory(parts, {"engine asleep": ASLEEP_GIB * GIB}, beside, remedy)

    def _host_memory(self, run: PlannedRun, shape: ShapeOptions) -> dict[str, float]:
        """Bytes per device in shared memory: two versions of the weights exist for a moment."""
        if self.transfer != "files" or not self.folder.startswith("/dev/shm"):
            return {}
        size = FILE_COPIES * shape.weights * bytes_of(self.weight_dtype(run.dtype))
        return {"weights in shared memory": size / run.cluster.devices_per_node}


def server_command(
    model_path: str, address: str, dtype: str, options: ServerOptions, max_sequences: int, chunked: bool
) -> tuple[str, ...]:
    """Build the command that starts a server with this Python, see `server_flags`.

    Args:
        address: "host:port" of the server.
    """
    host, _, port = address.rpartition(":")
    return (
        # `vllm serve` runs vllm.entrypoints.cli.main, which fails where the package is vllm-cpu.
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *(f"--model={model_path}", f"--host={host}", f"--port={port}"),
        *server_flags(dtype, options, max_sequences, chunked),
    )


def server_flags(dtype: str, options: ServerOptions, max_sequences: int, chunked: bool) -> tuple[str, ...]:
    """Build the flags of a server that Halfway can use.

    Args:
        chunked: whether the server may read a long context in parts; on a CPU, seeded requests then fail.
    """
    flags: dict[str, object] = {
        "dtype": dtype,
        "max-num-seqs": max_sequences,
        "kv-cache-memory-bytes": int(options.kv_cache_gib * GIB),
        "gpu-memory-utilization": FREE_SHARE,
        "block-size": options.block_size,
        "logprobs-mode": "processed_logprobs",
        "generation-config": "vllm",
        "worker-extension-cls": EXTENSION,
        "weight-transfer-config": json.dumps({"backend": BACKEND}),
        "middleware": MIDDLEWARE,
    }
    if options.max_length:
        flags["max-model-len"] = options.max_length
    if max_sequences > SMALLEST_STEP:
        flags["max-num-batched-tokens"] = max(LARGEST_STEP, max_sequences)
    if options.tensor_parallel > 1:
        flags["tensor-parallel-size"] = options.tensor_parallel
    switches = [
        "enable-prefix-caching",
        "skip-tokenizer-init",
        "enable-scale-out",  # the endpoint that takes and returns tokens
        "disable-log-stats",
        "disable-uvicorn-access-log",
        "enable-chunked-prefill" if chunked else "no-enable-chunked-prefill",
        *(["enforce-eager"] if options.eager else []),
        *(["enable-sleep-mode"] if options.sleep else []),
    ]
    return (*(f"--{name}={value}" for name, value in flags.items()), *(f"--{name}" for name in switches))
