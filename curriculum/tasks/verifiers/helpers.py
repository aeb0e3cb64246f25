"""Processes that judge a policy's texts, so that no text can stop the trainer, hang it or fill its memory.

Each judges one text at a time, under a memory limit. A process that ends is replaced, and its text tried once more; a
process that does not answer in time is ended. A text that cannot be judged fails, and is counted.
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from halfway.curriculum import UserError
from halfway.curriculum.boxes.worker_process import WorkerProcess
from halfway.curriculum.tasks.verifiers.helper_process import HEADER

PROCESSES = min(16, max(2, os.cpu_count() or 1))
"""They compute all the time, so more than one per core would not be faster."""

MEMORY_MIB = 1024
START_SECONDS = 120.0
TRIES = 2
MAX_REPLY = 2**20
PASSED_ON = ("LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR")
"""Environment variables of helpers; none contains a secret."""

Reason = Literal["time", "died", "raised"]


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Why a text has no verdict: it took too long, ended its process twice, or its reader failed."""

    reason: Reason


class Helpers:
    """A set of processes, started when first needed. Safe to use from several threads."""

    def __init__(
        self,
        processes: int = PROCESSES,
        memory_mib: int = MEMORY_MIB,
        modules: Sequence[str] = (),
        max_reply: int = MAX_REPLY,
    ):
        """
        Args:
            memory_mib: MiB that a process may use in addition to its memory after the start.
            modules: modules to import in advance, so that no text waits for them.
            max_reply: maximum number of bytes of a value.
        """
        # Not -m, which searches the current folder first.
        line = "from halfway.curriculum.tasks.verifiers.helper_process import main; main()"
        self._command = [sys.executable, "-P", "-c", line, str(memory_mib), *modules]
        self._max_reply, self._local = max_reply, threading.local()
        self._threads = ThreadPoolExecutor(processes, "judge")  # a process ends with the thread that started it

    def map(self, function: str, tasks: Sequence[Sequence[Any]], seconds: float) -> list[Any]:
        """Call the function for each task; returns its values in order, `Unjudged` for failures, which are counted.

        Args:
            function: "module:name"; its arguments and its value must be JSON data.
            tasks: the arguments of each call.
            seconds: limit on each call.

        Raises:
            ValueError: if the function raises it, for a reference that cannot be read.
            UserError: if a process does not start.
        """
        bodies = [json.dumps({"function": function, "arguments": list(task)}).encode() for task in tasks]
        replies = list(self._threads.map(lambda body: self._ask(body, seconds), bodies))
        for reply in replies:
            if isinstance(reply, dict) and "error" in reply:
                raise ValueError(reply["error"])
        return [reply if isinstance(reply, Unjudged) else _value(reply) for reply in replies]

    def _ask(self, body: bytes, seconds: float) -> dict[str, Any] | Unjudged:
        for _ in range(TRIES):
            process = self._process()
            deadline = time.monotonic() + seconds
            reply = self._receive(process, deadline) if process.send(HEADER.pack(len(body)) + body) else None
            if reply is not None:
                return reply
            process.stop()
            del self._local.process
            if time.monotonic() >= deadline:
                return count(Unjudged("time"))
        return count(Unjudged("died"))

    def _process(self) -> WorkerProcess:
        """Get this thread's process."""
        if "process" not in vars(self._local):
            self._local.process = self._start()
        process = self._local.process
        assert isinstance(process, WorkerProcess)
        return process

    def _start(self) -> WorkerProcess:
        variables = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        variables |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "0"}
        variables |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        said = ""
        for _ in range(TRIES):
            process = WorkerProcess(self._command, variables)
            if self._receive(process, time.monotonic() + START_SECONDS) is not None:
                return process
            said = process.stop() or "it was killed, possibly out of memory"
        raise UserError(f"a helper process does not start ({said}); fix the cause and resume the run")

    def _receive(self, process: WorkerProcess, deadline: float) -> dict[str, Any] | None:
        header = process.receive(HEADER.size, deadline)
        size = HEADER.unpack(header)[0] if header else self._max_reply + 1
        body = process.receive(size, deadline) if size <= self._max_reply else None
        return None if body is None else dict(json.loads(body))


def _value(reply: dict[str, Any]) -> Any:
    return count(Unjudged("raised")) if "raised" in reply else reply["value"]


_LOCK = threading.Lock()
_COUNTS: Counter[str] = Counter()


def count(unjudged: Unjudged) -> Unjudged:
    """Count a text that could not be judged."""
    with _LOCK:
        _COUNTS[unjudged.reason] += 1
    return unjudged


def add_counts(unjudged: Mapping[str, int]) -> None:
    """Count the texts that another process could not judge."""
    with _LOCK:
        _COUNTS.update(unjudged)


def take_counts() -> dict[str, int]:
    """Take the number of texts that could not be judged in this process since the last call, by reason."""
    with _LOCK:
        counts = dict(sorted(_COUNTS.items()))
        _COUNTS.clear()
    return counts


@contextmanager
def separate_counts() -> Iterator[dict[str, int]]:
    """Count separately the texts that cannot be judged in the block, by reason; `take_counts` leaves them out."""
    before, apart = take_counts(), dict[str, int]()
    try:
        yield apart
    finally:
        apart.update(take_counts())
        add_counts(before)


@lru_cache(maxsize=8)
def _get_helpers(process: int, *options: Any) -> Helpers:
    return Helpers(*options)


def get_helpers(
    *modules: str, processes: int = PROCESSES, memory_mib: int = MEMORY_MIB, max_reply: int = MAX_REPLY
) -> Helpers:
    """Get this process's helpers with these modules imported; see `Helpers`."""
    return _get_helpers(os.getpid(), processes, memory_mib, modules, max_reply)
