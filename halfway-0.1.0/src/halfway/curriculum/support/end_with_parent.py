"""Ends a process with its parent, however the parent ends, kill -9 included.

A process of `multiprocessing` calls `end_with_parent`, a child that Python did not start calls `end_with_starter`, and
any other command runs inside this script:

    python end_with_parent.py FOLDER COMMAND...

It runs the command until it ends, or until standard input is closed: then it kills every process of its session, and
removes the folder.
"""

import ctypes
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """End this process of `multiprocessing` with its parent, even with a fork server in between."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def end_with_starter() -> None:
    """Have the kernel kill this process when the thread that started it ends. Does nothing outside Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def run(folder: str, command: list[str]) -> int:
    """Run the command. Returns its exit status as a shell would report it: 128 + the signal if a signal ended it."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    threading.Thread(target=_end_with_input, args=(folder,), daemon=True).start()
    status = child.wait()
    return status if status >= 0 else 128 - status


def _end_with_input(folder: str) -> None:
    sys.stdin.buffer.read()
    shutil.rmtree(folder, ignore_errors=True)  # shared memory, full of weights
    unlink(shared_blocks(os.getpgid(0)))
    os.killpg(0, signal.SIGKILL)


def shared_blocks(group: int) -> set[str]:
    """List the blocks of `multiprocessing.shared_memory` that a process group has open, as paths.

    Python's resource tracker would remove them, but it is killed with the group.
    """
    blocks: set[str] = set()
    for process in filter(str.isdecimal, os.listdir("/proc") if sys.platform == "linux" else ()):
        with suppress(OSError):
            if os.getpgid(int(process)) == group:
                with open(f"/proc/{process}/maps") as maps:
                    blocks |= {line.split(maxsplit=5)[5].strip() for line in maps if "/dev/shm/psm_" in line}
    return blocks


def unlink(blocks: Iterable[str]) -> None:
    """Remove such blocks, if they still exist."""
    for block in blocks:
        with suppress(OSError):
            os.unlink(block)


if __name__ == "__main__":
    # The thread holds the lock of standard input, so a normal exit would abort.
    os._exit(run(sys.argv[1], sys.argv[2:]))
