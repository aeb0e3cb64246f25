"""The cases of reward-doctor, a package that others made: responses and the verdicts that a verifier should give."""

import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
from paths import REPOSITORY
from reward_doctor import corpus
from reward_doctor.case import Case

from halfway.curriculum import Problem, UserError
from halfway.curriculum.tasks.verifiers.verify import verify

CASES = corpus.load()
COLUMNS = ("equivalence", "box", "format", "distinction", "exploit")
ROW = re.compile(r"\| `(\w+)` \| now " + r"\| (\d+) " * len(COLUMNS) + r"\|")


def in_a_box(case: Case) -> Case:
    boxed = "boxed" in case.completion
    return case if boxed else replace(case, completion=f"So the answer is \\boxed{{{case.completion}}}.")


def passes(case: Case, verifier: str) -> bool:
    with suppress(UserError):  # an answer that the verifier refuses
        return verify(Problem(case.id, case.prompt, case.reference, "reward-doctor", verifier), case.completion)
    return False


def score(verifier: str) -> list[int]:
    found: Counter[str] = Counter()
    for case in CASES:
        found[case.category] += passes(case, verifier)
        if case.category == "equivalence":
            found["box"] += passes(in_a_box(case), verifier)
    return [found[column] for column in COLUMNS]


STATED = {
    row[1]: list(map(int, row.groups()[1:])) for row in ROW.finditer((REPOSITORY / "docs/reports_tried.md").read_text())
}


def test_all_cases_are_counted() -> None:
    assert Counter(case.category for case in CASES) == {
        "equivalence": 38,
        "format": 8,
        "distinction": 13,
        "exploit": 24,
    }
    assert set(STATED) == {"exact", "numeric", "symbolic"}


@pytest.mark.parametrize("verifier", sorted(STATED))
def test_verifiers_judge_as_the_page_says(verifier: str) -> None:
    assert score(verifier) == STATED[verifier]


@pytest.mark.parametrize("verifier", ["numeric", "symbolic"])
def test_nothing_wrong_is_paid(verifier: str) -> None:
    assert STATED[verifier][3:] == [0, 0] and STATED["symbolic"][1] >= 37
