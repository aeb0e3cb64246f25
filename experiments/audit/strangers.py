"""Why a file that the user named is no log, in a few words: what it holds instead, and what would help."""

import zlib

from halfway.experiments.audit.files import LINES, MARK, READ, Found, opened
from halfway.experiments.audit.formats.base import head_of

LOOKED_AT = 1 << 16
MOST_NAMES = 8
PACKED = b"\x1f\x8b"


def why_unknown(found: Found) -> str:
    """One clause about a file of no known format."""
    if found.kind not in READ:
        return "logs are JSON lines, CSV, Parquet or SQLite, and its name ends in none of theirs"
    head = head_of(found)
    if head.columns:
        names = ", ".join(sorted(head.columns)[:MOST_NAMES]) + (", ..." if len(head.columns) > MOST_NAMES else "")
        return f"it has {names}, which is no trainer's log of rollouts; a table needs a problem and a reward"
    try:
        with opened(found.path) as file:
            start = file.read(LOOKED_AT)
    except (OSError, EOFError, zlib.error):
        return "it is not packed by gzip, as its name says, or damaged"
    return _of_bytes(start, found.kind)


def _of_bytes(start: bytes, kind: str) -> str:
    text = start.removeprefix(MARK).lstrip()
    if not text:
        return "it is empty"
    if start.startswith(PACKED):
        return "it is packed by gzip; let its name end in .gz"
    if kind not in (*LINES, ".csv"):
        return f"it is no {kind.removeprefix('.')} file that can be read, or has no table of rollouts"
    if b"\0" in start:
        return "it is no UTF-8 text"
    if text.startswith(b"["):
        return "it is one JSON array; write a record on each line, such as by `jq -c '.[]'`"
    if text.startswith(b"{"):
        return "its first line is no whole JSON record; write a record on each line"
    return "its first line is no JSON record" if kind in LINES else "it has no header"
