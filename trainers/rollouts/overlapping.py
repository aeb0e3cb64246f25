"""Overlaps tools with sampling: an attempt continues as soon as its own tool has returned."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Generic, Self, TypeVar

from halfway.curriculum import Turn
from halfway.curriculum.environments.contract import StepResult
from halfway.trainers.rollouts.attempts import Attempt

Item = TypeVar("Item")
Result = TypeVar("Result")


class BackgroundCalls(Generic[Item, Result]):
    """Applies a function to added items, one call at a time, each to all items added since the last call.

    A context manager: leaving it waits for the running call, and drops the items after it.
    """

    def __init__(self, function: Callable[[Sequence[Item]], Sequence[Result]]):
        """
        Args:
            function: returns one result per item, in order. The results must not depend on how calls divide the items.
        """
        self._function = function
        self._pool = ThreadPoolExecutor(1, "background-calls")
        self._waiting: SimpleQueue[Item] = SimpleQueue()
        self._calls: list[Future[list[tuple[Item, Result]]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, item: Item) -> None:
        """Add an item for the next call."""
        self._waiting.put(item)
        self._calls.append(self._pool.submit(self._work))

    def results(self) -> Iterator[tuple[Item, Result]]:
        """Yield every item with its result, in the order of adding. Raises the function's exception."""
        for call in self._calls:
            yield from call.result()

    def _work(self) -> list[tuple[Item, Result]]:
        # Nothing else takes from the queue. An earlier call may have processed this item too.
        items = [self._waiting.get() for _ in range(self._waiting.qsize())]
        return list(zip(items, self._function(items), strict=True)) if items else []


READY_SHARE = 0.25
PATIENCE_SECONDS = 0.5
"""An engine for one caller at a time starts when this share of attempts is ready, or after this many seconds."""

Told = Callable[[Attempt, Turn], None]


@dataclass
class Overlapping:
    """Rolls out attempts that do not wait for each other.

    Attributes:
        sample: continues some attempts, and reports each with its response.
        judge: returns the environment's answer to a response.
        answer: adds the answer to an attempt, or ends it.
        several: whether several threads may call `sample` at once.
        deadline: time on the monotonic clock at which unfinished attempts end. Sampling is waited for, tools are not.
    """

    sample: Callable[[Sequence[Attempt], Told], None]
    judge: Callable[[Attempt, Turn], StepResult[Any]]
    answer: Callable[[Attempt, Turn, StepResult[Any]], None]
    several: bool
    deadline: float
    _news: "SimpleQueue[tuple[Any, ...]]" = field(default_factory=SimpleQueue)
    _with_tools: dict[int, tuple[Attempt, Turn]] = field(default_factory=dict)
    _sampling: int = 0

    def run(self, attempts: Sequence[Attempt], report: Callable[[], None]) -> None:
        """Roll out until every attempt has ended. Calls `report` after every event."""
        ready, since = [attempt for attempt in attempts if attempt.live], 0.0
        while ready or self._sampling or self._with_tools:
            now = time.monotonic()
            if now >= self.deadline:
                self._end(ready)
                if not self._sampling:
                    break
            wait = max(self.deadline - now, 0.0) if not self._sampling else None
            if ready and (self.several or not self._sampling):
                patience = since + PATIENCE_SECONDS - now
                if self.several or len(ready) >= READY_SHARE * (len(ready) + len(self._with_tools)) or patience <= 0:
                    self._begin(self._sample, tuple(ready))
                    self._sampling += 1
                    ready.clear()
                    continue
                wait = patience if wait is None else min(wait, patience)
            more = self._await_news(wait)
            since = since if ready else time.monotonic()
            ready += more
            report()

    def _await_news(self, wait: float | None) -> list[Attempt]:
        """Wait for news, at most `wait` seconds. Returns the attempts that continue."""
        try:
            kind, *news = self._news.get(timeout=min(wait, threading.TIMEOUT_MAX) if wait is not None else None)
        except Empty:
            return []
        if kind == "failed":
            raise news[0]
        if kind == "sampled":
            self._sampling -= 1
        elif kind == "response":
            attempt, turn = news
            if turn.stop != "end":
                attempt.end(turn, success=False, truncated=True)
            else:
                self._with_tools[id(attempt)] = (attempt, turn)
                self._begin(self._judge, attempt, turn)
        elif self._with_tools.pop(id(news[0]), None) is not None:  # else its time had run out
            self.answer(*news)
            return [news[0]] if news[0].live else []
        return []

    def _end(self, ready: list[Attempt]) -> None:
        """End the attempts that are not being sampled."""
        for attempt, turn in self._with_tools.values():
            attempt.cut(turn)
        for attempt in ready:
            attempt.cut()
        ready.clear()
        self._with_tools.clear()

    def _begin(self, work: Callable[..., None], *arguments: Any) -> None:
        """Work in another thread, a daemon, since a tool may hang."""

        def guarded() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self._news.put(("failed", error))

        threading.Thread(target=guarded, daemon=True).start()

    def _sample(self, attempts: Sequence[Attempt]) -> None:
        self.sample(attempts, lambda attempt, turn: self._news.put(("response", attempt, turn)))
        self._news.put(("sampled",))

    def _judge(self, attempt: Attempt, turn: Turn) -> None:
        self._news.put(("answer", attempt, turn, self.judge(attempt, turn)))
