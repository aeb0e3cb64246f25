"""Operator sheets: sheets marked by hand, the teacher's exact pass rate, reference solutions, strata."""

import math
import random
from collections import Counter
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import says

from halfway.curriculum import Stream, UserError, hint_of
from halfway.curriculum.tasks.lab import operators
from halfway.curriculum.tasks.lab.lab_sources import OperatorSheets
from halfway.curriculum.tasks.lab.operators import OPERATORS, STRATA, OperatorOptions, OperatorTeacher, Sheet
from halfway.curriculum.tasks.sources import split
from halfway.curriculum.tasks.verifiers.verify import verify
from halfway.experiments.starting_models.warm_start import build_tokenizer

SHEET = Sheet(start=3, operators="BKB", allowed=1)  # B of 3 is 4, K of 4 is 1, B of 1 is 5
NEVER = OperatorTeacher(least_error=1.0, most_error=1.0, notice=0.0)

SEEDS = st.integers(0, 2**32 - 1)
SHEETS = st.builds(
    Sheet,
    st.integers(0, operators.VALUES - 1),
    st.text(OPERATORS, min_size=1, max_size=len(operators.LABELS)),
    st.integers(0, 9),
)


def test_the_tables_are_permutations_and_the_teachers_beliefs_are_wrong_everywhere() -> None:
    values = range(operators.VALUES)
    for number in range(4):
        right, believed = operators.table(number)
        assert all(sorted(row) == list(values) for rows in (right, believed) for row in rows.values())
        assert all(believed[name][value] != right[name][value] for name in OPERATORS for value in values)
        # Skills are learnt separately: no operator says much about another.
        pairs = combinations(right.values(), 2)
        agree = [sum(a == b for a, b in zip(one, other, strict=True)) for one, other in pairs]
        assert max(agree) == 4 and sum(agree) / len(agree) == pytest.approx(1.0, abs=0.15)
    assert operators.table(0).right["A"] == (3, 2, 0, 5, 1, 4, 7, 6)
    assert operators.table(0).right["X"] == (3, 7, 4, 5, 0, 6, 2, 1)


def test_a_problem_is_marked_by_the_table_that_it_was_drawn_from() -> None:
    stream = Stream(3)
    for number in (0, 2):
        problem = OperatorSheets(table=number).load(1, stream).problems[0]
        assert verify(problem, problem.answer) and ("table" in problem.features) is bool(number)
        other = operators.solve(operators.parse(problem.prompt), 1)
        assert not verify(problem, other)


@pytest.mark.parametrize(
    ("response", "wrong"),
    [
        ("aB4bK1cB5", 0),
        ("aB7bK3cB4", 1),  # B of 3 is not 7; K of 7 is 3 and B of 3 is 4
        ("aB7bK1cB5", 2),  # the second line returns to the true value, which does not follow from the 7
        ("aB7bK1cB6", 3),
        ("aB7aB4bK1cB5", 0),  # the last version of a line counts,
        ("aB4aB7bK1cB5", 2),  # also when it is worse
        ("aB4bK3cB4bK1", 0),  # b is corrected later; c was right when it was written
        ("aK4bK1cB5", 1),  # a wrong copy of the operator
        ("", 3),
        ("aB4bK1", 1),  # a line is missing
        ("bK5cB6aB4", 0),  # the start stands above b while a is missing
        ("aB4bK1cB5dB6", 0),  # no line of this sheet
        ("aB4bK1cB", 1),
        ("aB4? bK1$cB5", 0),
    ],
)
def test_sheets_marked_by_hand(response: str, wrong: int) -> None:
    assert operators.wrong_lines(SHEET, response) == wrong


@pytest.mark.parametrize(
    ("allowed", "response", "passes"),
    [
        (0, "aB4bK1cB5", True),
        (0, "aB7bK3cB4", False),
        (1, "aB7bK3cB4", True),
        (1, "aB7bK1cB5", False),
        (2, "aB7bK1cB5", True),
        (2, "", False),
    ],
)
def test_the_prompt_says_how_many_wrong_lines_pass(allowed: int, response: str, passes: bool) -> None:
    assert operators.mark(f"^3/{allowed}aBbKcB=", response) is passes


