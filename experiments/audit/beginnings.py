"""Reads the beginning of a file once: the columns by which its format is recognised, or why it has none."""

import csv
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from halfway.experiments.audit.database import column_names
from halfway.experiments.audit.files import (
    LINES,
    LONGEST_LINE,
    MARK,
    READ,
    UNREADABLE,
    LogFile,
    kind_of,
    opened,
    standard,
)

LOOKED_AT = 1 << 20
MOST_NAMES = 8
PACKED = b"\x1f\x8b"


def begun(path: Path, given: Path) -> LogFile:
    """The file with what its beginning says.

    Args:
        given: the path given by the user, at or below which the file was found.
    """
    kind = kind_of(path)
    if kind not in READ:
        return LogFile(path, given, defect="not a JSON Lines, CSV, Parquet or SQLite file by its name")
    try:
        line = _first_line(path) if kind in LINES else _start(path)
    except UNREADABLE:
        return LogFile(path, given, defect="it is damaged, or not packed by gzip as its name says")
    columns: Iterable[tuple[str, bytes]] = ()
    if kind in LINES:
        columns = _fields(line)
    elif kind == ".csv":
        columns = ((name, b"") for name in header(line.decode("utf-8-sig", "replace")))
    elif kind == ".parquet":
        columns = ((name, b"") for name in column_names(path, given))
    named = _shared(tuple(columns))
    return LogFile(path, given, named, "" if named else _defect(line, kind))


def why_unknown(file: LogFile) -> str:
    """One clause that says why the format of a file is not known."""
    if file.defect:
        return file.defect
    names = ", ".join(sorted(file.columns)[:MOST_NAMES]) + (", ..." if len(file.columns) > MOST_NAMES else "")
    return (
        f"it has {names}, which no known trainer's log has; a table needs a problem and a reward; --reward NAME "
        "says which column is the reward"
    )


def header(text: str) -> list[str]:
    """The column names in the first line of a CSV file; empty if it has none."""
    try:
        return [name.strip() for name in next(csv.reader([text]), [])]
    except csv.Error:
        return []


def _first_line(path: Path) -> bytes:
    """The first line that is not blank; empty if there is none."""
    with opened(path) as file:
        line = file.readline(LONGEST_LINE)
        while line.isspace():
            line = file.readline(LONGEST_LINE)
    return line


def _start(path: Path) -> bytes:
    """The beginning of the first line, whatever it holds."""
    with opened(path) as file:
        return file.readline(LOOKED_AT)


def _fields(line: bytes) -> Iterable[tuple[str, bytes]]:
    """The fields of a record, each with the first byte of its value; none if the line is not a record, or too long."""
    try:
        record = msgspec.json.decode(standard(line.removeprefix(MARK)), type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return ()
    return ((name, bytes(value)[:1]) for name, value in record.items())


@lru_cache(maxsize=1024)
def _shared(columns: tuple[tuple[str, bytes], ...]) -> Mapping[str, bytes]:
    """The columns as a mapping that all files with the same columns share, since a run may have very many files."""
    return dict(columns)


def _defect(start: bytes, kind: str) -> str:
    """Why a file that begins with these bytes has no columns."""
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
