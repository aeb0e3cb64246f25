"""Variations by verifier: a function makes a similar problem from a given one, and computes its answer."""

from collections.abc import Callable

from halfway.curriculum.problems import Problem
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.registry import Registry

Variation = Callable[[Problem, Stream], Problem]
"""(a problem, a stream to draw from) -> another problem with its own answer. Its id depends on its content alone."""

VARIATIONS = Registry(
    what="variation",
    group="halfway.variations",
    builtin={
        "operator_sheets": "halfway.curriculum.tasks.lab.variations:operator_sheets",
        "running_sums": "halfway.curriculum.tasks.lab.variations:running_sums",
    },
)
"""Variations by the name of the verifier that judges the problems."""
