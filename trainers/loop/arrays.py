"""Stores the arrays of a run in binary files, and their places in JSON.

A file is a concatenation of the arrays' bytes. A reference holds the dtype and the place of an array: its location,
then its shape (`halfway.curriculum.states.to_plain`).
"""

import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from halfway.curriculum.states import Array, Get
from halfway.curriculum.stored import StoredArray
from halfway.trainers.loop.manifest import SummedFile, entries

NAME = re.compile(r"arrays-\d{8,}\.bin")
MOST_ZEROS = 2**28
"""Size limit of an array of which the event log holds only the shape."""


class Place(NamedTuple):
    """Place of an array of a checkpoint: the file, the first byte, and the number of bytes."""

    file: str
    start: int
    size: int


class CheckpointArrays:
    """Writes the arrays of a run's checkpoints, each once, and reads them.

    If an earlier checkpoint wrote an array, a later one refers to that file. Each folder holds all files that it refers
    to, the earlier ones as hard links, so it is complete by itself. A file of which less than half is still needed, or
    that cannot be linked, is not reused: its needed arrays are written again.

    Arrays are equal if their bytes are. So a resumed run writes the same files as an uninterrupted run, and an array
    that a member changed in place counts as new.

    Attributes:
        newest: the folder of the newest checkpoint; None before the first.
    """

    def __init__(self) -> None:
        self.newest: Path | None = None
        self._known: dict[bytes, Place] = {}  # the arrays of the newest checkpoint
        self._wanted: dict[bytes, tuple[int, Array]] = {}

    def begin(self) -> None:
        """Begin a checkpoint: no array is needed yet."""
        self._wanted = {}

    def put(self, array: Array) -> list[int | None]:
        """Have `write` write an array. Its place begins with its number in the checkpoint."""
        number, _ = self._wanted.setdefault(_digest(array), (len(self._wanted), array))
        return [number, *array.shape]

    def write(self, folder: Path, name: str) -> tuple[list[Place], dict[str, list[int | str]]]:
        """Write all arrays that were put.

        Args:
            folder: of the checkpoint.
            name: of the file for the arrays that no earlier file holds.

        Returns:
            The places of the arrays by number, and the manifest entries of their files.
        """
        needed = Counter[str]()
        for digest in self._wanted.keys() & self._known.keys():
            needed[self._known[digest].file] += self._known[digest].size
        linked = {file for file, size in needed.items() if file != name and self._link(file, size, folder)}
        before = entries(self.newest) if self.newest and linked else {}
        places: dict[bytes, Place] = {}
        with closing(SummedFile(folder / name)) as out:
            for digest, (_, array) in self._wanted.items():
                place = self._known.get(digest)
                if place is None or place.file not in linked:
                    start = out.size
                    out.write(_bytes(array))
                    place = Place(name, start, out.size - start)
                places[digest] = place
        if out.size == 0:
            (folder / name).unlink()
        self._known = places
        return list(places.values()), {file: before[file] for file in linked} | ({name: out.entry} if out.size else {})

    def _link(self, file: str, needed: int, folder: Path) -> bool:
        """Link a file of the newest checkpoint into a folder. Returns True if that succeeded."""
        assert self.newest is not None
        try:
            if (self.newest / file).stat().st_size > 2 * needed:
                return False
            os.link(self.newest / file, folder / file)
        except OSError:
            return False
        return True

    def reader(self, folder: Path, places: Sequence[Place]) -> Get:
        """A reader of the arrays of a checkpoint, which becomes the newest one. Each array is read on demand.

        Args:
            places: of its arrays, by number.

        Raises:
            ValueError: if a place is in no file of arrays.
        """
        self.newest, self._known = folder, {}
        names = {place.file for place in places}
        if strange := [name for name in names if not NAME.fullmatch(name)]:
            raise ValueError(f"{strange[0]!r} is not a file of arrays")
        files = {name: np.memmap(folder / name, np.uint8, "r") for name in names}

        def get(dtype: str, at: Sequence[int | None]) -> Array:
            number, *shape = at
            assert number is not None
            place = places[number]
            array = array_of(files[place.file][place.start : place.start + place.size].tobytes(), dtype, shape)
            self._known[_digest(array)] = place
            return array

        return get


class EventArrays:
    """Collects the arrays of one group for the event log.

    Attributes:
        values: true = values are kept; false = only shapes.
        content: bytes of the arrays put so far.
    """

    def __init__(self, values: bool):
        self.values, self.content = values, bytearray()

    def put(self, array: Array) -> list[int | None]:
        """Add an array. Its place begins with its first byte in `content`."""
        if not self.values:
            return [None, *array.shape]
        start = len(self.content)
        self.content += _bytes(array)
        return [start, *array.shape]


def get_event_array(content: bytes, dtype: str, at: Sequence[int | None]) -> Array:
    """Read the array at a place of `EventArrays`; zeros if only the shape was kept."""
    start, *shape = at
    if start is None:
        axes = [axis or 0 for axis in shape]
        if math.prod(axes) > MOST_ZEROS:
            raise ValueError(f"an array of the shape {axes}")
        return np.zeros(axes, dtype)
    return array_of(memoryview(content)[start:], dtype, shape)


def array_of(content: bytes | memoryview, dtype: str, shape: Sequence[int | None]) -> Array:
    """A copy of the array at the beginning of some bytes. Raises ValueError if they are too few."""
    axes = [int(axis) for axis in shape if axis is not None]
    return np.frombuffer(content, dtype, math.prod(axes)).reshape(axes).copy()


def _bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _digest(array: Any) -> bytes:
    """A hash of an array's bytes; that of a stored array is known without reading it."""
    return array.digest if isinstance(array, StoredArray) else hashlib.sha256(_bytes(array)).digest()
