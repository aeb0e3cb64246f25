"""Limits on packed files and on lines: a small hostile file could unpack to very much."""

MOST_VALUES = 4_000_000
"""Maximum commas, and maximum brackets, in a line: each may become an object of many bytes."""

UNPACKED, DENSEST = 64 << 20, 100
"""Bytes to which every packed file may unpack; a larger one may unpack to this many times its size."""

TOO_DENSE = f"file that unpacks to more than {DENSEST} times its size, read in part; if you trust it, unpack it"


class TooDenseError(OSError):
    """A packed file unpacks to far more than its size."""


def require_moderate(unpacked: int, packed: int) -> None:
    """Raise TooDenseError if a file of `packed` bytes unpacks to suspiciously many."""
    if unpacked > most(packed):
        raise TooDenseError


def most(packed: int) -> int:
    """Most bytes to which a file of `packed` bytes may unpack."""
    return max(UNPACKED, DENSEST * packed)


def is_moderate(line: bytes) -> bool:
    """True if a line has few enough values to decode."""
    return len(line) <= MOST_VALUES or (
        line.count(b",") <= MOST_VALUES and line.count(b"[") + line.count(b"{") <= MOST_VALUES
    )
