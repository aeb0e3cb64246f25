"""Files and folders that are complete or absent: written under another name, then renamed."""

import errno
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import IO, Any

import msgspec

from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import one_line

DAMAGED = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError),
    *(EOFError, MemoryError, zlib.error, msgspec.MsgspecError),
)
"""Exceptions of readers of a damaged file."""

LONGEST_LINE, MOST_VALUES = 32 << 20, 2_000_000
"""Limits of our own logs: bytes of a line, and values of a line or file, each of which may become an object."""
LARGEST_STATE, MOST_STATE_VALUES = 256 << 20, 4_000_000
PER_PROBLEM = 8
BYTES_PER_VALUE = 16
"""The same limits of a checkpoint's state. Each problem adds 8 values, and 8 times the length of its id in bytes; all
files beside it add as many bytes as they have, and a value for 16 of them."""
MOST_LEVELS = 100
"""Maximum depth of nested folders."""
LARGEST, BLOCK = 1 << 30, 1 << 24
"""Maximum size of other files that are read whole, and of the part of a log that is read at once, in bytes."""
HOLLOW = 1000
"""A large file with more bytes than this for each on the disk is taken for a hole, which costs nothing to send."""
ANOTHER = "resume from another checkpoint"
PLACE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|([,\[{])', re.DOTALL)
"""A string of JSON or, as a group, a character before a value."""


class WriteError(UserError):
    """A file or folder cannot be written. `reason` is the operating system's message."""

    def __init__(self, path: Path, reason: str):
        super().__init__(f"{path}: cannot be written ({reason}); make room for it and resume")
        self.reason = reason


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically: readers see the old content or the new one, never a part.

    Raises:
        WriteError: if it cannot be written; an earlier file does not change.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Like `write_text`, for bytes."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, like `write_text`."""
    write_text(path, json.dumps(value))


def read_json(path: Path, remedy: str = "remove it and resume", kind: Any = dict[str, Any]) -> dict[str, Any]:
    """Read the object in a JSON file; empty if there is no file.

    Args:
        kind: type of the object, for example a `msgspec.Struct`; fields that it does not name may be anything.

    Raises:
        UserError: if the file contains anything else.
    """
    with reading(path, remedy):
        if not path.exists():
            return {}
        value: dict[str, Any] = json.loads(read_json_text(path, remedy))
        msgspec.convert(value, kind)
    return value


def read_json_text(path: Path, remedy: str) -> bytes:
    """Read a file of one JSON value. Raises UserError if it cannot be read, or would fill the memory."""
    content = read_whole(path, remedy, LONGEST_LINE)
    with reading(path, remedy):
        require_few_values(content)
    return content


def read_state(path: Path, ids: Sequence[str] = ()) -> Any:
    """Read the JSON of a checkpoint. Raises UserError if it cannot be read, or would fill the memory.

    Args:
        ids: those of all problems, with which a state may grow.
    """
    files = (each.stat() for each in path.parent.rglob("*") if each.is_file() and each != path)
    beside = sum(min(file.st_size, 512 * file.st_blocks) for file in files)  # a sparse file has fewer
    most = MOST_STATE_VALUES + PER_PROBLEM * len(ids) + beside // BYTES_PER_VALUE
    longest = LARGEST_STATE + PER_PROBLEM * sum(map(len, ids)) + beside
    content = read_whole(path, ANOTHER, longest)
    with reading(path, ANOTHER):
        require_few_values(content, most, longest)
        return json.loads(content)


@contextmanager
def reading(path: Path | str, remedy: str) -> Iterator[None]:
    """Turn the exception of a damaged file's reader into a UserError that names the file and the remedy.

    A pipe, a device or a socket is refused before it is opened.
    """
    if not is_finite(path):
        raise UserError(f"{path}: is not a regular file; {remedy}")
    try:
        yield
    except UserError:
        raise
    except DAMAGED as error:
        raise UserError(f"{path}: is damaged ({one_line(error)}); {remedy}") from error


def read_whole(path: Path, remedy: str, most: int = LARGEST) -> bytes:
    """Read a file's bytes. Raises UserError, with the remedy, if it cannot be read, or has more than `most`."""
    with reading(path, remedy), path.open("rb") as file:
        content = file.read(most + 1)
        if len(content) > most:
            raise ValueError(f"holds more than {most >> 20} MiB")
        return content


def read_json_lines(path: Path, remedy: str) -> bytes:
    """Read a file of JSON Lines. Raises UserError if it cannot be read, or has a line that would fill the memory."""
    return b"".join(blocks_of_lines(path, remedy))


def blocks_of_lines(path: Path, remedy: str) -> Iterator[bytes]:
    """Yield the lines of a file of JSON Lines, those of `BLOCK` bytes at once.

    Raises:
        UserError: if it cannot be read, or has a line that would fill the memory.
    """
    number = 0
    with reading(path, remedy), path.open("rb") as file:
        while block := file.read(BLOCK):
            block += file.readline(LONGEST_LINE)
            start = 0
            while len(block) - start > MOST_VALUES:
                end = block.find(b"\n", start) % (len(block) + 1)
                try:
                    require_few_values(block[start:end] if end - start > MOST_VALUES else b"")
                except ValueError as error:
                    line = number + block.count(b"\n", 0, start) + 1
                    raise UserError(f"{path}:{line}: {error}; {remedy}") from None
                start = end + 1
            number += block.count(b"\n")
            yield block


def require_few_values(text: bytes, most: int = MOST_VALUES, longest: int = LONGEST_LINE) -> None:
    """Raise ValueError for JSON with more than `most` values or `longest` bytes."""
    if len(text) > longest:
        raise ValueError(f"holds more than {longest >> 20} MiB")
    if has_more_values(text, most):
        raise ValueError(f"holds more than {most:,} values")


def has_more_values(text: bytes, most: int) -> bool:
    """True if JSON has more values than this."""
    if len(text) <= most or sum(map(text.count, (b",", b"[", b"{"))) <= most:  # fast, but counts within strings too
        return False
    values = (found for found in PLACE.finditer(text) if found.lastindex)
    return next(islice(values, most, None), None) is not None


def require_regular_files(folder: Path) -> None:
    """Raise UserError if anything below a folder is a pipe, a device, a socket or a link to itself, or very deep."""
    for place, _, names in walk(folder):
        for path in (Path(place, name) for name in names):
            if not is_finite(path):
                raise UserError(f"{path}: is not a regular file; remove it")


def walk(root: Path, onerror: Callable[[OSError], object] | None = None) -> Iterator[tuple[str, list[str], list[str]]]:
    """As `os.walk`, which recurses. Raises UserError for folders that are nested too deeply."""
    for folder, folders, names in os.walk(root, onerror=onerror):
        if folder.count(os.sep) - str(root).count(os.sep) > MOST_LEVELS:
            raise UserError(f"{root}: has more than {MOST_LEVELS} folders within each other; remove them")
        yield folder, folders, names


def is_finite(path: Path | str) -> bool:
    """True if reading a path ends: opening a pipe may wait forever, a device has no end, and a hole next to none."""
    try:
        found = os.stat(path)
        little = found.st_blocks * 512 < found.st_size // HOLLOW and found.st_size > LARGEST
        if S_ISREG(found.st_mode) and little:  # or its file system does not count blocks
            with open(path, "rb") as file:
                return os.lseek(file.fileno(), 0, os.SEEK_HOLE) == found.st_size
    except OSError as error:  # the reader reports other errors; for `Path.exists`, a link to itself does not exist
        return error.errno != errno.ELOOP
    except ValueError:
        return True
    return S_ISREG(found.st_mode) or S_ISDIR(found.st_mode)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder to write a file to; at the end the file replaces `path`.

    Raises:
        WriteError: if the file cannot be written; an earlier file does not change.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with writing(path), ExitStack() as undo:
        undo.callback(_remove_file, temporary)
        # A new file: in a foreign folder this name may be a link.
        temporary.unlink(missing_ok=True)
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
        yield temporary
        os.replace(temporary, path)
        undo.pop_all()


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a new, empty folder beside `path` to write into; at the end it replaces `path`.

    Raises:
        WriteError: if it cannot be written; an earlier folder does not change.
    """
    partial = path.with_name(f".{path.name}.partial")
    with writing(path), ExitStack() as undo:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        undo.callback(shutil.rmtree, partial, ignore_errors=True)
        yield partial
        shutil.rmtree(path, ignore_errors=True)
        os.replace(partial, path)
        undo.pop_all()


@contextmanager
def made_once(path: Path) -> Iterator[Path]:
    """Yield a new, empty folder in which to make a file or folder; the first process to finish renames it to `path`.

    Several processes may make the same file at once: each gets its own folder, which is removed at the end.

    Raises:
        WriteError: if it cannot be written.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=path.parent))
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def require_no_link(path: Path) -> None:
    """Raise UserError if one of our own paths is a link: writing would change its target."""
    if path.is_symlink():
        raise UserError(
            f"{path}: is a link to {os.readlink(path)!r}, but Halfway writes its own data here; remove the link"
        )


def open_own(path: Path, mode: str = "a") -> IO[Any]:
    """Open one of our own files for writing, never through a link.

    Raises:
        UserError: if the path is a link, a pipe or a device.
    """
    require_no_link(path)
    if not is_finite(path):
        raise UserError(f"{path}: is not a regular file, but Halfway writes its own data here; remove it")
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666))


def _remove_file(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the operating system while writing `path`, such as a full disk, into a WriteError."""
    try:
        yield
    except OSError as error:
        raise WriteError(path, reason(error)) from error


def reason(error: OSError) -> str:
    """The operating system's reason, in its own words."""
    return os.strerror(error.errno) if error.errno else one_line(error)
