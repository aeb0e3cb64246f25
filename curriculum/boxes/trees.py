"""Changes of a work tree against its base, as a value: equal trees give equal bytes.

`box_worker` runs it inside a box's walls too, so it imports only the standard library.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

EPOCH = 1_000_000_000
"""Modification time of every file of a base. A box's clock counts from here, one minute per command."""

MINUTE = 60
CLOCK_END = EPOCH + 100_000 * MINUTE
"""Later times are the machine's."""

CACHES = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"})
"""Folders that are never kept: their content depends on the time of day."""

TEMPORARY = re.compile(r"(tmp[a-z0-9_]{8}|tmp\.[A-Za-z0-9]{10}|pytest-of-\w+)(/|$)")
"""Names of temporary files of Python, mktemp and pytest, which a later command would find only by chance."""

OPAQUE = "user.overlay.opaque"


@dataclass(frozen=True, slots=True)
class Entry:
    """One change against a base.

    Attributes:
        path: relative to the root, with "/" between its parts.
        kind: "file", "folder", "link", "pipe", "deleted", or "replaced": a folder that hides the base's folder.
        mode: permission bits.
        time: modification time, in seconds.
        data: a file's content, or a link's target.
    """

    path: str
    kind: str
    mode: int = 0
    time: int = EPOCH
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Changes:
    """All changes by commands, as a value.

    Attributes:
        clock: commands executed so far.
        tree: changes of the work tree, by path.
        scratch: the content of /tmp, by path.
    """

    clock: int = 0
    tree: tuple[Entry, ...] = ()
    scratch: tuple[Entry, ...] = ()


MOST_BYTES = 1 << 30
"""Maximum number of bytes of saved changes, unpacked."""


def pack(changes: Changes) -> bytes:
    """Pack changes into bytes; equal changes give equal bytes."""
    entries = [(which, entry) for which in ("tree", "scratch") for entry in getattr(changes, which)]
    listed = [(which, e.path, e.kind, e.mode, e.time, len(e.data)) for which, e in entries]
    head = json.dumps([changes.clock, listed]).encode()
    return zlib.compress(head + b"\n" + b"".join(entry.data for _, entry in entries), 1)


def unpack(packed: bytes) -> Changes:
    """The inverse of `pack`. Raises ValueError for other bytes."""
    if not packed:
        return Changes()
    try:
        unpacking = zlib.decompressobj()
        head, _, body = unpacking.decompress(packed, MOST_BYTES).partition(b"\n")
        if not unpacking.eof:
            raise ValueError("not a saved work tree: it is cut off, or very large")
        clock, listed = json.loads(head)
        found: dict[str, list[Entry]] = {"tree": [], "scratch": []}
        start = 0
        for which, path, kind, mode, time, size in listed:
            found[which].append(Entry(path, kind, mode, time, body[start : start + size]))
            start += size
    except (zlib.error, KeyError, TypeError) as error:
        raise ValueError(f"not a saved work tree: {error}") from error
    return Changes(clock, tuple(found["tree"]), tuple(found["scratch"]))


def digest(packed: bytes) -> str:
    """Hash saved changes: equal trees have equal hashes."""
    return hashlib.blake2b(packed, digest_size=8).hexdigest()


def harvest(upper: str, base: str, clock: int, room: int) -> tuple[Entry, ...]:
    """Read the changes in the upper layer of an overlay, by path. Nothing may be running in it.

    Times from the machine's clock become times of the box's clock. Unchanged folders, caches and sockets are left out.

    Args:
        room: maximum number of bytes of all files together, by their lengths; holes and hard links can make files
            longer than their space on disk.

    Raises:
        OSError: if the files have more bytes, or a path is longer than the system allows.
        RecursionError: if folders are nested too deeply.
    """
    found: list[Entry] = []
    for path, entry in _walk(upper):
        status = entry.stat(follow_symlinks=False)
        time = int(status.st_mtime) if status.st_mtime < CLOCK_END else EPOCH + MINUTE * clock
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISCHR(status.st_mode):
            found.append(Entry(path, "deleted"))
        elif stat.S_ISLNK(status.st_mode):
            found.append(Entry(path, "link", 0o777, time, os.fsencode(os.readlink(entry.path))))
        elif stat.S_ISDIR(status.st_mode):
            if _opaque(entry.path):
                found.append(Entry(path, "replaced", mode, time))
            elif _folder_mode(os.path.join(base, path)) != mode:
                found.append(Entry(path, "folder", mode, time))
        elif stat.S_ISFIFO(status.st_mode):
            found.append(Entry(path, "pipe", mode, time))
        elif stat.S_ISREG(status.st_mode):
            room -= status.st_size
            if room < 0:
                raise OSError(errno.ENOSPC, "files are longer than the disk is large", path)
            found.append(Entry(path, "file", mode, time, _content(entry.path)))
    return tuple(sorted(found, key=lambda entry: entry.path))


