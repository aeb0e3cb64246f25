"""Work on items in another thread while more of them come in."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Generic, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class BackgroundCalls(Generic[Item, Result]):
    """Applies a function to added items, one call at a time, each to everything that has come in since the last.

    A context manager: leaving it waits for the call under way, and drops what no call has begun.
    """

    def __init__(self, function: Callable[[Sequence[Item]], Sequence[Result]]):
        """
        Args:
            function: returns one result per item, in order. It must not matter how the items are divided into calls.
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
        """Add an item, which will be worked on soon."""
        self._waiting.put(item)
        self._calls.append(self._pool.submit(self._work))

    def results(self) -> Iterator[tuple[Item, Result]]:
        """Every item with its result, in the order of adding. Raises what the function raised."""
        for call in self._calls:
            yield from call.result()

    def _work(self) -> list[tuple[Item, Result]]:
        # Nothing else takes from the queue. An earlier call may have processed this item too.
        items = [self._waiting.get() for _ in range(self._waiting.qsize())]
        return list(zip(items, self._function(items), strict=True)) if items else []
