"""Samples and judges in a separate process while this one trains."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from multiprocessing.managers import BaseManager
from types import TracebackType
from typing import Any, NamedTuple

from halfway.curriculum import Group, Request, Stream, UserError
from halfway.curriculum.groups import spread
from halfway.curriculum.stored import Store, put_group
from halfway.curriculum.support.end_with_parent import end_with_parent
from halfway.curriculum.tasks.verifiers.helpers import add_counts, take_counts
from halfway.trainers.rollouts.collector import Collector, Judging
from halfway.trainers.rollouts.in_flight import Pool


class Done(NamedTuple):
    """The result of one submission.

    Attributes:
        judge_seconds: seconds that the environment took to respond and judge.
        times: start and end of the submission, in Unix seconds.
        unjudged: see `halfway.curriculum.tasks.verifiers.helpers.take_counts`.
    """

    groups: list[Group]
    judge_seconds: float
    times: tuple[float, float]
    unjudged: dict[str, int]


class WorkerPool(Pool):
    """Rolls out in other processes, the workers: each takes one submission at a time, in order, or several at once.

    It is a `Pool`, and serves as `Rollouts` for evaluations. Workers share the requests of a submission, see `spread`.

    Attributes:
        judge_seconds: seconds of the environment for all groups taken from the pool.
        times: see `Pool`.
        store: keeps the arrays of submitted groups; it is pickled. None = the groups hold them.
    """

    judge_seconds: float = 0.0

    def __init__(self, workers: int, at_once: int = 1, store: Store | None = None):
        """
        Args:
            at_once: submissions that a worker works on at once; the engine must allow several callers.
        """
        self.store = store
        self.times: dict[str, tuple[float, float]] = {}
        self._jobs: dict[str, Future[Done]] = {}
        self._done: dict[str, Group] = {}
        self._threads = [ThreadPoolExecutor(at_once, "rollouts") for _ in range(workers)]
        self._turns = count()

    def submit(self, requests: Sequence[Request], stream: Stream) -> None:
        for job, own in self._begin(requests, stream, self.store):
            self._jobs |= {requests[i].ticket: job for i in own}

    def take(self, tickets: Sequence[str]) -> list[Group]:
        for ticket in tickets:
            if ticket not in self._done:
                self._done |= {group.request.ticket: group for group in self._groups(self._jobs[ticket])}
        for ticket in tickets:
            self.times[ticket] = self._jobs.pop(ticket).result().times
        return [self._done.pop(ticket) for ticket in tickets]

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        """Roll out after all submissions. See `halfway.trainers.contracts.Rollouts`."""
        groups: dict[int, Group] = {}
        for job, own in self._begin(requests, stream, None):
            groups |= zip(own, self._groups(job), strict=True)
        return [groups[i] for i in sorted(groups)]

    def on_engine(self, method: str, *arguments: Any) -> Any:
        """Call a method of every worker's engine after all submissions; returns the result of the first."""
        jobs = [
            thread.submit(self._ask, worker, "on_engine", method, *arguments)
            for worker, thread in enumerate(self._threads)
        ]
        results = [job.result() for job in jobs]
        return results[0]

    def time(self) -> float:
        return time.time()

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)

    def _begin(
        self, requests: Sequence[Request], stream: Stream, store: Store | None
    ) -> list[tuple["Future[Done]", list[int]]]:
        """Begin to roll out. Returns the job of each worker, and the positions of its requests."""
        first, jobs = next(self._turns), []  # the first share is the largest
        for number, own in enumerate(spread(requests, len(self._threads)), first):
            if own:
                worker = number % len(self._threads)
                share = [requests[i] for i in own]
                jobs.append((self._threads[worker].submit(self._ask, worker, "run", share, stream, store), own))
        return jobs

    def _ask(self, worker: int, method: str, *arguments: Any) -> Any:
        """Call a method of a worker's sampler; returns or raises the same.

        Raises:
            UserError: if the worker has ended.
        """
        raise NotImplementedError

    def _groups(self, job: "Future[Done]") -> list[Group]:
        done = job.result()
        self.judge_seconds += done.judge_seconds
        add_counts(done.unjudged)
        return done.groups


class ProcessPool(WorkerPool):
    """Rolls out in one other process."""

    def __init__(self, build: Callable[[], Collector], at_once: int = 1, store: Store | None = None):
        """Start the process, and wait until it is ready.

        Args:
            build: makes the collector there; it and the requests are pickled.
        """
        super().__init__(1, at_once, store)
        hush_lost_connections()
        manager: Any = _Manager(ctx=multiprocessing.get_context("spawn"))
        with ended_sampler():
            manager.start(live_with_parent)
            self._manager = manager
            self._sampler = manager.sampler(build)
            self._process = int(self._sampler.process())

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        super().close()

    def _ask(self, worker: int, method: str, *arguments: Any) -> Any:
        with ended_sampler():
            return getattr(self._sampler, method)(*arguments)


@contextmanager
def ended_sampler() -> Iterator[None]:
    """Turn a lost connection to the sampling process into a one-line UserError."""
    try:
        yield
    except (EOFError, ConnectionError) as error:
        raise UserError(
            "rollouts.staleness: the sampling process has ended, possibly out of memory; resume the run"
        ) from error


def hush_lost_connections() -> None:
    """Silence the traceback that another thread prints when a connection is lost.

    A thread of `multiprocessing` hands over shared memory; if the receiver dies meanwhile, the thread would print
    a traceback beside the line of `ended_sampler`.
    """
    before = sys.excepthook
    if not (isinstance(before, partial) and before.func is _tell_others):
        sys.excepthook = partial(_tell_others, before)


def _tell_others(
    before: Callable[..., object], kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if threading.current_thread() is threading.main_thread() or not isinstance(error, EOFError | ConnectionError):
        before(kind, error, trace)


class Sampler:
    """Runs a collector in the other process. Several threads may call it at once."""

    def __init__(self, build: Callable[[], Collector]):
        self._collector = build()

    def process(self) -> int:
        """The number of this process."""
        return os.getpid()

    def run(self, requests: Sequence[Request], stream: Stream, store: Store | None = None) -> Done:
        """See `Collector.run`. Runs overlap, so each gets its own environment, if the environment can be copied."""
        began, own = time.time(), self._collector.environment.copy_for_collection()
        collector = replace(self._collector, environment=own, judging=Judging())
        groups = collector.run(requests, stream)
        if store:
            groups = [put_group(group, store) for group in groups]
        return Done(groups, collector.judge_seconds, (began, time.time()), dict(take_counts()))

    def on_engine(self, method: str, *arguments: Any) -> Any:
        """Call a method of the engine."""
        return getattr(self._collector.engine, method)(*arguments)


def live_with_parent() -> None:
    """Ignore SIGTERM, which a scheduler sends to every process, and end with the training process, however it ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_with_parent()


class _Manager(BaseManager):
    """Starts the process, and connects every thread to it."""


_Manager.register("sampler", Sampler)
