"""Hostile answers, drawn at random with a seed: every verifier gives a verdict on each, in time, and raises on none."""

import ast
import importlib
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from messages import says
from msgspec import structs

from halfway.curriculum import Problem, Stream, UserError
from halfway.curriculum.tasks import reasoning_gym
from halfway.curriculum.tasks.lab import sums
from halfway.curriculum.tasks.lab.lab_sources import OperatorSheets
from halfway.curriculum.tasks.reasoning_gym import ARITHMETIC, EVALUATING, LITERAL, ReasoningGym, require_harmless
from halfway.curriculum.tasks.verifiers import symbolic
from halfway.curriculum.tasks.verifiers.function_induction import Reference
from halfway.curriculum.tasks.verifiers.helpers import take_counts
from halfway.curriculum.tasks.verifiers.numbers import after_thoughts, stated_number
from halfway.curriculum.tasks.verifiers.verify import VERIFIERS, verify_all

DATASETS = importlib.import_module("reasoning_gym.factory").DATASETS
FAMILIES = sorted(name for name in DATASETS if name != "composite")
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


@pytest.mark.parametrize("verifier", sorted(set(VERIFIERS.builtin) - {"reasoning_gym", "taskset"}))
def test_every_verifier_judges_hostile_answers(verifier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbolic, "SYMBOLIC_TIMEOUT", 1)
    judged_in_time(problem_of(verifier), hostile(verifier))


