"""A worker process as this side sees it: started, written to, read from until a deadline, ended."""

import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence


class WorkerProcess:
    """A process that answers on its standard output what it is asked on its standard input."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]):
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # read only if it does not start
            env=environment,
            start_new_session=True,
        )

    def send(self, data: bytes) -> bool:
        """Write to it; False if it has ended."""
        assert self._process.stdin is not None
        if self._process.stdin.closed:
            return False
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except OSError:
            return False
        return True

    def receive(self, size: int, deadline: float) -> bytes | None:
        """As many bytes; None if it ends, or the monotonic clock reaches the deadline, before they have come."""
        assert self._process.stdout is not None
        source, data = self._process.stdout.fileno(), bytearray()
        while len(data) < size:
            left = deadline - time.monotonic()
            part = os.read(source, size - len(data)) if left > 0 and select.select([source], [], [], left)[0] else b""
            if not part:
                return None
            data += part
        return bytes(data)

    def stop(self) -> str:
        """End it, and return the end of what it has written to its error output, in one line."""
        self._process.kill()
        complaint = self._process.communicate()[1]
        return " ".join(complaint.decode(errors="replace").split())[-300:]
