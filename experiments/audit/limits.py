"""What a file of a log may stand for, since a small file may be made to stand for very much."""

MOST_VALUES = 4_000_000
"""Maximum commas, and maximum brackets, in a line: each may become an object of many bytes."""

UNPACKED, DENSEST = 64 << 20, 100
"""Bytes that every packed file may stand for, and how many times its size a larger one may."""

TOO_DENSE = f"packed file that stands for more than {DENSEST} times its size, read up to there; unpack it to trust it"


class TooDenseError(OSError):
    """A packed file stands for very much more than it holds."""


def require_moderate(unpacked: int, packed: int) -> None:
    """Raise TooDenseError if a file of `packed` bytes stands for so many that somebody made it to."""
    if unpacked > UNPACKED and unpacked > DENSEST * packed:
        raise TooDenseError


def is_moderate(line: bytes) -> bool:
    """Whether a line has few enough values to be decoded."""
    return len(line) <= MOST_VALUES or (
        line.count(b",") <= MOST_VALUES and line.count(b"[") + line.count(b"{") <= MOST_VALUES
    )
