"""The contract of a box: a work tree with walls around it, in which commands run that nobody has read."""

from dataclasses import dataclass
from typing import Literal, Protocol

from halfway.curriculum.support.registry import Registry

BOXES = Registry(
    what="box",
    group="halfway.boxes",
    builtin={
        "bubblewrap": "halfway.curriculum.boxes.bubblewrap:Bubblewrap",
        "swerex": "halfway.curriculum.boxes.swerex:SweRex",
    },
)

Ended = Literal["exit", "time", "memory"]


@dataclass(frozen=True, slots=True)
class Base:
    """What a work tree begins as. A box never changes it.

    Attributes:
        tree: a folder on this machine, for boxes that run here.
        image: a container image, for boxes that run containers.
        place: where the work tree stands inside.
    """

    tree: str = ""
    image: str = ""
    place: str = "/repo"


@dataclass(frozen=True, slots=True)
class Executed:
    """What one command did.

    Attributes:
        output: standard output and standard error together. Of a long one, beginning and end.
        ended: "exit" if it ended by itself, else the limit that ended it.
        seconds: wall-clock time.
    """

    status: int
    output: str
    ended: Ended = "exit"
    seconds: float = 0.0


class BoxLostError(Exception):
    """The infrastructure failed, through no fault of the command: the box is gone, and so is the episode."""


class BoxFullError(Exception):
    """The work tree does not fit into the box's limit on disk."""


class Box(Protocol):
    """One open work tree. Used by one thread at a time; different boxes by different threads.

    Every method raises BoxLostError if the box is gone.
    """

    def exec(self, command: str, seconds: float, given: bytes = b"") -> Executed:
        """Run a command of bash in the work tree, in a fresh shell. Nothing that it starts lives on.

        Args:
            seconds: wall-clock limit.
            given: its standard input.
        """
        ...

    def read(self, path: str) -> bytes:
        """A file of the work tree. Raises FileNotFoundError if there is none."""
        ...

    def write(self, path: str, content: bytes) -> None:
        """Write a file of the work tree. Raises BoxFullError if there is no room for it."""
        ...

    def save(self) -> bytes:
        """All that commands have changed, files being the whole state. Equal trees give equal bytes."""
        ...

    def restore(self, saved: bytes) -> None:
        """Make the tree what it was at `save`, here or in another box of the same base; b"" = the base itself."""
        ...

    def close(self) -> None:
        """End the box. Nothing is left of it."""
        ...


class BoxMaker(Protocol):
    """Opens boxes; registered under a name, a frozen dataclass whose fields are options."""

    @property
    def forkable(self) -> bool:
        """Whether `save` and `restore` work, so that a state can be continued more than once."""
        ...

    def check(self) -> None:
        """Raise UserError if this machine cannot run boxes, as far as can be known before the first task."""
        ...

    def require(self, base: Base) -> None:
        """Raise UserError if a base is of a kind that these boxes cannot open; nothing is started."""
        ...

    def open(self, base: Base) -> Box:
        """A box with an untouched work tree.

        Raises:
            UserError: if this machine cannot run boxes, or the base is not there.
            BoxLostError: if it does not start.
        """
        ...
