"""Saved states as a damaged checkpoint would give them back."""

import copy
from collections.abc import Iterator
from typing import Any


def damaged(state: dict[str, Any]) -> Iterator[Any]:
    """Values that are no state, and the state with each of its values replaced or missing in turn."""
    yield from (None, [], {}, "state")
    for place in places(state):
        for change in (lambda holder, last: holder.pop(last), lambda holder, last: holder.__setitem__(last, ["odd"])):
            changed = copy.deepcopy(state)
            holder: Any = changed
            for key in place[:-1]:
                holder = holder[key]
            change(holder, place[-1])
            yield changed


def places(value: Any, depth: int = 4) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to each value inside a value, to some depth; of a list only its first two."""
    inside = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, inner in inside if depth else ():
        yield (key,)
        yield from ((key, *rest) for rest in places(inner, depth - 1))
