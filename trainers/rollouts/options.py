"""The settings of rollouts: how the policy is sampled. Frozen values, no heavy import."""

from dataclasses import dataclass, field
from typing import Literal

from halfway.curriculum.support.errors import require


@dataclass(frozen=True)
class VllmOptions:
    """Sampling with vLLM.

    Attributes:
        dtype: of weights and cache; "auto" = model.dtype.
        max_length: most tokens of prompt and response together; 0 = what the model was made for.
        kv_cache_gib: memory for the key-value cache, GiB. It is taken as given, whatever is free at the start.
        block_size: tokens in a block of the cache. Only whole blocks of a shared context are computed once.
        eager: run without compiling. Compiling takes half a minute once, and sampling gets faster.
        entropies: whether to know the entropy of every sampled token. vLLM does not tell it, so the learner's policy
            computes it after sampling, in a forward pass of its own; false = entropies are NaN.
    """

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    max_length: int = 0
    kv_cache_gib: float = 1.0
    block_size: int = 32
    eager: bool = True
    entropies: bool = False

    def __post_init__(self) -> None:
        require(self.max_length >= 0, "rollouts.vllm.max_length", self.max_length, "give 0 (= the model's) or more")
        size = self.kv_cache_gib
        require(size > 0, "rollouts.vllm.kv_cache_gib", size, "give a positive number of GiB")
        block = self.block_size
        require(block >= 16 and block % 16 == 0, "rollouts.vllm.block_size", block, "give a multiple of 16")


@dataclass(frozen=True)
class ServerOptions:
    """vLLM servers.

    Attributes:
        addresses: "host:port" of servers that are already running, with the flags that `rollouts.engine=vllm_servers`
            starts its own with; none = start `count` servers on this host.
        count: servers to start.
        transfer: how weights are handed over: "files" that all servers can read; or "broadcast" to all of them at once,
            by NCCL between GPUs, each process on one of its own, and by gloo between CPUs; there a server that was lost
            comes back at the next sync.
        folder: for the files, shared memory on one host, a shared disk on several; and for the servers' logs.
        start_seconds: how long a server may take to answer for the first time.
        seconds: how long it may be silent over a request; what it has not answered then is sampled by another one.
            While it answers to /health, a sequence is waited for up to ten times as long.
        rounds: how often the sequences of one call are sent out until all are answered.
        tensor_parallel: devices that one server splits the model over.
        sleep: whether the servers clear their devices during the update, which the learner then has to itself; for
            servers that share devices with it. One that only starts is ended then, and started again at the sync.
    """

    addresses: tuple[str, ...] = ()
    count: int = 1
    transfer: Literal["files", "broadcast"] = "files"
    folder: str = "/dev/shm"
    start_seconds: float = 300.0
    seconds: float = 120.0
    rounds: int = 5
    tensor_parallel: int = 1
    sleep: bool = False

    def __post_init__(self) -> None:
        for address in self.addresses:
            host, _, port = address.rpartition(":")
            numbered = port.isdecimal() and 0 < int(port) < 2**16
            require(bool(host) and numbered, "rollouts.servers.addresses", address, "write host:port")
        different = len(set(self.addresses)) == len(self.addresses)
        require(different, "rollouts.servers.addresses", list(self.addresses), "name each server once")
        require(self.folder != "", "rollouts.servers.folder", self.folder, "give a folder such as /dev/shm")
        for name in ("count", "rounds", "tensor_parallel"):
            require(vars(self)[name] >= 1, f"rollouts.servers.{name}", vars(self)[name], "give at least 1")
        for name in ("start_seconds", "seconds"):
            require(vars(self)[name] > 0, f"rollouts.servers.{name}", vars(self)[name], "give a positive number")


@dataclass(frozen=True)
class RolloutOptions:
    """How the policy is sampled.

    Attributes:
        engine: registered name of the engine.
        num_rollouts: N, rollouts a group.
        temperature: divides the logits before sampling; log-probabilities belong to the tempered distribution.
        max_response_tokens: limit on all response tokens of an episode, replayed tokens included.
        max_sequences: sequences decoded at once.
        sync_tolerance: after every weight sync, engine and learner must give tokens after a fixed context
            log-probabilities that differ by at most this many nats, or the run stops; 0 = no check. In float32 they
            agree to 1e-4; in bfloat16 differences of 0.06 (0.3 M parameters) to 0.6 (135 M) were seen.
        vllm: settings of the engines "vllm" and "vllm_servers".
        servers: further ones of "vllm_servers".
    """

    engine: str = "transformers"
    num_rollouts: int = 8
    temperature: float = 1.0
    max_response_tokens: int = 128
    max_sequences: int = 512
    sync_tolerance: float = 0.0
    vllm: VllmOptions = field(default_factory=VllmOptions)
    servers: ServerOptions = field(default_factory=ServerOptions)

    def __post_init__(self) -> None:
        require(self.num_rollouts >= 2, "rollouts.num_rollouts", self.num_rollouts, "a group needs at least 2 rollouts")
        require(self.temperature > 0, "rollouts.temperature", self.temperature, "give a positive number")
        limit = self.max_response_tokens
        require(limit >= 2, "rollouts.max_response_tokens", limit, "give at least 2 tokens")
        require(self.max_sequences >= 1, "rollouts.max_sequences", self.max_sequences, "give at least 1")
        room = self.vllm.max_length if self.engine in ("vllm", "vllm_servers") else 0
        require(
            room == 0 or limit < room,
            "rollouts.max_response_tokens",
            limit,
            f"rollouts.vllm.max_length={room} is for prompt and response together; lower the one or raise the other",
        )
        tolerance = self.sync_tolerance
        require(tolerance >= 0, "rollouts.sync_tolerance", tolerance, "give 0 (= no check) or a number of nats")