@given(SHEETS)
def test_prompts_are_read_back(sheet: Sheet) -> None:
    assert operators.parse(operators.render(sheet)) == sheet


@pytest.mark.parametrize("text", ["", "^8/1aBbK=", "^3/1aBbK", "^3/1=", "^4/2a3b1c4=", "^3/1aBbK=aB7", "^3/1aB bK="])
def test_other_prompts_are_not_sheets(text: str) -> None:
    with pytest.raises(ValueError, match="not an operator-sheet prompt"):
        operators.parse(text)


@given(SHEETS)
def test_a_reference_has_no_wrong_line(sheet: Sheet) -> None:
    reference = operators.solve(sheet)
    assert operators.wrong_lines(sheet, reference) == 0
    assert len(reference) == 3 * len(sheet.operators)


@given(SHEETS, SEEDS)
def test_a_prefix_of_a_reference_leaves_what_is_missing_to_do(sheet: Sheet, seed: int) -> None:
    reference = operators.solve(sheet)
    kept = random.Random(seed).randrange(len(sheet.operators) + 1)
    assert operators.wrong_lines(sheet, reference[: 3 * kept]) == len(sheet.operators) - kept


@given(SHEETS, SEEDS)
def test_a_teacher_that_always_errs_has_every_line_wrong_and_is_wrong_by_its_beliefs(sheet: Sheet, seed: int) -> None:
    response = operators.demonstrate(sheet, NEVER, random.Random(seed))
    assert operators.wrong_lines(sheet, response) == len(sheet.operators)
    values = [sheet.start, *(int(digit) for digit in response[2::3])]
    believed = [operators.misapply(o, above) for o, above in zip(sheet.operators, values, strict=False)]
    assert values[1:] == believed


def test_the_teacher_errs_and_corrects_at_the_stated_rates() -> None:
    teacher = OperatorTeacher(least_error=0.1, most_error=0.9, notice=0.5)
    assert teacher.error("A") == pytest.approx(0.1) and teacher.error("X") == pytest.approx(0.9)
    rng, draws = random.Random(0), 20_000
    for name in "AX":
        sheet = Sheet(0, name, 0)
        responses = [operators.demonstrate(sheet, teacher, rng) for _ in range(draws)]
        error = teacher.error(name)
        twice = sum(len(response) == 6 for response in responses) / draws
        wrong = sum(operators.wrong_lines(sheet, response) for response in responses) / draws
        assert twice == pytest.approx(0.5 * error, abs=0.015)
        assert wrong == pytest.approx(error * (0.5 + 0.5 * error), abs=0.015)
        assert teacher.wrong_line(name) == pytest.approx(error * (0.5 + 0.5 * error))


@given(st.text(OPERATORS, min_size=1, max_size=5), st.integers(0, 5))
def test_the_teachers_pass_rate_is_the_sum_over_all_outcomes(names: str, allowed: int) -> None:
    teacher = OperatorTeacher(notice=0.3)
    wrong = [teacher.wrong_line(name) for name in names]
    outcomes = product((False, True), repeat=len(names))
    few = [outcome for outcome in outcomes if sum(outcome) <= allowed]
    expected = sum(math.prod(p if bad else 1 - p for p, bad in zip(wrong, outcome, strict=True)) for outcome in few)
    assert operators.chance(Sheet(0, names, allowed), teacher) == pytest.approx(expected)


