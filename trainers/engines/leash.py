"""Runs a command and ends with it; and ends it, with all of this session, once standard input is closed.

    python leash.py COMMAND...

Whoever holds the other end of the input may die in any way, kill -9 included: what it started does not outlive it.
"""

import os
import signal
import subprocess
import sys
import threading


def main(command: list[str]) -> int:
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    threading.Thread(target=end_with_input, daemon=True).start()
    return child.wait()


def end_with_input() -> None:
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
