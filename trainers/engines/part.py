"""The interface of a rollout engine before it is built: options, checks, memory, and its servers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from halfway.curriculum import require
from halfway.curriculum.support.acceptance import require_accepted
from halfway.trainers.distributed.cluster import ClusterOptions, ShapeOptions
from halfway.trainers.engines.contract import Engine, EngineSetup

GIB = 2**30
LOCAL = ("localhost", "127.0.0.1", "[::1]")


def bytes_of(dtype: str) -> int:
    """Bytes per number of a type, named as in torch."""
    return 2 if dtype == "bfloat16" else 4


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """Facts about a run that are known before any part of it is built.

    Attributes:
        model_path: `model.path`, as in the configuration.
        dtype: type of the policy's weights, "float32" or "bfloat16".
        max_response_tokens, max_sequences: see `halfway.trainers.rollouts.rollout_options.RolloutOptions`.
        cluster: the machines for the run.
        shape: sizes of the model; None if unknown.
    """

    model_path: str
    dtype: str
    max_response_tokens: int
    max_sequences: int
    cluster: ClusterOptions = field(default_factory=ClusterOptions)
    shape: ShapeOptions | None = None


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Memory of an engine in bytes, by purpose, in addition to the learner's.

    Attributes:
        sampling, updating: on each device of the engine, during sampling and during the learner's update.
        host: main memory during the learner's update, per device of the host.
        remedy: engine options that reduce it, for the message if a run does not fit.
    """

    sampling: Mapping[str, float]
    updating: Mapping[str, float]
    host: Mapping[str, float] = field(default_factory=dict)
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Service:
    """A server that runs on a host before the run starts: program and arguments, port, additional environment."""

    words: tuple[str, ...]
    port: int
    environment: Mapping[str, str] = field(default_factory=dict)


class SplitEngine(NamedTuple):
    """An engine that samples in a process other than the learner's.

    Attributes:
        there: the sampler, like an `Engine`; it is pickled and sent to that process.
        here: builds its proxy in the learner's process, which takes the weights, from a function that calls a method of
            `there`, by name and with arguments, when nothing is being sampled.
    """

    there: Any
    here: Callable[[Callable[..., Any]], Engine]


class EnginePart(ABC):
    """A registered engine: a frozen dataclass of its options, which can build it and describes it before that.

    `rollouts.engine` names it. Importing it must be fast, so deep-learning libraries are imported in `build`.

    Attributes:
        placement: options that only say where the engine computes; a run may be resumed with other values.
        address_option: the option that takes the "host:port" of its `services`, as a list.
    """

    placement: ClassVar[tuple[str, ...]] = ()
    address_option: ClassVar[str] = ""

    @abstractmethod
    def build(self, setup: EngineSetup) -> Engine:
        """Build the engine.

        Raises:
            UserError: if the engine is not installed or cannot run the model.
        """

    @abstractmethod
    def memory(self, run: PlannedRun, shape: ShapeOptions) -> EngineMemory:
        """Memory that the engine needs on the machines.

        Args:
            shape: sizes of the model.
        """

    @property
    def uses_module(self) -> bool:
        """True if the engine samples with the module in `EngineSetup.policy`, instead of only reading it at a sync.

        A learner with sharded weights then keeps a whole copy for it.
        """
        return True

    def weight_dtype(self, policy_dtype: str) -> str:
        """The type of the engine's weights, named as in torch, for a policy of this type."""
        return policy_dtype

    @property
    def can_split(self) -> bool:
        """True if the engine can sample in another process while the learner updates, see `split`."""
        return False

    @property
    def samples_across_syncs(self) -> bool:
        """True if sequences that are being sampled continue with new weights, see `halfway.trainers.loop`."""
        return False

    def split(self, setup: EngineSetup) -> SplitEngine:
        """Build the engine in two parts, for two processes.

        Args:
            setup: with a copy of the policy in main memory, if the engine `uses_module`.
        """
        raise NotImplementedError

    @property
    def changes_process(self) -> bool:
        """True if building the engine starts or changes processes, so that every run needs its own process."""
        return True

    @property
    def sleeps(self) -> bool:
        """True for a `SleepingEngine`, which frees its devices for the learner during an update."""
        return False

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of prompt and response together; 0 = the maximum of the model."""
        return 0

    def check(self, run: PlannedRun) -> None:
        """Refuse a run that the engine cannot serve. Its own options are checked when they are read.

        Raises:
            UserError: one line that names the field by its path, from `rollouts` on.
        """
        limit, room = run.max_response_tokens, self.max_length
        remedy = f"the engine's max_length={room} is for prompt and response together; lower the one or raise the other"
        require(room == 0 or limit < room, "rollouts.max_response_tokens", limit, remedy)

    def services(self, run: PlannedRun, host: str) -> Sequence[Service]:
        """The servers on a rollout host; empty if the engine works only inside the training processes.

        Args:
            host: the only address of the host on which they listen.
        """
        return ()


def require_known_servers(field: str, addresses: Sequence[str]) -> None:
    """Raise UserError unless every server, as "host:port", is on this machine or has the user's consent."""
    for address in addresses:
        host = address.rpartition(":")[0]
        if host not in LOCAL:
            require_accepted(f"server:{host}", field, f"sends prompts and weights to {host}")
