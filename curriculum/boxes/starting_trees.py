"""A cache of starting work trees on this machine: one folder per content, never changed."""

import hashlib
import os
import shutil
from functools import lru_cache
from pathlib import Path

from halfway.curriculum import UserError
from halfway.curriculum.boxes.trees import CACHES, EPOCH
from halfway.curriculum.support.atomic import made_once, read_whole, walk
from halfway.curriculum.support.extras import blaming

LEFT_OUT = CACHES | {".git", ".hg", ".svn"}
"""History is left out, since it may contain the solution; so are caches."""


def cache_folder(chosen: str) -> Path:
    """The folder of cached bases: the chosen one; otherwise a folder readable by all for root, or the user's cache."""
    if chosen:
        return Path(chosen).resolve()
    if os.geteuid() == 0:
        return Path("/var/cache/halfway")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halfway"


@lru_cache(maxsize=4096)
def store(tree: str, cache: Path, uid: int) -> str:
    """Copy `tree` without history and caches below `cache`/bases, unless it is there; returns the folder's name.

    All modification times are equal, and the files belong to `uid` if this process may change their owner.

    Raises:
        UserError: if the tree cannot be read.
        WriteError: if the disk is full.
    """
    root = Path(tree)
    if not root.is_dir():
        raise UserError(f"repository: {tree!r} is not a folder; give the folder of a source tree")
    name = f"{_digest(root)}-{uid}"
    folder = cache / "bases" / name
    if folder.is_dir():
        return name
    with made_once(folder) as partial:
        shutil.copytree(root, partial / "tree", symlinks=True, ignore=_leave_out)
        _settle(partial / "tree", uid)
        if not folder.is_dir():
            os.replace(partial / "tree", folder)
    return name


def _leave_out(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name in LEFT_OUT]


def _files(root: Path) -> list[Path]:
    paths: list[Path] = []
    for folder, folders, files in walk(root):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        paths += [Path(folder, name) for name in sorted([*files, *links])]
    return paths


def _digest(root: Path) -> str:
    digest = hashlib.blake2b(digest_size=12)
    with blaming(f"repository: {root} cannot be read", "check its permissions", OSError):
        for path in _files(root):
            content = os.readlink(path).encode() if path.is_symlink() else read_whole(path, "remove it")
            mode = path.lstat().st_mode
            digest.update(repr((str(path.relative_to(root)), mode, len(content))).encode("utf-8", "surrogateescape"))
            digest.update(content)
    return digest.hexdigest()


def _settle(root: Path, uid: int) -> None:
    """Make all files readable by all users, with one owner and one modification time."""
    give = os.geteuid() == 0
    for folder, _, files in os.walk(root, topdown=False):
        for path in [*(Path(folder, name) for name in files), Path(folder)]:
            if give:
                os.chown(path, uid, uid, follow_symlinks=False)
            if not path.is_symlink():
                mode = path.stat().st_mode & 0o777
                path.chmod(mode | (0o755 if path.is_dir() or mode & 0o100 else 0o644))
            os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)
