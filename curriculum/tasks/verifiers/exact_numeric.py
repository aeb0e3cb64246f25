"""The contract of a verifier, and verifiers that compare a response with an answer as text or as numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from halfway.curriculum import Problem
from halfway.curriculum.tasks.verifiers.numbers import (
    after_thoughts,
    close,
    final_answer,
    last_quantity,
    normalise,
    only_number,
    stated_number,
)
from halfway.curriculum.tasks.verifiers.words import units_differ


@dataclass(frozen=True, slots=True)
class Lost:
    """No verdict, through no fault of the policy: the rollout is lost and does not count as a failure.

    Attributes:
        reason: one line.
    """

    reason: str

    def __bool__(self) -> bool:
        return False


Verifier = Callable[[Problem, str], bool | Lost]


@dataclass(frozen=True)
class Batched:
    """A verifier that judges many responses together, faster than one by one.

    Attributes:
        judge: the verdict on each response, in order.
    """

    judge: Callable[[Sequence[Problem], Sequence[str]], Sequence[bool | Lost]]

    def __call__(self, problem: Problem, response: str) -> bool | Lost:
        return self.judge([problem], [response])[0]


def exact(problem: Problem, response: str) -> bool:
    """True if the texts are equal up to Unicode composition (NFC), line ends, and white space at both ends."""
    return normalise(response) == normalise(problem.answer)


def numeric(problem: Problem, response: str, *, tolerance: float = 1e-6) -> bool:
    """True if the final number is the answer: an integer exactly, others within a relative `tolerance` of 1e-6.

    The final number is in the last box, the last <answer> or after the last "####", which must contain one number;
    otherwise it is the last number of the response, unless the response denies it ("not 42"), or the number of a last
    "The answer is 42." that later sentences do not take up. Text before </think> does not count. An answer of 0 equals
    only 0. An answer with a known unit, such as 5 meters, does not equal a number with another unit ("5 feet").

    Args:
        tolerance: largest relative difference from an answer that is not an integer; 0 = exact. In files:
            "numeric(tolerance=0.01)".

    Raises:
        ValueError: if the answer is not one number, perhaps with money signs or units.
    """
    reference = only_number(problem.answer)
    response = after_thoughts(response)
    number = stated_number(response)
    if number is None or not close(number, reference, tolerance):
        return False
    return not units_differ(
        final_answer(problem.answer) or problem.answer, last_quantity(final_answer(response) or response)
    )