@pytest.mark.parametrize("piece", ["a", "word ", "answer is ", "the answer is 5 ", r"\pi", r"\frac{1}{2}"])
def test_long_answers_take_time_in_proportion(piece: str) -> None:
    """A search that began anew at each character took 1 to 6 s for 10,000 of them."""
    text, begun = piece * (200_000 // len(piece)), time.process_time()
    stated_number(text)
    stated_number(after_thoughts(rf"\boxed{{{text}"))  # a box that is cut off
    symbolic._DESCENDING.sub("", text)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("family", ["chain_sum", *sorted(EVALUATING | LITERAL)])
def test_families_judge_hostile_answers(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning_gym, "SECONDS", 1.0)
    [problem] = ReasoningGym(family).load(1, Stream(0)).problems
    judged_in_time(problem, hostile(family))


def hostile_texts(value: Any, code: str) -> Iterator[Any]:
    """The value with each of its texts, one after the other, replaced by code."""
    match value:
        case str():
            yield code
        case dict():
            for key, part in value.items():
                yield from ({**value, key: changed} for changed in hostile_texts(part, code))
        case list() | tuple():
            for i, part in enumerate(value[:3]):
                yield from ([*value[:i], changed, *value[i + 1 :]] for changed in hostile_texts(part, code))


@pytest.mark.parametrize("family", FAMILIES)
def test_no_family_runs_code_of_an_entry(family: str, tmp_path: Path) -> None:
    """Entries come from problem files, which may be a stranger's: at load, in `validate`, at the first response."""
    try:
        [problem] = ReasoningGym(family).load(1, Stream(0)).problems
    except UserError as error:  # a family that cannot be drawn without a configuration
        pytest.skip(str(error)[:80])
    carried = ast.literal_eval(problem.answer)
    mark = tmp_path / "mark"
    code = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    changed = list(hostile_texts({"entry": carried["entry"], "config": carried["config"]}, code))
    assert changed
    for each in changed[:12]:
        stranger = structs.replace(problem, answer=repr(carried | each))
        for response in ("", carried["entry"]["answer"]):
            with suppress(UserError):
                verify_all([stranger], [str(response)])
            assert not mark.exists(), f"{each} was executed"


@pytest.mark.parametrize(
    ("family", "response"),
    [
        ("puzzle24", "6+6+6+6"),
        ("game_of_life_halting", "I refuse"),
        ("gsm_symbolic", "-{answer}"),
        ("coin_flip", "0"),
        ("coin_flip", "1e9999999"),
        ("complex_arithmetic", "nan"),
        ("polynomial_multiplication", "{answer} or 77"),
        ("rush_hour", "A+9999999"),
    ],
)
def test_families_do_not_pay_for_what_upstream_pays(
    family: str, response: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reasoning_gym, "SECONDS", 2.0)
    problems = ReasoningGym(family).load(8, Stream(0)).problems
    answers = [str(ast.literal_eval(problem.answer)["entry"]["answer"]) for problem in problems]
    began = time.monotonic()
    verdicts = verify_all(problems, [response.format(answer=answer) for answer in answers])
    wrong = [verdict for verdict, answer in zip(verdicts, answers, strict=True) if answer not in ("0", "0.0", "")]
    assert wrong and not any(wrong) and time.monotonic() - began < 60


def test_a_missing_package_is_named_before_a_helper_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    [problem] = ReasoningGym("binary_matrix").load(1, Stream(0)).problems
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(UserError, match=says("reasoning_gym", "halfway[tasks]")):
        verify_all([problem], ["1"])


def test_composite_data_sets_are_refused() -> None:
    """Their members would escape the rules for families that evaluate."""
    with pytest.raises(UserError, match="composite"):
        ReasoningGym("composite").load(1, Stream(0))
    answer = repr({"family": "composite", "config": {}, "entry": {"answer": "1", "metadata": {}}})
    with pytest.raises(UserError, match="composite"):
        verify_all([Problem("p", "?", answer, "s", "reasoning_gym")], ["1"])


@pytest.mark.parametrize("family", sorted(EVALUATING | ARITHMETIC))
def test_entries_of_families_that_evaluate_them_pass_as_they_are(family: str) -> None:
    for problem in ReasoningGym(family).load(30, Stream(1)).problems:
        carried = ast.literal_eval(problem.answer)
        require_harmless(family, carried["entry"])


def judged_in_time(problem: Problem, texts: list[str]) -> None:
    take_counts()
    began = time.monotonic()
    verdicts = verify_all([problem] * len(texts), texts)
    assert len(verdicts) == len(texts) and set(verdicts) <= {True, False}
    assert sum(verdicts) <= len(texts) // 20  # a number that ends an answer may be the right one
    assert sum(take_counts().values()) <= len(texts)
    assert time.monotonic() - began < 1.5 * len(texts)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_judges_without_the_config_of_a_problem_file(family: str) -> None:
    """A stranger's config could name any file, or a number that fills the memory."""
    [problem] = ReasoningGym(family).load(1, Stream(0)).problems
    carried = ast.literal_eval(problem.answer)
    config_type = DATASETS[family][1]
    hostile = {name: "/etc/passwd" if name == "data_file" else 10**12 for name in config_type.__dataclass_fields__}
    strange = structs.replace(problem, answer=repr({**carried, "config": hostile}))
    answer = str(carried["entry"]["answer"])
    assert verify_all([problem, problem], [answer, "?"]) == verify_all([strange, strange], [answer, "?"])


@pytest.mark.parametrize(("decimals", "passes"), [(2, True), (4, False)])
def test_the_config_of_a_problem_file_says_how_many_decimals_count(decimals: int, passes: bool) -> None:
    options = {"min_num_decimal_places": 2, "max_num_decimal_places": decimals}
    [problem] = ReasoningGym("decimal_arithmetic", options).load(1, Stream(0)).problems
    answer = Decimal(ast.literal_eval(problem.answer)["entry"]["answer"])
    assert verify_all([problem] * 2, [str(answer), str(answer + Decimal("0.009"))]) == [True, passes]


def test_a_family_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    [problem] = ReasoningGym("tower_of_hanoi").load(1, Stream(0)).problems
    assert verify_all([problem], ["Move disk 1 from Peg 1 to Peg 99"]) == [False]
    assert capsys.readouterr().out == ""
