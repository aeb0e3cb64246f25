"""Finds the files below a path and reads their beginnings and their lines, treating every file as hostile.

Lines have a maximum length and number of values, and packed files a maximum ratio. Links out of the folder are not
followed, and known pickles are not opened, since opening a pickle can run code.
"""

import csv
import gzip
import io
import json
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from halfway.curriculum import UserError
from halfway.curriculum.support.atomic import is_finite, walk
from halfway.experiments.audit.database import (
    DENSEST,
    MOST_VALUES,
    TOO_DENSE,
    UNPACKED,
    TooDenseError,
    column_names,
    is_moderate,
    require_moderate,
)
from halfway.experiments.output_flags import natural

Row = TypeVar("Row")

BLOCK = 4 << 20
LONGEST_LINE = 256 << 20
"""Maximum bytes per line. Some trainers write a whole step as one line."""

LINES = (".jsonl", ".ndjson", ".json")
READ = (*LINES, ".csv", ".parquet", ".db", ".sqlite", ".sqlite3")
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib")
ARRAYS = re.compile(r"arrays-\d{8,}\.bin|events\.bin")
"""Files of a run of Halfway with the bytes of arrays, without pickles."""

MARK = b"\xef\xbb\xbf"
"""The byte order mark with which some editors begin UTF-8 files."""

LOOKED_AT = 1 << 20
"""Maximum bytes of a table's first line."""

MOST_NAMES = 8
ELEMENTS = 1024
"""Records of a JSON array to decode together."""

PACKED = b"\x1f\x8b"
POINTER = b"version https://git-lfs.github.com/"
PICKLE = "pickle: opening it can run code, so it was not opened"
OUTSIDE = "link that leads out of the folder"
NOT_REGULAR = "not a regular file"
UNREADABLE = (OSError, EOFError, zlib.error)
"""Exceptions of reading a file that is damaged, or not packed as its name says."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file that may be a log, with the columns at its beginning.

    Attributes:
        given: the path given by the user, at or below which the file was found.
        columns: the fields of the first record, or the columns of a table. The values are the first bytes of the first
            record's values, empty for a table.
        defect: why the beginning has no columns, in words; empty if it has.
    """

    path: Path
    given: Path
    columns: Mapping[str, bytes] = field(default_factory=dict)
    defect: str = ""

    @property
    def kind(self) -> str:
        return kind_of(self.path)

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def has(self, *names: str) -> bool:
        """True if all these names are fields of the first record, or columns of the table."""
        return all(name in self.columns for name in names)

    def opens(self, name: str) -> bytes:
        """The first byte of a field's value in the first record; empty if there is no such field."""
        return self.columns.get(name, b"")


