"""Named random streams: every draw is a function of (seed, place in the run, member)."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, slots=True)
class Stream:
    """The address of a random stream, without state: equal addresses give equal draws.

    The stream of a chain member is addressed by its name, not by its place in the chain, so that adding, removing or
    nesting members never changes the draws of another.

    Attributes:
        seed: the run's seed.
        path: place in the run, for example ("propose", step, round).
        name: name of the member.

    Example:
        >>> stream = Stream(0, ("propose", 3))
        >>> stream.for_member("greso").uniform() == stream.for_member("other").for_member("greso").uniform()
        True
        >>> stream.for_member("greso").uniform() == stream.for_member("other").uniform()
        False
    """

    seed: int
    path: tuple[str | int, ...] = ()
    name: str = ""

    def at(self, *keys: str | int) -> "Stream":
        """The stream one level further down."""
        return replace(self, path=(*self.path, *keys))

    def for_member(self, name: str) -> "Stream":
        """The stream of the member called `name`, instead of any earlier name."""
        return replace(self, name=name)

    def integer(self) -> int:
        """A 64-bit seed that belongs to this address."""
        digest = hashlib.blake2b(repr((self.seed, self.path, self.name)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")

    def uniform(self) -> float:
        """One number in [0, 1) that belongs to this address; much cheaper than a generator for a single draw."""
        return (self.integer() >> 11) * 2.0**-53

    def generator(self) -> np.random.Generator:
        """A fresh generator at the beginning of this stream."""
        return np.random.default_rng(self.integer())
