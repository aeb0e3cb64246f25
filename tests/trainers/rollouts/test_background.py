"""Work in another thread: nothing is lost, nothing is done twice, and errors are reported."""

import threading
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfway.trainers.rollouts.overlapping import BackgroundCalls


@given(st.lists(st.integers(), max_size=50))
def test_every_item_has_its_result_in_order(items: list[int]) -> None:
    with BackgroundCalls(lambda items: [2 * item for item in items]) as doubled:
        for item in items:
            doubled.add(item)
        assert list(doubled.results()) == [(item, 2 * item) for item in items]


def test_what_comes_in_during_a_call_is_taken_together() -> None:
    calls: list[list[int]] = []
    begun, go_on = threading.Event(), threading.Event()

    def work(items: Sequence[int]) -> Sequence[int]:
        calls.append([*items])
        begun.set()
        assert go_on.wait(timeout=30)
        return items

    with BackgroundCalls(work) as same:
        same.add(0)
        assert begun.wait(timeout=30)
        for item in (1, 2, 3):
            same.add(item)
        go_on.set()
        assert len(list(same.results())) == 4
    assert calls == [[0], [1, 2, 3]]


def test_an_exception_of_the_work_is_raised_with_the_results() -> None:
    def divide(items: Sequence[int]) -> list[float]:
        return [1 / item for item in items]

    with BackgroundCalls(divide) as inverted, pytest.raises(ZeroDivisionError):
        inverted.add(0)
        list(inverted.results())


def test_leaving_early_drops_what_has_not_begun() -> None:
    done: list[int] = []

    def work(items: Sequence[int]) -> Sequence[int]:
        time.sleep(0.2)
        done.extend(items)
        return items

    with pytest.raises(KeyError), BackgroundCalls(work) as slow:
        slow.add(0)
        time.sleep(0.05)
        slow.add(1)
        raise KeyError
    assert done == [0]
