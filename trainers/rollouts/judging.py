"""Measures the time of an environment: verifiers, tests, tools."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Judging:
    """A clock that several threads may use at once; their times add up.

    Attributes:
        seconds: wall-clock time of all calls that have ended.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure the time inside, even if it ends with an exception."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            with self._lock:
                self.seconds += spent