def kind_of(path: Path) -> str:
    """The last suffix other than ".gz", in lower case; empty if there is none."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix != ".gz"), "")


def find(given: Path, drop: Callable[[str], None]) -> list[Path]:
    """Find the files at or below a path that may be logs, in the natural order of their names.

    Args:
        drop: called with the reason for every refused file.

    Raises:
        UserError: if there is nothing at the path, or it is a single file that must not be opened.
    """
    if not given.exists():
        raise UserError(f"{given}: does not exist; give a file or folder of logs")
    if not given.is_dir():
        reason = why_refused(given, given.parent)
        if reason and reason != OUTSIDE:
            raise UserError(f"{given}: {reason}; give the text log of the run instead")
        return [given]
    paths = []
    for folder, _, names in walk(given):
        for name in names:
            if ARRAYS.fullmatch(name):
                continue
            path = Path(folder, name)
            reason = why_refused(path, given)
            if reason:
                drop(reason)
            elif kind_of(path) in READ and not name.startswith("."):
                paths.append(path)
    return sorted(paths, key=lambda path: natural(str(path.relative_to(given))))


def why_refused(path: Path, root: Path) -> str:
    """Why a file must not be opened; "" if it may be."""
    suffixes = {suffix.lower() for suffix in path.suffixes[-2:]}
    if suffixes & set(PICKLES):
        return PICKLE
    try:
        if path.is_symlink() and not path.resolve(strict=True).is_relative_to(root.resolve()):
            return OUTSIDE
        return "" if stat.S_ISREG(path.stat().st_mode) and is_finite(path) else NOT_REGULAR
    except (OSError, RuntimeError):  # a link to nothing, or to itself
        return NOT_REGULAR


LONGEST_STEP = 18
"""Maximum number of digits of a step; Python refuses to read very many."""


def number_in(name: str) -> int | None:
    """The last number in a file name, such as 12 in "train_data_step12.jsonl"; None if there is none."""
    digits = re.findall(r"\d+", name)
    return int(digits[-1]) if digits and len(digits[-1]) <= LONGEST_STEP else None


def open_log(path: Path) -> io.BufferedIOBase:
    """Open a file for reading bytes; a ".gz" file is decompressed while it is read."""
    if path.suffix.lower() != ".gz":
        return open(path, "rb")
    return _Unpacked(path)


class _Unpacked(gzip.GzipFile):
    """The content of a file packed by gzip."""

    def __init__(self, path: Path):
        super().__init__(path)
        self._size, self._read = path.stat().st_size, 0

    def read1(self, size: int = -1) -> bytes:
        return self._counted(super().read1(size))

    def readline(self, size: int | None = -1) -> bytes:
        most = max(UNPACKED, DENSEST * self._size) + 1
        return self._counted(super().readline(most if size is None or size < 0 else min(size, most)))

    def _counted(self, piece: bytes) -> bytes:
        self._read += len(piece)
        require_moderate(self._read, self._size)
        return piece


def unreadable(error: BaseException) -> str:
    """The reason why the rest of a file is left out."""
    if isinstance(error, TooDenseError):
        return TOO_DENSE
    return f"file that could not be read to its end ({type(error).__name__})"


@dataclass(frozen=True, slots=True)
class Lines(Generic[Row]):
    """Reads the records of a JSON Lines file in batches.

    Attributes:
        row: the type into which each line is decoded. Other fields are skipped without decoding.
        drop: called with the reason for every line that is left out, and for a file that cannot be read to its end.
    """

    row: type[Row]
    drop: Callable[[str], None]

    def batches(self, path: Path) -> Iterator[list[Row]]:
        """Yield lists of records, each of about `BLOCK` bytes or one longer line. A damaged file ends at the damage."""
        decoder = msgspec.json.Decoder(self.row)
        try:
            with open_log(path) as file:
                listed = _is_listed(file.peek(1))  # type: ignore[attr-defined]
                for block in _elements(path, blocks=True) if listed else self._blocks(file):
                    if len(block) > 2 * BLOCK and not is_moderate(block):
                        self.drop(f"line of more than {MOST_VALUES:,} values")
                        continue
                    try:
                        rows = decoder.decode_lines(block)
                    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                        rows = list(self._one_by_one(decoder, block))
                    if rows:
                        yield rows
        except UNREADABLE as error:
            self.drop(unreadable(error))

    def _blocks(self, file: io.BufferedIOBase) -> Iterator[bytes]:
        """Yield whole lines, a block at a time; lines that are too long are dropped."""
        parts: list[bytes] = []
        too_long = False
        first = True
        while block := file.read1(BLOCK):
            if first:
                block, first = block.removeprefix(MARK), False
            begin = block.find(b"\n") + 1 if too_long else 0
            if too_long and begin == 0:
                continue
            too_long = False
            end = block.rfind(b"\n") + 1
            if end > begin:
                yield b"".join([*parts, block[begin:end]])
                parts = []
            parts.append(block[max(begin, end) :])
            if sum(map(len, parts)) > LONGEST_LINE:
                self.drop(f"line of more than {LONGEST_LINE >> 20} MiB")
                parts, too_long = [], True
        rest = b"".join(parts)
        if rest.strip():
            yield rest

    def _one_by_one(self, decoder: "msgspec.json.Decoder[Row]", block: bytes) -> Iterator[Row]:
        for line in block.splitlines(keepends=True):
            if line.isspace():
                continue
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                try:
                    yield decoder.decode(standard(line))
                except (msgspec.DecodeError, ValueError, RecursionError):
                    whole = line.endswith(b"\n")
                    self.drop("line that is not such a record" if whole else "last line, cut off")


def standard(line: bytes) -> bytes:
    """Replace Python's NaN and Infinity, which are not standard JSON, by null."""
    if b"NaN" not in line and b"Infinity" not in line:
        return line
    return msgspec.json.encode(json.loads(line))


def read_beginning(path: Path, given: Path) -> LogFile:
    """Read the beginning of a file.

    Args:
        given: the path given by the user, at or below which the file was found.
    """
    kind = kind_of(path)
    if kind not in READ:
        return LogFile(path, given, defect="not a JSON Lines, CSV, Parquet or SQLite file by its name")
    try:
        line = _first_line(path) if kind in LINES else _start(path)
    except UNREADABLE:
        return LogFile(path, given, defect="it is damaged, or not compressed by gzip as its name says")
    columns: Iterable[tuple[str, bytes]] = ()
    if kind in LINES:
        columns = _fields(next(_elements(path), line))
    elif kind == ".csv" and not line.startswith(POINTER):
        columns = ((name, b"") for name in header(line.decode("utf-8-sig", "replace")))
    elif kind == ".parquet" and not line.startswith(POINTER):
        columns = ((name, b"") for name in column_names(path, given))
    named = _shared(tuple(columns))
    return LogFile(path, given, named, "" if named else _defect(line, kind))


