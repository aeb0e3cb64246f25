"""Runs a command on another host for `halfway launch`, and ends it when the launcher ends.

The command comes as one line of JSON on standard input: environment, folder and words. So no token or other variable of
the user appears on a command line. The input stays open as long as the launcher lives.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

GRACE_SECONDS = 15.0


def main() -> int:
    """Run the command. Returns its exit status as a shell reports it: 128 + the signal if a signal ended it."""
    order = json.loads(sys.stdin.buffer.readline())
    os.environ.update(order["environment"])
    child = subprocess.Popen(order["words"], cwd=order["folder"], stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=end_with_input, args=(child,), daemon=True).start()
    status = child.wait()
    return status if status >= 0 else 128 - status


def end_with_input(child: "subprocess.Popen[bytes]") -> None:
    """End a process and its session when the input closes, after some time to clean up."""
    sys.stdin.buffer.read()
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # the thread holds the lock of standard input, so an ordinary exit would abort
