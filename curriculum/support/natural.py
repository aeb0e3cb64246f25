"""Orders names by the numbers in them, as people do."""

import re


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key that orders the numbers within names by value ("2" before "10"), and numbers before words."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]
