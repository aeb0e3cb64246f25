"""Manifests: sizes and checksums of the files in a folder, to detect damage before they are read.

The first line is JSON: for each path, its size and the SHA-256 of each 16 MiB block, so that several threads can share
a large file. The second line is the SHA-256 of the first.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from stat import S_ISREG
from typing import Any

import msgspec

from halfway.curriculum.support.atomic import DAMAGED, LARGEST_STATE, MOST_STATE_VALUES, require_few_values
from halfway.curriculum.support.extras import clean, one_line

MANIFEST = "manifest.txt"
BLOCK = 2**24
"""Bytes per checksum."""

BUFFER = 2**20
THREADS = min(8, os.cpu_count() or 1)


def write_manifest(folder: Path, known: Mapping[str, list[int | str]] | None = None) -> None:
    """Write the manifest of all files in a folder. Raises OSError if one cannot be read.

    Args:
        known: entries of files that need no reading, from `SummedFile.entry`.
    """
    known = known or {}
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    names = sorted(path.relative_to(folder).as_posix() for path in paths)
    sizes = {name: (folder / name).stat().st_size for name in names if name not in known}
    sums = _checksums([(folder / name, size) for name, size in sizes.items()])
    line = json.dumps({name: known.get(name) or [sizes[name], *next(sums)] for name in names}).encode()
    (folder / MANIFEST).write_bytes(line + b"\n" + _sha256(line).encode())


class SummedFile:
    """A file written sequentially, whose manifest entry is computed on the way, without reading it again.

    Attributes:
        size: bytes written so far.
    """

    def __init__(self, path: Path):
        self.size = 0
        self._file, self._sums, self._block = path.open("wb", buffering=BUFFER), list[str](), hashlib.sha256()

    def write(self, content: memoryview) -> None:
        self._file.write(content)
        while content.nbytes:
            part = content[: BLOCK - self.size % BLOCK]
            self._block.update(part)
            self.size += part.nbytes
            content = content[part.nbytes :]
            if self.size % BLOCK == 0:
                self._end_block()

    @property
    def entry(self) -> list[int | str]:
        """The manifest entry of the closed file: its size and the checksums of its blocks."""
        return [self.size, *self._sums]

    def close(self) -> None:
        self._file.close()
        if self.size % BLOCK:
            self._end_block()

    def _end_block(self) -> None:
        self._sums.append(self._block.hexdigest())
        self._block = hashlib.sha256()


def damage(folder: Path) -> str:
    """Describe the first file that differs from the manifest of its folder; empty if none does.

    Files that are not in the manifest are ignored.
    """
    try:
        with (folder / MANIFEST).open("rb") as file:
            line, _, checksum = file.read(LARGEST_STATE).partition(b"\n")
    except FileNotFoundError:
        return f"{MANIFEST} is missing, so nothing can be checked, and nothing is loaded"
    except (OSError, MemoryError) as error:
        return f"{MANIFEST} cannot be read ({one_line(error)})"
    if _sha256(line).encode() != checksum:
        return f"{MANIFEST} is damaged"
    try:
        written = _decode(line)
    except DAMAGED as error:
        return f"{MANIFEST} is damaged ({one_line(error)})"
    for name, (size, *_) in written.items():
        if trouble := _wrong_size(folder / name, size):
            return f"{clean(name)} {trouble}"
    found = _checksums([(folder / name, size) for name, (size, *_) in written.items()])
    try:
        wrong = next((name for name, (_, *sums) in written.items() if next(found) != sums), "")
    except OSError as error:
        return f"{Path(str(error.filename)).name} cannot be read ({error.strerror})"
    return wrong and f"{clean(wrong)} is damaged: its bytes are not those that were written"


def _decode(line: bytes) -> dict[str, list[Any]]:
    """Read the line of a manifest. Raises one of `DAMAGED` if `write_manifest` writes no such line."""
    require_few_values(line, MOST_STATE_VALUES, LARGEST_STATE)
    written: dict[str, list[Any]] = msgspec.json.decode(line, type=dict[str, list[int | str]])
    for name, (size, *sums) in written.items():
        if "\0" in name or not isinstance(size, int) or len(sums) != -(-size // BLOCK):
            raise ValueError(f"no entry of a file: {one_line(name)}")
    return written


def _wrong_size(path: Path, size: int) -> str:
    try:
        status = path.lstat()
    except OSError:
        return "is missing"
    if not S_ISREG(status.st_mode):
        return "is not a file"
    return "" if status.st_size == size else f"has {status.st_size} bytes, not {size}"


def _checksums(files: list[tuple[Path, int]]) -> Iterator[list[str]]:
    """For each file and its size, the SHA-256 of every block."""
    blocks = [(path, start) for path, size in files for start in range(0, size, BLOCK)]
    with ThreadPoolExecutor(THREADS) as pool:
        sums = pool.map(_of_block, blocks)
        for _, size in files:
            yield [next(sums) for _ in range(0, size, BLOCK)]


def _of_block(block: tuple[Path, int]) -> str:
    path, start = block
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        return _sha256(file.read(BLOCK))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
