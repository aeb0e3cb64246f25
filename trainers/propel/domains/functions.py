"""Functions of one small integer: the lab's function induction, as its teacher solves it and its author writes it.

A function is an expression of x in the short syntax of `halfway.trainers.propel.domains.induction_text`: sums,
products, remainders, whole-number quotients, squares and two-way choices. Ten inputs of 0..12 go with it; five are
shown with their results.

The teacher is asked for small constants far more often than for large constants, so a solver that learned from it knows
x*2+1 by heart, often misses x*6-11, and knows nothing of x*6-31. The author writes problems on both sides of that
frontier, and few on it. So the numbers in a text tell more about its difficulty than its kind of function does.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from halfway.trainers.propel.domains.induction_text import Short, Shown

INPUTS = range(13)
RESULTS = range(-40, 161)
NUM_INPUTS = 10
MOST_TRIES = 1000

Draw = Callable[[int, int], int]
"""Draws a constant between two numbers, ends included, or beyond the second if that is the habit."""
Constants = Callable[[int, int, random.Random], int]
"""How such constants are drawn."""


class Function(NamedTuple):
    """An expression and what it computes."""

    text: str
    value: Callable[[int], int]


class Example(NamedTuple):
    """A function with its inputs, the shown half first, and its results."""

    function: Function
    inputs: tuple[int, ...]
    results: tuple[int, ...]


def _offset(of: Function, number: int) -> Function:
    """`of` plus a number that may be negative; itself if it is 0."""
    return Function(f"{of.text}{number:+d}", lambda x: of.value(x) + number) if number else of


def _signed(draw: Draw, largest: int, rng: random.Random) -> int:
    return draw(1, largest) * rng.choice((-1, 1))


def _times(factor: int) -> Function:
    return Function(f"x*{factor}", lambda x: x * factor)


IDENTITY = Function("x", lambda x: x)
SQUARE = Function("x*x", lambda x: x * x)


def _add(draw: Draw, rng: random.Random) -> Function:
    return _offset(IDENTITY, _signed(draw, 12, rng))


def _multiply(draw: Draw, rng: random.Random) -> Function:
    return _times(draw(2, 9))


def _linear(draw: Draw, rng: random.Random) -> Function:
    return _offset(_times(draw(2, 7)), _signed(draw, 12, rng))


def _falling(draw: Draw, rng: random.Random) -> Function:
    start, factor = draw(1, 40), draw(1, 4)
    return Function(f"{start}-x" if factor == 1 else f"{start}-x*{factor}", lambda x: start - x * factor)


def _remainder(draw: Draw, rng: random.Random) -> Function:
    modulus = draw(2, 7)
    return _offset(Function(f"x%{modulus}", lambda x: x % modulus), rng.choice((0, 1)) * _signed(draw, 9, rng))


def _quotient(draw: Draw, rng: random.Random) -> Function:
    divisor = draw(2, 5)
    return _offset(Function(f"x/{divisor}", lambda x: x // divisor), rng.choice((0, 1)) * _signed(draw, 9, rng))


def _quadratic(draw: Draw, rng: random.Random) -> Function:
    if rng.random() < 0.5:
        return _offset(SQUARE, _signed(draw, 9, rng))
    factor = draw(2, 9)
    if factor > 4 or rng.random() < 0.5:
        return Function(f"x*x-x*{factor}", lambda x: x * x - x * factor)
    return Function(f"x*x+x*{factor}", lambda x: x * x + x * factor)


def _linear_remainder(draw: Draw, rng: random.Random) -> Function:
    inner, modulus = _linear_sum(draw), draw(5, 9)
    return Function(f"({inner.text})%{modulus}", lambda x: inner.value(x) % modulus)


def _linear_quotient(draw: Draw, rng: random.Random) -> Function:
    inner, divisor = _linear_sum(draw), draw(2, 5)
    return Function(f"({inner.text})/{divisor}", lambda x: inner.value(x) // divisor)


def _linear_sum(draw: Draw) -> Function:
    return _offset(_times(draw(2, 5)), draw(1, 6))


def _threshold(draw: Draw, rng: random.Random) -> Function:
    low, limit = _offset(IDENTITY, _signed(draw, 9, rng)), rng.randint(3, 9)
    number = draw(2, 9)
    high = rng.choice(
        (
            _times(min(number, 4)),
            _offset(IDENTITY, number),
            Function(f"{number}", lambda x: number),
            Function(f"{number}-x", lambda x: number - x),
        )
    )
    return Function(f"{low.text}ix<{limit}e{high.text}", lambda x: low.value(x) if x < limit else high.value(x))


def _parity(draw: Draw, rng: random.Random) -> Function:
    modulus, odd, even = rng.randint(2, 3), _times(draw(2, 3)), _offset(IDENTITY, _signed(draw, 9, rng))
    return Function(f"{odd.text}ix%{modulus}e{even.text}", lambda x: odd.value(x) if x % modulus else even.value(x))


def _remainder_and_quotient(draw: Draw, rng: random.Random) -> Function:
    modulus, factor, divisor = draw(2, 5), draw(2, 5), draw(2, 4)
    return Function(f"x%{modulus}*{factor}+x/{divisor}", lambda x: x % modulus * factor + x // divisor)


Kind = Callable[[Draw, random.Random], Function]
KINDS: Mapping[str, Kind] = {
    "add": _add,
    "multiply": _multiply,
    "linear": _linear,
    "falling": _falling,
    "remainder": _remainder,
    "quotient": _quotient,
    "quadratic": _quadratic,
    "linear_remainder": _linear_remainder,
    "linear_quotient": _linear_quotient,
    "threshold": _threshold,
    "parity": _parity,
    "remainder_and_quotient": _remainder_and_quotient,
}

TEACHER: Mapping[str, float] = {
    "add": 10,
    "multiply": 8,
    "linear": 22,
    "falling": 10,
    "remainder": 10,
    "quotient": 8,
    "quadratic": 10,
    "linear_remainder": 6,
    "linear_quotient": 5,
    "threshold": 7,
    "parity": 3,
    "remainder_and_quotient": 2,
}
"""How often the teacher is asked for each kind."""

AUTHOR: Mapping[str, float] = {
    "add": 16,
    "multiply": 8,
    "linear": 20,
    "falling": 3,
    "remainder": 12,
    "quotient": 10,
    "quadratic": 16,
    "linear_remainder": 2,
    "linear_quotient": 2,
    "threshold": 6,
    "parity": 3,
    "remainder_and_quotient": 2,
}
"""How often the author writes each kind."""


@dataclass(frozen=True)
class MostlySmall:
    """Constants a, a+1, ... have the weights 1, decay, decay^2, ...; a decay of 1 draws evenly."""

    decay: float

    def __call__(self, first: int, last: int, rng: random.Random) -> int:
        weights = [self.decay**i for i in range(last - first + 1)]
        return rng.choices(range(first, last + 1), weights)[0]


@dataclass(frozen=True)
class BothSides:
    """Constants from the first third of the range, from the rest of it, and from beyond it, up to three times its end.

    Attributes:
        near, middle, far: the three weights.
    """

    near: float = 0.5
    middle: float = 0.14
    far: float = 0.36

    def __call__(self, first: int, last: int, rng: random.Random) -> int:
        third = first + max(1, (last - first) // 3)
        parts = [(first, third), (min(third + 1, last), last), (last + 1, 3 * last)]
        return rng.randint(*rng.choices(parts, [self.near, self.middle, self.far])[0])


@dataclass(frozen=True)
class Habits:
    """How functions are drawn.

    Attributes:
        kinds: weight of each kind of function.
    """

    kinds: Mapping[str, float] = field(default_factory=lambda: AUTHOR)
    constants: Constants = field(default_factory=BothSides)


def draw_example(habits: Habits, rng: random.Random) -> Example:
    """A function whose results stay in range and are not all equal, with ten different inputs, each half sorted."""

    def draw(first: int, last: int) -> int:
        return habits.constants(first, last, rng)

    for _ in range(MOST_TRIES):
        function = KINDS[rng.choices(list(habits.kinds), list(habits.kinds.values()))[0]](draw, rng)
        drawn = rng.sample(INPUTS, NUM_INPUTS)
        half = NUM_INPUTS // 2
        inputs = (*sorted(drawn[:half]), *sorted(drawn[half:]))
        results = tuple(map(function.value, inputs))
        if all(result in RESULTS for result in results) and len(set(results)) > 1:
            return Example(function, inputs, results)
    raise AssertionError("these habits make no function in range")


def posed(example: Example) -> str:
    """The solver's prompt, as the domain writes it."""
    half = NUM_INPUTS // 2
    pairs = zip(example.inputs[:half], example.results[:half], strict=True)
    return Short().pose([Shown(f"({x},)", str(y)) for x, y in pairs], "")


def written(function: str, inputs: Sequence[int]) -> str:
    """A task as a generator writes it."""
    return f"{','.join(map(str, inputs))}>{function}"


@dataclass(frozen=True)
class FunctionAuthor:
    """How tasks are written.

    Attributes:
        habits: how its functions are drawn.
        flawed: chance that a text is spoilt in one of the ways of `spoil`.
    """

    habits: Habits = field(default_factory=Habits)
    flawed: float = 0.14


def write_function(author: FunctionAuthor, rng: random.Random) -> str:
    """One text as the author writes it, a task or a spoilt one."""
    example = draw_example(author.habits, rng)
    if rng.random() < author.flawed:
        return spoil(example, rng)
    return written(example.function.text, example.inputs)


def spoil(example: Example, rng: random.Random) -> str:
    """A nearly valid text: an operand or a bracket is missing, there are too few inputs, or an input occurs twice."""
    text, inputs = example.function.text, example.inputs
    match rng.randrange(4):
        case 0:
            return written(text + rng.choice("+*-"), inputs)
        case 1:
            return written(f"({text}", inputs)
        case 2:
            return written(text, inputs[: rng.randint(5, NUM_INPUTS - 1)])
        case _:
            return written(text, (*inputs[:-1], inputs[0]))
