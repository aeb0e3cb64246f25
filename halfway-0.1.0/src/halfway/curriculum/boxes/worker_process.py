"""A client of a worker process: start, write, read until a deadline, end."""

import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence


class WorkerProcess:
    """A process that reads requests from standard input and answers on standard output."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]):
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # read only if the process does not start
            env=environment,
            start_new_session=True,
        )

    def send(self, data: bytes) -> bool:
        """Write to the process; False if it has ended."""
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
        """Read `size` bytes; None if the process ends first, or the monotonic clock reaches the deadline."""
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
        """End the process; returns the end of its error output, in one line."""
        self._process.kill()
        complaint = self._process.communicate()[1]
        return " ".join(complaint.decode(errors="replace").split())[-300:]
