"""Runs a command until it ends, or until standard input is closed: then kills it, with every process of its session.

    python end_with_parent.py FOLDER COMMAND...

The process at the other end of the input may die in any way, including kill -9: neither what it started nor its folder
outlives it.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading


def main(folder: str, command: list[str]) -> int:
    """Run the command. Returns its exit status as a shell would report it: 128 + the signal if a signal ended it."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    threading.Thread(target=end_with_input, args=(folder,), daemon=True).start()
    status = child.wait()
    return status if status >= 0 else 128 - status


def end_with_input(folder: str) -> None:
    sys.stdin.buffer.read()
    shutil.rmtree(folder, ignore_errors=True)  # shared memory, full of weights
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    # The thread holds the lock of standard input, so an interpreter that exits in the usual way would abort.
    os._exit(main(sys.argv[1], sys.argv[2:]))
