"""Stores the arrays of a run in binary files, and their places in JSON.

A file is a concatenation of the arrays' bytes. A reference holds the dtype and the place of an array: its location,
then its shape (`halfway.curriculum.states.to_plain`).
"""

import math
import re
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from halfway.curriculum.states import Array, Get
from halfway.curriculum.stored import bytes_of, identity
from halfway.trainers.loop.manifest import SummedFile

NAME = re.compile(r"arrays-\d{8,}\.bin")
ENDS = 32
"""Bytes at either end in which two arrays differ, or are compared by their hash."""
MOST_ZEROS = 2**28
"""Size limit of an array of which the event log holds only the shape."""


class Place(NamedTuple):
    """Place of an array of a checkpoint: the file, the first byte, and the number of bytes."""

    file: str
    start: int
    size: int


class CheckpointArrays:
    """Collects the arrays of one checkpoint, and writes each once.

    Arrays are equal if their bytes are, wherever they lie. No checkpoint shares a file with another,
    so damage to one spoils no other.
    """

    def __init__(self) -> None:
        self._arrays: list[Array] = []

    def put(self, array: Array) -> list[int | None]:
        """Have `write` write an array. Its place begins with its number in the checkpoint."""
        self._arrays.append(array)
        return [len(self._arrays) - 1, *array.shape]

    def write(self, path: Path) -> tuple[list[Place], dict[str, list[int | str]]]:
        """Write all arrays that were put to a file; none if there are none.

        Returns:
            The places of the arrays by number, and the manifest entry of the file.
        """
        if not self._arrays:
            return [], {}
        places, ends, digests = list[Place](), dict[tuple[int, bytes, bytes], int](), dict[bytes, int]()
        digest = cache(lambda number: identity(self._arrays[number]))
        with closing(SummedFile(path)) as out:
            for number, array in enumerate(self._arrays):
                content = bytes_of(array)
                outline = content.nbytes, bytes(content[:ENDS]), bytes(content[-ENDS:])
                same = alike = ends.setdefault(outline, number)
                if alike != number:  # most arrays are never hashed
                    digests.setdefault(digest(alike), alike)
                    same = digests.setdefault(digest(number), number)
                if same == number:
                    places.append(Place(path.name, out.size, content.nbytes))
                    out.write(content)
                else:
                    places.append(places[same])
        return places, {path.name: out.entry}


def array_reader(folder: Path, places: Sequence[Place]) -> Get:
    """A reader of the arrays of a checkpoint. Each is read on demand.

    Args:
        places: of its arrays, by number.

    Raises:
        ValueError: if a place is in no file of arrays.
    """
    names = {place.file for place in places}
    if strange := [name for name in names if not NAME.fullmatch(name)]:
        raise ValueError(f"{strange[0]!r} is not a file of arrays")
    files = {name: np.memmap(folder / name, np.uint8, "r").data for name in names}

    def get(dtype: str, at: Sequence[int | None]) -> Array:
        number, *shape = at
        assert number is not None
        file, start, size = places[number]
        return array_of(files[file][start : start + size], dtype, shape)

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
        self.content += bytes_of(array)
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
