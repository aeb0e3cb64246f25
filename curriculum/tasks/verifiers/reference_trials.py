"""Tries a verifier on the references of a data set: renderings of the answer must pass, near misses must fail."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from halfway.curriculum import Problem
from halfway.curriculum.tasks.verifiers.numbers import close, final_answer, plain_number
from halfway.curriculum.tasks.verifiers.symbolic import TOLERANCE
from halfway.curriculum.tasks.verifiers.verify import find_verifier, verify_all

TRIED = ("exact", "numeric", "symbolic")
"""Verifiers whose answers are texts that a response could contain."""
EXAMPLES, LONGEST = 3, 100
"""Maximum number of wrong verdicts to show, and of characters of each text."""


@dataclass(frozen=True)
class Trial:
    """A verifier's verdicts on texts with known right verdicts.

    Attributes:
        verifier: name of the verifier, with options.
        references: number of problems whose answers were rendered.
        right, right_passed: number of renderings of right answers, and how many passed.
        wrong, wrong_passed: number of near misses, and how many passed.
        examples: sentences about the first wrong verdicts.
    """

    verifier: str
    references: int
    right: int
    right_passed: int
    wrong: int
    wrong_passed: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"verifier {self.verifier} on {self.references} of your references: {self.right_passed} of {self.right} "
            f"right renderings pass, {self.wrong_passed} of {self.wrong} near misses pass"
        )


def try_verifiers(problems: Sequence[Problem], most: int = 64) -> Iterator[Trial]:
    """Try each verifier of the problems that is in `TRIED`, on at most `most` evenly spread problems."""
    for name in dict.fromkeys(problem.verifier for problem in problems):
        if name.partition("(")[0] in TRIED:
            mine = [i for i, problem in enumerate(problems) if problem.verifier == name]
            yield _try(name, [problems[i] for i in mine[:: max(1, len(mine) // most)][:most]])


def _try(name: str, problems: Sequence[Problem]) -> Trial:
    cases = [(problem, text, right) for problem in problems for text, right in renderings(problem.answer, name)]
    verdicts = verify_all([problem for problem, _, _ in cases], [text for _, text, _ in cases])
    number = {True: 0, False: 0}
    passing = {True: 0, False: 0}
    examples = []
    for (problem, text, right), passed in zip(cases, verdicts, strict=True):
        number[right] += 1
        passing[right] += bool(passed)
        if passed != right:
            what = "passes, though it is wrong" if passed else "fails, though it is right"
            examples.append(f"answer {problem.answer[:LONGEST]!r}: response {text[:LONGEST]!r} {what}")
    shown = tuple(examples[:EXAMPLES])
    return Trial(name, len(problems), number[True], passing[True], number[False], passing[False], shown)


def renderings(answer: str, verifier: str) -> Iterator[tuple[str, bool]]:
    """Yield responses to a problem with this answer, and whether each is right.

    Right: the answer itself and, except for `exact`, in a box and in a sentence. Near misses of a number: one off, its
    negative, and another last digit; of other answers: a changed term. A refusal that names the answer is wrong, too.
    """
    final = (final_answer(answer) or answer).strip()
    tolerance = getattr(find_verifier(verifier), "keywords", {}).get("tolerance", TOLERANCE)
    if verifier == "exact":
        yield from ((answer, True), (f"{answer}.", False), (f"It is not {answer}.", False))
        return
    bare = final.strip("$")
    number = plain_number(final)
    yield f"so the answer is \\boxed{{{bare}}}", True
    if number is None:
        yield f"$\\boxed{{{bare}}}$.", True
        if not verifier.startswith("numeric"):
            yield f"\\boxed{{{bare}+1}}", False
    else:
        yield f"the answer is {bare}.", True
        yield f"#### {bare}", True
        for other in dict.fromkeys((number + 1, -number, _other_digit(bare, number))):
            if not close(other, number, tolerance):
                yield f"\\boxed{{{_write(other)}}}", False
        yield f"I cannot say, but it is certainly not {bare}", False


def _other_digit(text: str, number: Fraction) -> Fraction:
    """Change the last digit of a number; with a denominator such as 3, change the numerator."""
    digits = text.replace(",", "").lstrip("+-$\\")
    places = len(digits.partition(".")[2]) if digits.replace(".", "").isdigit() else 0
    if not digits.replace(".", "").isdigit():
        return Fraction(number.numerator + 1, number.denominator)
    return number + (Fraction(1, 10**places) if digits[-1] != "9" else -Fraction(1, 10**places))


def _write(number: Fraction) -> str:
    if number.denominator == 1:
        return str(number.numerator)
    text = f"{float(number):.15g}"
    return text if Fraction(text) == number else f"\\frac{{{number.numerator}}}{{{number.denominator}}}"
