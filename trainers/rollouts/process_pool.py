"""Rollouts in a process of their own: sampling and judging go on while this process trains."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Any, TypeVar

from halfway.curriculum.groups import Group, Request
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError
from halfway.trainers.contracts import judge_seconds
from halfway.trainers.rollouts.collector import Collector

T = TypeVar("T")


class ProcessPool:
    """Rolls out in one other process, a submission at a time, in the order in which they were submitted.

    It is a `Pool`, and takes the place of `Rollouts` for evaluations.

    Attributes:
        judge_seconds: what the environment has taken for everything that was taken from the pool.
    """

    def __init__(self, build: Callable[[], Collector]):
        """Start the process, and wait until it is ready.

        Args:
            build: makes the collector there; both it and the requests are pickled.
        """
        self.judge_seconds = 0.0
        self._executor = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        self._jobs: dict[str, Future[tuple[list[Group], float]]] = {}
        self._done: dict[str, Group] = {}
        self._process = _outcome(self._executor.submit(_begin, build))

    def submit(self, requests: Sequence[Request], stream: Stream) -> None:
        job = self._executor.submit(_run, requests, stream)
        self._jobs |= {request.ticket: job for request in requests}

    def take(self, tickets: Sequence[str]) -> list[Group]:
        for ticket in tickets:
            if ticket not in self._done:
                self._done |= {group.request.ticket: group for group in self._groups(self._jobs[ticket])}
        for ticket in tickets:
            del self._jobs[ticket]
        return [self._done.pop(ticket) for ticket in tickets]

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        """Roll out, after everything that was submitted. See `halfway.trainers.contracts.Rollouts`."""
        return self._groups(self._executor.submit(_run, requests, stream))

    def on_engine(self, method: str, *arguments: Any) -> Any:
        """What a method of the engine there returns, called after everything that was submitted."""
        return _outcome(self._executor.submit(_on_engine, method, arguments))

    def close(self) -> None:
        """End the process, whatever it is doing."""
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _groups(self, job: "Future[tuple[list[Group], float]]") -> list[Group]:
        groups, judged = _outcome(job)
        self.judge_seconds += judged
        return groups


def _outcome(job: "Future[T]") -> T:
    """What a job returned or raised. Raises UserError if the process has ended."""
    try:
        return job.result()
    except BrokenProcessPool as error:
        raise UserError(
            "rollouts.staleness: the process that samples has ended, perhaps for lack of memory; resume the run"
        ) from error


_collectors: list[Collector] = []
"""In the other process: the one that it works with."""


def _begin(build: Callable[[], Collector]) -> int:
    """Get ready. Returns the number of this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt from the keyboard is the parent's business
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _collectors.append(build())
    return os.getpid()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(requests: Sequence[Request], stream: Stream) -> tuple[list[Group], float]:
    [collector] = _collectors
    before = judge_seconds(collector)
    groups = collector.run(requests, stream)
    return groups, judge_seconds(collector) - before


def _on_engine(method: str, arguments: tuple[Any, ...]) -> Any:
    [collector] = _collectors
    return getattr(collector.engine, method)(*arguments)
