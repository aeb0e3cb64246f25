"""Hostile answers, drawn at random with a seed: every verifier gives a verdict on each, in time, and raises on none."""

import time
from random import Random

import pytest

from halfway.curriculum.problems import Problem
from halfway.curriculum.streams import Stream
from halfway.curriculum.tasks import expressions, reasoning_gym
from halfway.curriculum.tasks.function_induction import Reference
from halfway.curriculum.tasks.helpers import take_counts
from halfway.curriculum.tasks.lab import sums
from halfway.curriculum.tasks.lab.sources import OperatorSheets
from halfway.curriculum.tasks.reasoning_gym import EVALUATING, LITERAL, ReasoningGym
from halfway.curriculum.tasks.verifiers import VERIFIERS, verify_all

NUMBER = 100
"""Answers for each verifier; 1,000 were tried once."""

PIECES = (
    *("[", "{", "(", ")", "}", "]", "\\boxed{", "\\frac{", "\\sqrt{", "\\left(", "$", "\\(", "\\[", "^{", "_{"),
    *("<answer>", "</answer>", "```python\n", "```", "def f(x):\n    return ", "f = ", "while True: pass\n"),
    *("9" * 5000, "1e999999999", "nan", "inf", "-", "0x", "1/0", "**9**9", "!", ",000", "\\infty", "x", "=", "7"),
    *("\x00", "\ud800", "\u202e", "\x1b[2J", "\N{FULLWIDTH DIGIT ONE}", "\n", " " * 999, "'", '"', "\\", "e" * 300),
    *("lambda: ", "%s" * 50, "a" * 20_000, "\\text{", "\\begin{pmatrix}", "&", "\\\\", "\\sum_{k=1}^{99999}"),
    *("import os\n", "__import__('os')", "\\int ", "\\cdot "),
)


def hostile(seed: str) -> list[str]:
    """Short and long runs of pieces, and some pieces many times."""
    random = Random(seed)
    found = []
    for _ in range(NUMBER):
        pieces = random.choices(PIECES, k=random.randrange(1, 30))
        found.append("".join(piece * random.choice((1, 1, 1, 40)) for piece in pieces)[:200_000])
    return found


def problem_of(verifier: str) -> Problem:
    reference = Reference(1.0, ("(1,)",), ("1",))
    answer = {"symbolic": r"\frac{1}{2}", "function_induction": reference.as_text()}.get(verifier, "5")
    prompt = sums.render(sums.Sheet(start=7, operands=(5, 8, 3), allowed=0))
    if verifier == "operator_sheets":
        return OperatorSheets().load(1, Stream(0)).problems[0]
    return Problem("p", prompt, answer, "test", verifier)


@pytest.mark.parametrize("verifier", sorted(set(VERIFIERS.builtin) - {"reasoning_gym"}))
def test_every_verifier_judges_hostile_answers(verifier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "SYMBOLIC_TIMEOUT", 1)
    judged_in_time(problem_of(verifier), hostile(verifier))


@pytest.mark.parametrize("family", ["chain_sum", *sorted(EVALUATING | LITERAL)])
def test_families_judge_hostile_answers(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning_gym, "SECONDS", 5.0)
    [problem] = ReasoningGym(family).load(1, Stream(0)).problems
    judged_in_time(problem, hostile(family))


def judged_in_time(problem: Problem, texts: list[str]) -> None:
    take_counts()
    began = time.monotonic()
    verdicts = verify_all([problem] * len(texts), texts)
    assert len(verdicts) == len(texts) and set(verdicts) <= {True, False}
    assert sum(verdicts) <= len(texts) // 20  # a number that ends an answer may be the right one
    assert sum(take_counts().values()) <= len(texts)
    assert time.monotonic() - began < 1.5 * len(texts)
