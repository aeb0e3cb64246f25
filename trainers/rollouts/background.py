"""Work on items in another thread while more of them come in."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Generic, Self, TypeVar

Given = TypeVar("Given")
Result = TypeVar("Result")


class BackgroundCalls(Generic[Given, Result]):
    """Applies a function to added items, one call at a time, each to everything that has come in since the last.

    A context manager: leaving it waits for the call under way, and drops what no call has begun.
    """

    def __init__(self, function: Callable[[Sequence[Given]], Sequence[Result]]):
        """
        Args:
            function: returns one result per item, in order. It must not matter how the items are divided into calls.
        """
        self._function = function
        self._pool = ThreadPoolExecutor(1, "background-calls")
        self._waiting: SimpleQueue[Given] = SimpleQueue()
        self._calls: list[Future[list[tuple[Given, Result]]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, given: Given) -> None:
        """Add an item, which will be worked on soon."""
        self._waiting.put(given)
        self._calls.append(self._pool.submit(self._work))

    def results(self) -> Iterator[tuple[Given, Result]]:
        """Every item with its result, in the order of adding. Raises what the function raised."""
        for call in self._calls:
            yield from call.result()

    def _work(self) -> list[tuple[Given, Result]]:
        # Nothing else takes from the queue. An earlier call may have processed this item too.
        given = [self._waiting.get() for _ in range(self._waiting.qsize())]
        return list(zip(given, self._function(given), strict=True)) if given else []