def _elements(path: Path, blocks: bool = False) -> Iterator[bytes]:
    """Yield the records of a file that is one JSON array or table, each on its own line; none for other files.

    Args:
        blocks: whether to join the records into blocks of lines.
    """
    parts, size = [], 0
    with open_log(path) as file:
        while size <= LONGEST_LINE and (part := file.read1(BLOCK)):
            parts.append(part)
            size += len(part)
            if len(parts) == 1 and not _is_listed(part):
                return
    text = b"".join(parts).removeprefix(MARK)
    if size > LONGEST_LINE or not is_moderate(text):
        return
    try:
        found = msgspec.json.decode(standard(text), type=list[msgspec.Raw] | _Table)
    except (ValueError, RecursionError):
        return
    records = found if isinstance(found, list) else map(msgspec.json.encode, found.records())
    lines = (bytes(record).replace(b"\n", b" ").replace(b"\r", b" ") + b"\n" for record in records)
    yield from iter(lambda: b"".join(islice(lines, ELEMENTS)), b"") if blocks else lines


class _Table(msgspec.Struct):
    """A table in JSON as Weights & Biases writes it, and pandas with orient="split"."""

    columns: list[str]
    data: list[list[msgspec.Raw]]

    def records(self) -> Iterator[dict[str, msgspec.Raw]]:
        return (dict(zip(self.columns, row, strict=False)) for row in self.data)


def _is_listed(beginning: bytes) -> bool:
    """True if a file begins like a list of records, or like a table."""
    begin = beginning[:64].removeprefix(MARK).lstrip()
    return begin[:1] == b"[" or re.match(rb'\{\s*"columns"\s*:\s*\[', begin) is not None


def why_unknown(file: LogFile) -> str:
    """One clause: why the format of a file is unknown."""
    if file.defect:
        return file.defect
    names = ", ".join(sorted(file.columns)[:MOST_NAMES]) + (", ..." if len(file.columns) > MOST_NAMES else "")
    return (
        f"it has {names}, which no known trainer's log has; a table needs a problem and a reward of each rollout: name "
        "their columns with --problem NAME and --reward NAME (averages of steps are not enough)"
    )


def header(text: str) -> list[str]:
    """The column names in the first line of a CSV file; empty if it has none."""
    try:
        return [name.strip() for name in next(csv.reader([text], delimiter=delimiter(text)), [])]
    except csv.Error:
        return []


def delimiter(line: str) -> str:
    """The delimiter of a header: the first of the usual characters that it contains."""
    return next((mark for mark in ",;\t|" if mark in line), ",")


def _first_line(path: Path) -> bytes:
    """The first line that is not blank, or its beginning if it is not text; empty if there is none."""
    with open_log(path) as file:
        line = file.readline(LOOKED_AT)
        while line.isspace():
            line = file.readline(LOOKED_AT)
        whole = line[-1:] in (b"", b"\n") or b"\0" in line
        return line if whole else line + file.readline(LONGEST_LINE)


def _start(path: Path) -> bytes:
    """The beginning of the first line."""
    with open_log(path) as file:
        return file.readline(LOOKED_AT)


def _fields(line: bytes) -> Iterable[tuple[str, bytes]]:
    """The fields of a record, each with the first byte of its value; none if the line is not a record, or too long."""
    if not is_moderate(line):
        return ()
    try:
        record = msgspec.json.decode(standard(line.removeprefix(MARK)), type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return ()
    return ((name, bytes(value)[:1]) for name, value in record.items())


@lru_cache(maxsize=1024)
def _shared(columns: tuple[tuple[str, bytes], ...]) -> Mapping[str, bytes]:
    """The columns as a mapping, shared by all files with the same columns: a run may have very many files."""
    return dict(columns)


def _defect(start: bytes, kind: str) -> str:
    """Why a file with this beginning has no columns."""
    text = start.removeprefix(MARK).lstrip()
    if not text:
        return "it is empty"
    if start.startswith(POINTER):
        return "it is a pointer of Git LFS, not the file itself; run `git lfs pull`"
    if start.startswith(PACKED):
        return "it is compressed by gzip; rename it to end in .gz"
    if kind not in (*LINES, ".csv"):
        return f"it cannot be read as a {kind.removeprefix('.')} file, or has no table of rollouts"
    if b"\0" in start:
        return "it is not UTF-8 text"
    if text.startswith(b"["):
        return "it is a JSON array that is damaged, too long or not of records; write one record per line"
    if text.startswith(b"{"):
        return "its first line is not a whole JSON record; write one record per line"
    return "its first line is not a JSON record" if kind in LINES else "it has no header"
