"""The interface of a rollout engine before it is built: options, checks, memory, and its servers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from halfway.curriculum.support.acceptance import require_accepted
from halfway.curriculum.support.errors import require
from halfway.trainers.distributed.cluster import ClusterOptions, ShapeOptions
from halfway.trainers.engines.base import Engine, EngineSetup

GIB = 2**30
LOCAL = ("localhost", "127.0.0.1", "[::1]")


def bytes_of(dtype: str) -> int:
    """Bytes per number of a type, which is given by its name in torch."""
    return 2 if dtype == "bfloat16" else 4


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """The facts known about a run before any part of it is built.

    Attributes:
        model_path: `model.path`, as in the configuration.
        dtype: the policy's type, "float32" or "bfloat16".
        max_response_tokens, max_sequences: see `halfway.trainers.rollouts.rollout_options.RolloutOptions`.
        cluster: the machines that the run is meant for.
        shape: sizes of the model; None if they are not known.
    """

    model_path: str
    dtype: str
    max_response_tokens: int
    max_sequences: int
    cluster: ClusterOptions = field(default_factory=ClusterOptions)
    shape: ShapeOptions | None = None


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """The memory that an engine needs beside the learner's, in bytes, by purpose.

    Attributes:
        sampling, updating: of each of the engine's devices while it samples, and while the learner updates.
        host: main memory while the learner updates, per device of the host.
        remedy: the engine's options that reduce it, for the message when a run does not fit.
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


class Apart(NamedTuple):
    """An engine that samples in another process than the learner's.

    Attributes:
        there: what samples, like an `Engine`. It is pickled on its way to that process.
        here: what stands for it in the learner's process and takes the weights; made from a function that calls a
            method of `there`, by name and with arguments, once nothing is being sampled.
    """

    there: Any
    here: Callable[[Callable[..., Any]], Engine]


class EnginePart(ABC):
    """A registered engine: a frozen dataclass of its options, which can build it and describes it before that.

    `rollouts.engine` names it. Importing it must be cheap: whatever loads a deep-learning library belongs in `build`.

    Attributes:
        placement: options that only say where the engine computes, so a run may be resumed with other values.
        address_option: the option that takes the "host:port" of its `services`, as a list.
    """

    placement: ClassVar[tuple[str, ...]] = ()
    address_option: ClassVar[str] = ""

    @abstractmethod
    def build(self, setup: EngineSetup) -> Engine:
        """Build the engine.

        Raises:
            UserError: if it is not installed, or cannot run the model.
        """

    @abstractmethod
    def memory(self, run: PlannedRun, shape: ShapeOptions) -> EngineMemory:
        """The memory that it needs on the machines.

        Args:
            shape: sizes of the model.
        """

    @property
    def uses_module(self) -> bool:
        """True if the engine computes with the module in `EngineSetup.policy`, and not only reads it at a sync.

        If so, a learner that spreads its weights over processes keeps a whole copy for it.
        """
        return True

    def weight_dtype(self, policy_dtype: str) -> str:
        """The type of the engine's weights, by its name in torch, for a policy of this type."""
        return policy_dtype

    @property
    def goes_apart(self) -> bool:
        """True if it can sample in another process while the learner updates, see `apart`."""
        return False

    @property
    def goes_on(self) -> bool:
        """True if sequences that are being sampled continue with new weights, see `halfway.trainers.loop`."""
        return False

    def apart(self, setup: EngineSetup) -> Apart:
        """Build the engine in two parts, for two processes.

        Args:
            setup: with a copy of the policy in main memory, if the engine `uses_module`.
        """
        raise NotImplementedError

    @property
    def changes_process(self) -> bool:
        """True if building it starts or changes processes, so that every run needs a process of its own."""
        return True

    @property
    def sleeps(self) -> bool:
        """True if it is a `SleepingEngine`, which leaves its devices to the learner during an update."""
        return False

    @property
    def max_length(self) -> int:
        """Largest number of tokens of prompt and response together; 0 = the model's own maximum."""
        return 0

    def check(self, run: PlannedRun) -> None:
        """Refuse a run that the engine could not serve. Its own options are checked when they are read.

        Raises:
            UserError: in one line that names the field by its path from `rollouts` on.
        """
        limit, room = run.max_response_tokens, self.max_length
        require(
            room == 0 or limit < room,
            "rollouts.max_response_tokens",
            limit,
            f"the engine's max_length={room} is for prompt and response together; lower the one or raise the other",
        )

    def services(self, run: PlannedRun, host: str) -> Sequence[Service]:
        """The servers that a rollout host runs for it; none if it works only inside the training processes.

        Args:
            host: the host's address, on which they listen, and on no other.
        """
        return ()


def require_known_servers(field: str, addresses: Sequence[str]) -> None:
    """Raise UserError unless every server, as "host:port", is on this machine or accepted by the user."""
    for address in addresses:
        host = address.rpartition(":")[0]
        if host not in LOCAL:
            require_accepted(f"server:{host}", field, f"sends prompts and weights to {host}")
