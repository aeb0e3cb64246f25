"""The contract of a box: an isolated work tree in which untrusted commands run."""

from dataclasses import dataclass
from typing import Literal, Protocol

Ended = Literal["exit", "time", "memory"]


@dataclass(frozen=True, slots=True)
class Base:
    """The starting state of a work tree. A box never changes it.

    Attributes:
        tree: a folder on this machine, for boxes that run here.
        image: a container image, for boxes that run containers.
        place: path of the work tree inside.
    """

    tree: str = ""
    image: str = ""
    place: str = "/repo"


@dataclass(frozen=True, slots=True)
class Executed:
    """The outcome of one command.

    Attributes:
        output: standard output and standard error together; of a long output only the beginning and the end.
        ended: "exit" if the command ended by itself, otherwise the limit that ended it.
        seconds: wall-clock time.
    """

    status: int
    output: str
    ended: Ended = "exit"
    seconds: float = 0.0


class BoxLostError(Exception):
    """The infrastructure failed, not the command: the box is gone, and so is the episode."""


class BoxFullError(Exception):
    """The work tree does not fit into the box's limit on disk."""


class Box(Protocol):
    """One open work tree. A box is used by one thread at a time; different threads may use different boxes.

    Every method raises BoxLostError if the box is gone.
    """

    def exec(self, command: str, seconds: float, stdin: bytes = b"") -> Executed:
        """Run a bash command in the work tree, in a fresh shell. All processes that it starts end with it.

        Args:
            seconds: wall-clock limit.
            stdin: standard input.
        """
        ...

    def read(self, path: str) -> bytes:
        """Read a file of the work tree. Raises FileNotFoundError if there is none."""
        ...

    def write(self, path: str, content: bytes) -> None:
        """Write a file of the work tree. Raises BoxFullError if there is no room for it."""
        ...

    def save(self) -> bytes:
        """Save all changes of the tree, which are the whole state. Equal trees give equal bytes."""
        ...

    def restore(self, saved: bytes) -> None:
        """Bring the tree to its state at `save`, in this or another box with the same base; b"" = the base itself."""
        ...

    def close(self) -> None:
        """End the box and remove all traces of it."""
        ...


class BoxMaker(Protocol):
    """Opens boxes: a frozen dataclass, registered under a name, whose fields are options."""

    @property
    def forkable(self) -> bool:
        """True if `save` and `restore` work, so that a state can be used more than once."""
        ...

    def check(self) -> None:
        """Raise UserError if this machine cannot run boxes, as far as this is known before the first task."""
        ...

    def require(self, base: Base) -> None:
        """Raise UserError if these boxes cannot open this kind of base. Starts nothing."""
        ...

    def open(self, base: Base) -> Box:
        """Open a box whose work tree equals the base.

        Raises:
            UserError: if this machine cannot run boxes, or the base does not exist.
            BoxLostError: if the box does not start.
        """
        ...
