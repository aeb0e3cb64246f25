"""Explains why a file that the user named is not a log: what it holds instead, and what would help."""

import zlib

from halfway.experiments.audit.files import LINES, MARK, READ, Found, opened
from halfway.experiments.audit.formats.base import head_of

LOOKED_AT = 1 << 16
MOST_NAMES = 8
PACKED = b"\x1f\x8b"


def why_unknown(found: Found) -> str:
    """One clause that says why the format of a file is not known."""
    if found.kind not in READ:
        return "not a JSON Lines, CSV, Parquet or SQLite file by its name"
    head = head_of(found)
    if head.columns:
        names = ", ".join(sorted(head.columns)[:MOST_NAMES]) + (", ..." if len(head.columns) > MOST_NAMES else "")
        return (
            f"it has {names}, which no known trainer's log has; a table needs a problem and a reward; --reward NAME "
            "says which column is the reward"
        )
    try:
        with opened(found.path) as file:
            start = file.read(LOOKED_AT)
    except (OSError, EOFError, zlib.error):
        return "it is damaged, or not packed by gzip as its name says"
    return _of_bytes(start, found.kind)


def _of_bytes(start: bytes, kind: str) -> str:
    text = start.removeprefix(MARK).lstrip()
    if not text:
        return "it is empty"
    if start.startswith(PACKED):
        return "it is packed by gzip; rename it to end in .gz"
    if kind not in (*LINES, ".csv"):
        return f"it cannot be read as a {kind.removeprefix('.')} file, or has no table of rollouts"
    if b"\0" in start:
        return "it is not UTF-8 text"
    if text.startswith(b"["):
        return "it is one JSON array; write one record per line, for example with `jq -c '.[]'`"
    if text.startswith(b"{"):
        return "its first line is not a whole JSON record; write one record per line"
    return "its first line is not a JSON record" if kind in LINES else "it has no header"
