"""Kinds of strangers' files: making, changing and reading a sound specimen as a user would."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def every_file(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def same(folder: Path) -> None:
    """Leave a changed specimen as it is."""


@dataclass(frozen=True)
class Kind:
    """One kind of file.

    Attributes:
        make: writes a specimen into an empty folder, by what the product writes it with.
        read: reads the specimen in a folder as a command does. Its result is compared by its `repr`.
        files: which files of a specimen are changed, given its folder.
        binary: whether bits are flipped too.
        sealed: whether the bytes carry a hash, so that no change may give another result.
        after: what a stranger does after a change, such as writing the checksums again.
        warm: what the parent process does once, given the specimen, so that no fork needs to.
        share: of the changes of other kinds, how many are tried: few for what takes seconds.
    """

    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    files: Callable[[Path], list[Path]] = every_file
    binary: bool = False
    sealed: bool = False
    after: Callable[[Path], None] = same
    warm: Callable[[Path], None] = same
    share: float = 1.0
