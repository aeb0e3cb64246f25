"""Finds marked parts of a response, in linear time.

A policy that repeats itself may open a block ten thousand times and close none. A regular expression would search for
the end from each opening.
"""

import re

OPENING, CLOSING = re.compile(r"```(\w+)[ \t]*"), re.compile(r"```[ \t]*")


def find_fenced(text: str, *names: str) -> list[tuple[str, str]]:
    """Find each closed Markdown block with one of these names (without names: any), as name and content.

    A block begins with a line such as ```python and ends with the next line ```. A line that opens a block counts even
    inside a block of another name.
    """
    blocks: list[tuple[str, str]] = []
    name, inside = "", list[str]()
    for line in text.split("\n"):
        if not name:
            opened = OPENING.fullmatch(line)
            if opened and (not names or opened[1] in names):
                name, inside = opened[1], []
        elif CLOSING.fullmatch(line):
            blocks.append((name, "".join(f"{line}\n" for line in inside)))
            name = ""
        else:
            inside.append(line)
    return blocks


def find_between(text: str, opening: str, closing: str) -> list[str]:
    """Find the text between each opening mark and the next closing mark, from left to right, without overlaps."""
    parts: list[str] = []
    start = text.find(opening)
    while start >= 0:
        start += len(opening)
        end = text.find(closing, start)
        if end < 0:
            break
        parts.append(text[start:end])
        start = text.find(opening, end + len(closing))
    return parts
