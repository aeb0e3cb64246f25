"""A verifier tried on the references of a data set."""

import pytest

from halfway.curriculum import Problem
from halfway.curriculum.tasks.verifiers import verify
from halfway.curriculum.tasks.verifiers.exact_numeric import numeric
from halfway.curriculum.tasks.verifiers.reference_trials import renderings, try_verifiers

NUMBERS = ("42", "3.14", "1/3", "1,000", "so 3 + 4 = 7\n#### 7", "-7", "0", "9", "0.0000005", "25 cm^2")
EXPRESSIONS = (
    r"\frac{1}{3}",
    "x+1",
    r"\sqrt{2}",
    r"\text{east}",
    "(1,2)",
    "x=5",
    r"50\%",
    r"\$18.90",
    r"(-\infty, 3)",
    "A",
)


@pytest.mark.parametrize(
    ("verifier", "answers"),
    [("numeric", NUMBERS), ("symbolic", (*NUMBERS[:4], "6.02e23", *EXPRESSIONS)), ("exact", ("yes", "a b"))],
)
def test_our_verifiers_judge_renderings_and_near_misses_right(verifier: str, answers: tuple[str, ...]) -> None:
    problems = [Problem(str(i), "?", answer, "s", verifier) for i, answer in enumerate(answers)]
    [trial] = try_verifiers(problems)
    assert not trial.examples and trial.right == trial.right_passed >= len(answers) <= trial.wrong
    assert trial.wrong_passed == 0 and f"{trial.right} of {trial.right} right" in str(trial)


def test_wrong_verdicts_are_counted_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verifier that pays whatever names the answer, and one that takes commas for the end of a number."""
    problems = [Problem(str(i), "?", answer, "s", "numeric") for i, answer in enumerate(["42", "1,000"])]
    monkeypatch.setitem(verify.VERIFIERS._added, "numeric", lambda problem, text: problem.answer in text)
    [trial] = try_verifiers(problems)
    assert trial.wrong_passed == 3 and len(trial.examples) == 3  # a refusal of each, and -42
    assert "-42" in trial.examples[0] and "1,000" in trial.examples[2] and "wrong" in trial.examples[2]
    monkeypatch.setitem(verify.VERIFIERS._added, "numeric", lambda p, text: numeric(p, text.replace(",", " ")))
    [trial] = try_verifiers(problems)
    assert trial.right_passed < trial.right and "'1,000'" in trial.examples[0] and "right" in trial.examples[0]


def test_other_verifiers_are_not_tried() -> None:
    assert not list(try_verifiers([Problem("p", "?", "", "s", "running_sums")]))


def test_near_misses_are_wrong_numbers() -> None:
    wrong = {text for text, right in renderings("9", "numeric") if not right}
    assert {r"\boxed{10}", r"\boxed{-9}", r"\boxed{8}"} <= wrong and len(wrong) == 4
