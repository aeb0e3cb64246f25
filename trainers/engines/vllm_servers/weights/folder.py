"""The folder of a run for weights and logs: checked for room, locked while the run lives, removed after it dies."""

import fcntl
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torch import nn

from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import one_line
from halfway.trainers.engines.part import GIB
from halfway.trainers.engines.vllm_servers.server_options import FIELD, FILE_COPIES

# This host's name: on a shared disk, another host's locks may not be visible.
PREFIX, CLAIM = f"halfway-{socket.gethostname()}-", "in-use"


def require_room_for_weights(folder: str, policy: nn.Module, bytes_each: int) -> None:
    """Refuse a folder without room for two versions of the weights. `own_folder` refuses a missing folder.

    Raises:
        UserError: if there is too little room, as in a container's default 64 MB of shared memory.
    """
    weights = sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in policy.parameters())
    wanted = FILE_COPIES * weights * bytes_each
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
        if free < wanted:
            raise UserError(
                f"{FIELD}.folder: {folder!r} has {free / GIB:.2f} GiB free but two versions of the weights need "
                f"{wanted / GIB:.2f}; give a container more (docker run --shm-size, an emptyDir with medium: Memory), "
                "or name another folder that every server can read"
            )


def own_folder(parent: str) -> Path:
    """Make a folder for weights and logs; remove the folders of killed runs beside it.

    A run locks a file in its folder while it lives. On a file system without locks, old folders stay.

    Raises:
        UserError: if the folder cannot be made.
    """
    for left in filter(_is_ours, Path(parent).glob(f"{PREFIX}*")):
        with suppress(OSError), _claim(left):
            shutil.rmtree(left, ignore_errors=True)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        own = os.open(folder / "claim", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)  # stays open until the process ends
    except OSError as error:
        raise UserError(
            f"{FIELD}.folder: {parent!r} cannot be written to ({one_line(error)}); make room there, or name a "
            "folder that every server can read"
        ) from error
    with suppress(OSError):
        fcntl.flock(own, fcntl.LOCK_EX)
    (folder / "claim").rename(folder / CLAIM)  # the claim is never visible without its lock
    return folder


def _is_ours(folder: Path) -> bool:
    """True if this user made a folder: in shared memory, others may plant links and folders of the same name."""
    with suppress(OSError):
        made = folder.lstat()
        return stat.S_ISDIR(made.st_mode) and made.st_uid == os.geteuid()
    return False


@contextmanager
def _claim(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. Raises OSError if its run lives, or if the folder is not a run's."""
    claim = os.open(folder / CLAIM, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(claim)