def select_lasting(scratch: Iterable[Entry]) -> tuple[Entry, ...]:
    """Select the part of /tmp to keep."""
    return tuple(entry for entry in scratch if not TEMPORARY.match(entry.path))


def harvest_copy(tree: str, base: str, clock: int, room: int) -> tuple[Entry, ...]:
    """Like `harvest`, for a whole copy of the base: its differences from the base."""
    kept = dict(_walk(tree))
    found = [entry for entry in harvest(tree, base, clock, room) if not _as_in_base(entry, base)]
    missing = sorted(path for path, _ in _walk(base) if path not in kept)
    gone: list[str] = []
    for path in missing:
        if not any(path.startswith(f"{parent}/") for parent in gone):
            gone.append(path)
    found += [Entry(path, "deleted") for path in gone]
    return tuple(sorted(found, key=lambda entry: entry.path))


def _as_in_base(entry: Entry, base: str) -> bool:
    origin = os.path.join(base, entry.path)
    try:
        status = os.lstat(origin)
    except OSError:
        return False
    if entry.kind == "link":
        return stat.S_ISLNK(status.st_mode) and os.fsencode(os.readlink(origin)) == entry.data
    if entry.kind != "file" or not stat.S_ISREG(status.st_mode) or int(status.st_mtime) != entry.time:
        return False
    same_facts = (stat.S_IMODE(status.st_mode), status.st_size) == (entry.mode, len(entry.data))
    return same_facts and _content(origin) == entry.data


def lay(root: str, entries: Iterable[Entry], base: str, overlay: bool) -> None:
    """Write changes into an empty upper layer, or into a copy of the base.

    Files are made in the order of their paths, so that a file system always lists them in the same order.
    """
    entries = sorted(entries, key=lambda entry: entry.path)
    times: dict[str, int] = {}
    for entry in entries:
        target = os.path.join(root, entry.path)
        _make_parents(root, entry.path, base, times)
        if not overlay:
            _remove(target, keep_folder=entry.kind == "folder")
        _make(target, entry, overlay)
        if entry.kind != "deleted":
            times[target] = entry.time
    for target, time in sorted(times.items(), reverse=True):  # children before their folders
        os.utime(target, (time, time), follow_symlinks=False)


def _make(target: str, entry: Entry, overlay: bool) -> None:
    if entry.kind == "deleted":
        if overlay:
            os.mknod(target, stat.S_IFCHR, 0)
    elif entry.kind == "link":
        os.symlink(os.fsdecode(entry.data), target)
    elif entry.kind in ("folder", "replaced"):
        with suppress(FileExistsError):
            os.mkdir(target)
        os.chmod(target, entry.mode)
        if entry.kind == "replaced" and overlay:
            os.setxattr(target, OPAQUE, b"y")
    elif entry.kind == "pipe":
        os.mkfifo(target, entry.mode)
    else:
        with open(target, "wb") as file:
            file.write(entry.data)
        os.chmod(target, entry.mode)


def _make_parents(root: str, path: str, base: str, times: dict[str, int]) -> None:
    """Create the missing folders above a path like those of the base."""
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        folder = "/".join(parts[:depth])
        target = os.path.join(root, folder)
        if not os.path.isdir(target):
            os.mkdir(target)
            os.chmod(target, _folder_mode(os.path.join(base, folder)) or 0o755)
        times.setdefault(target, EPOCH)


def _remove(target: str, keep_folder: bool) -> None:
    if os.path.isdir(target) and not os.path.islink(target):
        if not keep_folder:
            shutil.rmtree(target)
    elif os.path.lexists(target):
        os.unlink(target)


def _walk(root: str, below: str = "") -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """Yield all entries below a folder but caches, each with its path; links are not followed."""
    with os.scandir(os.path.join(root, below)) as listed:
        entries = sorted(listed, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name in CACHES:
            continue
        path = f"{below}/{entry.name}" if below else entry.name
        yield path, entry
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(root, path)


def _opaque(folder: str) -> bool:
    try:
        return os.getxattr(folder, OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


def _folder_mode(path: str) -> int | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return stat.S_IMODE(status.st_mode) if stat.S_ISDIR(status.st_mode) else None


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()
