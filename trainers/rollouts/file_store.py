"""Keeps the arrays of groups in files on a disk that all hosts of a run share."""

import os
import shutil
import socket
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from halfway.curriculum.support.atomic import open_own, require_no_link, writing
from halfway.curriculum.support.extras import blaming

PAYLOADS = "payloads"
"""Folder of a run for its store, which is emptied at every start."""


class FileStore:
    """A folder with one file per group. It may be pickled; the process that made it removes the files.

    A file is removed when that process no longer refers to it: the group has been trained on, and neither waits nor is
    stored.
    """

    def __init__(self, folder: Path):
        """Empty the folder, which belongs to the store."""
        require_no_link(folder)
        self.folder, self.owner = folder, _process()
        self.close()
        with writing(folder):
            folder.mkdir(parents=True)

    def put(self, content: bytes) -> "StoredFile":
        path = self.folder / uuid4().hex
        stored = StoredFile(path, self.owner)  # which removes what a full disk has left of it
        with writing(path), open_own(path, "wb") as file:
            file.write(content)
        return stored

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


class StoredFile:
    """The arrays of a group in a file; see `halfway.curriculum.stored.Payload`."""

    def __init__(self, path: Path, owner: str):
        self.path, self.owner = path, owner
        if owner == _process():
            OWNED[path] = self
            weakref.finalize(self, _remove, path, owner).atexit = False

    def __reduce__(self) -> tuple[Callable[..., "StoredFile"], tuple[Path, str]]:
        return _stored_file, (self.path, self.owner)

    @property
    def name(self) -> str:
        return f"rollouts.payloads: {self.path}"

    def read(self, start: int, size: int) -> bytes:
        with blaming(f"{self.name} cannot be read", "resume the run", OSError), open(self.path, "rb") as file:
            file.seek(start)
            return file.read(size)


OWNED: "weakref.WeakValueDictionary[Path, StoredFile]" = weakref.WeakValueDictionary()
"""The files that this process removes, each with the one object on which that depends."""


def _stored_file(path: Path, owner: str) -> StoredFile:
    return OWNED.get(path) or StoredFile(path, owner)


def _process() -> str:
    return f"{socket.gethostname()} {os.getpid()}"


def _remove(path: Path, owner: str) -> None:
    if owner == _process():  # not in a fork
        with suppress(OSError):
            path.unlink()