def test_the_teachers_pass_rate_is_what_it_passes() -> None:
    sheet, teacher, rng = Sheet(5, "AHMC", 1), OperatorTeacher(), random.Random(1)
    passed = sum(operators.wrong_lines(sheet, operators.demonstrate(sheet, teacher, rng)) <= 1 for _ in range(20_000))
    assert passed / 20_000 == pytest.approx(operators.chance(sheet, teacher), abs=0.015)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"max_lines": 13}, "max_lines 13"),
        ({"min_lines": 5, "max_lines": 4}, "min_lines 5"),
        ({"min_allowed": -1}, "min_allowed -1"),
        ({"spread": 24}, "spread: .*24"),
        ({"strata": ()}, r"strata: .*\[\]"),
        ({"strata": (1, 1)}, r"strata: .*\[1, 1\]"),
        ({"strata": (5, 6)}, r"strata: .*\[5, 6\]"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        OperatorOptions(**options)


def test_a_sheet_that_passes_empty_is_refused() -> None:
    with pytest.raises(UserError, match=says("operator_sheets.max_allowed", 3, "min_lines")):
        OperatorSheets(min_lines=3, max_allowed=3)


# ---------------------------------------------------------------- the source


def test_every_reference_passes_its_own_verifier() -> None:
    for problem in OperatorSheets(min_allowed=0, max_allowed=0).load(60, Stream(1)).problems:
        assert verify(problem, problem.solution)
        assert not verify(problem, problem.solution[:-3]) and not verify(problem, "")


@pytest.mark.parametrize(
    ("options", "strata"), [({}, STRATA), ({"min_lines": 1, "max_lines": 1, "max_allowed": 0, "spread": 0}, STRATA)]
)
def test_strata_take_turns_in_training_and_held_out_problems(options: dict[str, int], strata: tuple[str, ...]) -> None:
    # The second source has 32 problems per stratum, so that most draws are repeats.
    parts = split(OperatorSheets(**options), 96, 60, Stream(2))
    names = [f"{stratum[0]}-{stratum[-1]}" for stratum in strata]
    assert Counter(problem.features["stratum"] for problem in parts.heldout) == dict.fromkeys(names, 10)
    assert Counter(problem.features["stratum"] for problem in parts.train) == dict.fromkeys(names, 16)


def test_only_the_chosen_strata_appear() -> None:
    problems = OperatorSheets(strata=(1, 4), spread=0).load(20, Stream(3)).problems
    assert {problem.features["stratum"] for problem in problems} == {"E-H", "Q-T"}
    assert all(set(operators.parse(problem.prompt).operators) <= set("EFGHQRST") for problem in problems)


def test_features_say_what_the_sheet_holds() -> None:
    for problem in OperatorSheets().load(60, Stream(4)).problems:
        sheet, facts = operators.parse(problem.prompt), problem.features
        assert facts["lines"] == len(sheet.operators) and facts["allowed"] == sheet.allowed
        assert facts["category"] == f"{facts['stratum']}/{len(sheet.operators)}"
        counts = facts["operators"]
        assert isinstance(counts, tuple) and len(counts) == 24
        assert {name: n for name, n in zip(OPERATORS, counts, strict=True) if n} == Counter(sheet.operators)
        assert facts["teacher_rate"] == operators.chance(sheet, OperatorTeacher())
        assert facts["expert_rate"] == operators.chance(sheet, OperatorTeacher(0.02 / 3, 0.3)) > facts["teacher_rate"]
        # Each operator is within the spread of one of the stratum's four.
        first = OPERATORS.index(str(facts["stratum"])[0])
        assert all(first - 3 <= OPERATORS.index(name) <= first + 6 for name in sheet.operators)


def test_later_strata_are_harder() -> None:
    problems = OperatorSheets().load(600, Stream(5)).problems
    by_stratum = [[p for p in problems if str(p.features["stratum"])[0] == stratum[0]] for stratum in STRATA]
    rates = [sum(float(p.features["teacher_rate"]) for p in some) / len(some) for some in by_stratum]
    assert rates == sorted(rates, reverse=True) and rates[0] > 0.7 and rates[-1] < 0.05


def test_every_character_of_a_reference_is_a_token_of_the_starting_policy() -> None:
    # So each proper prefix of a reference is a prefix in tokens too, and hints can be cut anywhere.
    tokenizer = build_tokenizer("operator_sheets")
    for problem in OperatorSheets(max_lines=12).load(30, Stream(6)).problems:
        texts = (problem.prompt, problem.solution)
        prompt, solution = (tokenizer.encode(text, add_special_tokens=False) for text in texts)
        assert len(prompt) == len(problem.prompt) and len(solution) == len(problem.solution)
        assert tokenizer.decode(prompt) == problem.prompt
        for length in range(1, len(solution)):
            part = tokenizer.encode(hint_of(problem, length).text, add_special_tokens=False)
            assert part == solution[:length] and tokenizer.decode(part) == problem.solution[:length]
