"""Arrays that lie in a store outside the process that plans: in files, or in an object store."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from halfway.curriculum.groups import Group
from halfway.curriculum.rollouts import Turn
from halfway.curriculum.support.errors import UserError

Array = NDArray[Any]
FIELDS = ("tokens_T", "logprobs_T", "entropies_T", "observation_tokens_O")
"""The arrays of a turn that go into a store."""


class Payload(Protocol):
    """The place of a group's arrays. A store may remove them when nothing refers to the place any longer."""

    @property
    def name(self) -> str:
        """What a message calls it: the option that chose the store, and the file if there is one."""
        ...

    def read(self, start: int, size: int) -> bytes | memoryview:
        """Read bytes, fewer at the end of a file that was cut. Raises UserError if they are lost."""
        ...


class Store(Protocol):
    """Keeps the arrays of groups."""

    def put(self, content: bytes) -> Payload: ...


class UnreadArray(NDArrayOperatorsMixin):
    """An array of one axis that knows its length and type, and reads its values whenever they are used.

    numpy takes it as an array; its elements, methods and operators are those of the array.
    """

    __slots__ = ("dtype", "size")

    def __init__(self, dtype: np.dtype[Any], size: int):
        self.dtype, self.size = dtype, size

    def read(self) -> Array:
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        values = self.read()
        return values if dtype is None else values.astype(dtype)

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        read = (one.read() if isinstance(one, UnreadArray) else one for one in inputs)
        return getattr(function, method)(*read, **options)

    def __len__(self) -> int:
        return self.size

    @property
    def shape(self) -> tuple[int]:
        return (self.size,)

    def __getitem__(self, index: Any) -> Any:
        return self.read()[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.read(), name)


class StoredArray(UnreadArray):
    """An array in a store.

    Attributes:
        start: its first byte in the payload.
        digest: its `identity`.
    """

    __slots__ = ("digest", "payload", "start")

    def __init__(self, payload: Payload, dtype: np.dtype[Any], size: int, start: int, digest: bytes):
        super().__init__(dtype, size)
        self.payload, self.start, self.digest = payload, start, digest

    def read(self) -> Array:
        """Read the values. Raises UserError if they are lost or damaged."""
        content = self.payload.read(self.start, self.size * self.dtype.itemsize)
        if _digest(content) != self.digest:
            raise UserError(
                f"{self.payload.name} is damaged: its bytes are not those that were written; resume the run"
            )
        return np.frombuffer(content, self.dtype)


class JoinedArray(UnreadArray):
    """Arrays of one type, one after another. What lies in the first is read alone."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Any]):
        super().__init__(parts[0].dtype, sum(map(len, parts)))
        self.parts = parts

    def read(self) -> Array:
        return np.concatenate([np.asarray(part) for part in self.parts])

    def __getitem__(self, index: Any) -> Any:
        first = self.parts[0]
        inside = isinstance(index, slice) and index.stop is not None and 0 <= index.stop <= len(first)
        inside = inside and (index.start or 0) >= 0 and index.step in (None, 1)
        return first[index] if inside else self.read()[index]


def join(parts: Sequence[Any]) -> Any:
    """Concatenate arrays, without reading those in a store."""
    unread = any(isinstance(part, UnreadArray) for part in parts)
    return JoinedArray(parts) if unread else np.concatenate(parts)


def identity(array: Any) -> bytes:
    """A hash that is equal for equal arrays of one type. A stored array is not read."""
    same: bytes = array.digest if isinstance(array, StoredArray) else _digest(bytes_of(array))
    return same


def bytes_of(array: Array) -> memoryview:
    """The bytes of an array, without a copy if they lie one after another."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _digest(content: bytes | memoryview) -> bytes:
    return sha256(content).digest()[:16]


def put_group(group: Group, store: Store) -> Group:
    """Put the arrays of a group's turns into a store, in one payload."""
    turns = [turn for rollout in group.rollouts for turn in rollout.turns]
    arrays = [np.asarray(getattr(turn, name)) for turn in turns for name in FIELDS]
    content = b"".join(map(bytes_of, arrays))
    if not content:
        return group
    payload, start = store.put(content), 0
    stored: list[Any] = []
    for array in arrays:
        one = StoredArray(payload, array.dtype, len(array), start, identity(array)) if len(array) else array
        stored.append(one)
        start += array.nbytes
    found = iter(stored)

    def moved(turn: Turn) -> Turn:
        return replace(turn, **{name: next(found) for name in FIELDS})

    rollouts = tuple(replace(one, turns=tuple(moved(turn) for turn in one.turns)) for one in group.rollouts)
    return replace(group, rollouts=rollouts)
