"""The lab's sheets as a domain; how much a set of texts repeats itself."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfway.curriculum import Stream
from halfway.curriculum.tasks.lab import operators, sums
from halfway.curriculum.tasks.lab.lab_sources import OperatorSheets, RunningSums
from halfway.curriculum.tasks.lab.operators import OPERATORS, STRATA, OperatorOptions
from halfway.curriculum.tasks.lab.sums import SumsOptions, SumsTeacher
from halfway.curriculum.tasks.verifiers.verify import verify
from halfway.trainers.propel.domains import DOMAINS
from halfway.trainers.propel.domains.candidates import read
from halfway.trainers.propel.domains.diversity import block_self_bleu_3, distinct_3, self_bleu_3, top_share, units
from halfway.trainers.propel.domains.domain import Invalid
from halfway.trainers.propel.domains.sheets import Operators, Sums

BOUNDS = {"min_lines": 2, "max_lines": 3, "min_allowed": 0, "max_allowed": 2}
SUMS, SKILLS = Sums(SumsOptions(**BOUNDS)), Operators(OperatorOptions(**BOUNDS))


def test_every_built_in_domain_resolves() -> None:
    names = ["function_induction", "maths", "operators", "sums"]
    assert [DOMAINS.get(name)().name for name in DOMAINS.names()] == names


def test_a_valid_sum_is_the_solvers_prompt() -> None:
    (candidate,) = read(SUMS, ["^4/1a3b1="])
    assert candidate.valid and candidate.task == sums.Sheet(4, (3, 1), 1) and candidate.topic == "2/1"
    problem = candidate.problem
    assert problem is not None and problem.prompt == "^4/1a3b1=" and problem.source == "sums"
    assert problem.features == {"lines": 2, "allowed": 1, "wraps": 1, "topic": "2/1"}
    assert verify(problem, "a31b12") and verify(problem, "a31b10") and not verify(problem, "a30b10")


def test_a_valid_operator_sheet_is_the_solvers_prompt() -> None:
    (candidate,) = read(SKILLS, ["^3/1aBbHcB="])
    assert candidate.valid and candidate.task == operators.Sheet(3, "BHB", 1) and candidate.topic == "A-D/1"
    problem = candidate.problem
    assert problem is not None and problem.prompt == "^3/1aBbHcB=" and problem.source == "operators"
    assert problem.features["stratum"] == "A-D" and problem.features["lines"] == 3
    assert not problem.solution and verify(problem, operators.solve(operators.Sheet(3, "BHB", 1)))


@pytest.mark.parametrize(
    ("domain", "text", "reason"),
    [
        (SUMS, "", "unreadable"),
        (SUMS, "^4/1a3b1", "unreadable"),
        (SUMS, " ^4/1a3b1=", "unreadable"),
        (SUMS, "^4/1a3b1=$", "unreadable"),
        (SUMS, "^44/1a3b1=", "unreadable"),
        (SUMS, "^4/1b3a1=", "labels out of order"),
        (SUMS, "^4/1a3a1=", "labels out of order"),
        (SUMS, "^4/1a3b\N{ARABIC-INDIC DIGIT ONE}=", "labels out of order"),
        (SUMS, "^4/1" + "a1" * 21 + "=", "labels out of order"),
        (SUMS, "^6/1a3b1=", "start out of range"),
        (SUMS, "^4/1a0b1=", "operand out of range"),
        (SUMS, "^4/1a5b1=", "operand out of range"),
        (SUMS, "^4/1a1=", "number of lines"),
        (SUMS, "^4/1a1b1c1d1=", "number of lines"),
        (SUMS, "^4/3a1b1c1=", "allowed wrong lines"),
        (SUMS, "^4/2a1b1=", "passes without an answer"),
        (SKILLS, "", "unreadable"),
        (SKILLS, "^3/1aBbC", "unreadable"),
        (SKILLS, "^8/1aBbC=", "unreadable"),
        (SKILLS, "^3/1aBbC=$", "unreadable"),
        (SKILLS, "^3/1bBaC=", "labels out of order"),
        (SKILLS, "^3/1aBaC=", "labels out of order"),
        (SKILLS, "^3/\N{ARABIC-INDIC DIGIT ONE}aBbC=", "labels out of order"),
        (SKILLS, "^3/0aB=", "number of lines"),
        (SKILLS, "^3/0aBbBcBdB=", "number of lines"),
        (SKILLS, "^3/3aBbBcB=", "allowed wrong lines"),
        (SKILLS, "^3/2aBbB=", "passes without an answer"),
        (SKILLS, "^3/1aAbH=", "operators of no window"),
    ],
)
def test_an_invalid_sheet_has_its_reason(domain: Any, text: str, reason: str) -> None:
    (candidate,) = read(domain, [text])
    assert candidate.invalid is not None and candidate.invalid.reason == reason and not candidate.valid


@given(st.integers(0, 10**9))
def test_a_sum_that_the_lab_draws_is_valid_and_the_same_problem(seed: int) -> None:
    (drawn,) = RunningSums().load(1, Stream(seed)).problems
    (candidate,) = read(Sums(), [drawn.prompt])
    assert candidate.problem is not None and candidate.problem.id == drawn.id


@given(st.integers(0, 10**9), st.sets(st.sampled_from(range(len(STRATA))), min_size=1), st.integers(0, 5))
def test_an_operator_sheet_that_the_lab_draws_is_valid_and_the_same_problem(
    seed: int, strata: set[int], spread: int
) -> None:
    bounds = {"spread": spread, "strata": tuple(strata)}
    (drawn,) = OperatorSheets(**bounds).load(1, Stream(seed)).problems  # type: ignore[arg-type]
    (candidate,) = read(Operators(OperatorOptions(**bounds)), [drawn.prompt])  # type: ignore[arg-type]
    assert candidate.problem is not None and candidate.problem.id == drawn.id


@given(st.text(OPERATORS, min_size=1, max_size=7), st.integers(0, 6), st.sets(st.sampled_from(range(6)), min_size=1))
def test_a_sheet_is_valid_where_an_operator_reaches_all_of_its_own(names: str, spread: int, strata: set[int]) -> None:
    places = [OPERATORS.index(name) for name in names]
    reached = [
        OPERATORS[centre]
        for centre in range(len(OPERATORS))
        if centre // 4 in strata and all(abs(centre - place) <= spread for place in places)
    ]
    options = OperatorOptions(spread=spread, strata=tuple(strata))
    assert operators.centres(operators.Sheet(0, names, 0), options) == "".join(reached)


@given(st.sampled_from([SUMS, SKILLS]), st.text(alphabet="^/=abcABCWX0123456789", max_size=30))
def test_any_text_is_read_and_no_valid_sheet_passes_empty(domain: Any, text: str) -> None:
    (candidate,) = read(domain, [text])
    assert candidate.valid != (candidate.invalid is not None)
    if candidate.problem is not None:
        assert not verify(candidate.problem, "")
        if domain is SUMS:
            flawless = sums.demonstrate(sums.parse(text), SumsTeacher(forget=0.0, slip=0.0), random.Random(0))
            assert verify(candidate.problem, flawless)


def test_the_stratum_is_the_median_operators() -> None:
    found = [operators.stratum_of(operators.Sheet(0, names, 0)) for names in ("A", "DE", "FED", "GXEAF", "XXW")]
    assert found == [0, 0, 1, 1, 5]
    assert [operators.stratum_name(stratum) for stratum in (0, 5)] == ["A-D", "U-X"]


def test_reading_keeps_the_order_counts_reasons_and_checks_only_what_parses() -> None:
    seen: list[int] = []

    class Counting(Sums):
        def check(self, tasks: Sequence[sums.Sheet]) -> list[sums.Sheet | Invalid]:
            seen.append(len(tasks))
            return super().check(tasks)

    texts = ["no", "^4/1a3b1=", "^4/2a1b1=", "^4/1a1=", "nor this", "^1/0a1b1="]
    candidates = read(Counting(SUMS.sheets), texts)
    assert seen == [4] and [c.text for c in candidates] == texts
    assert [c.valid for c in candidates] == [False, True, False, False, False, True]
    assert [c.topic for c in candidates] == ["", "2/1", "2/2", "1/1", "", "2/0"]
    assert Counter(one.invalid.reason for one in candidates if one.invalid) == {
        "unreadable": 2,
        "passes without an answer": 1,
        "number of lines": 1,
    }


@pytest.mark.parametrize("domain", [SUMS, SKILLS])
def test_no_sheet_begins_with_the_generators_prompt(domain: Any) -> None:
    prompt = domain.prompt(Stream(0))
    assert prompt == domain.prompt(Stream(1)) and not prompt.startswith("^")


def test_units_are_words_and_marks_or_characters() -> None:
    assert units("a+b = 12", "words") == ["a", "+", "b", "=", "12"]
    assert units("a+b", "characters") == ["a", "+", "b"]


def test_distinct_3_by_hand() -> None:
    assert distinct_3(["abcd", "abce"], "characters") == 3 / 4  # abc, bcd, abc, bce
    assert distinct_3(["abc"] * 10, "characters") == 1 / 10
    assert math.isnan(distinct_3(["ab"], "characters"))


def test_self_bleu_is_one_for_copies_and_zero_for_unrelated_texts() -> None:
    assert self_bleu_3(["one two three four"] * 3, "words") == pytest.approx(1.0)
    assert self_bleu_3(["abcd", "efgh"], "characters") == 0.0
    assert math.isnan(self_bleu_3(["alone"], "words"))


def test_self_bleu_by_hand() -> None:
    # "abcde" against "abcxyz": 1-grams abc of 5, 2-grams ab bc of 4, 3-gram abc of 3; shorter: exp(1 - 6/5).
    first = math.exp(1 - 6 / 5) * (3 / 5 * 2 / 4 * 1 / 3) ** (1 / 3)
    second = (3 / 6 * 2 / 5 * 1 / 4) ** (1 / 3)
    assert self_bleu_3(["abcde", "abcxyz"], "characters") == pytest.approx((first + second) / 2)


def test_self_bleu_clips_by_the_reference_with_most() -> None:
    # "aaaa" matches at most the three a of "aaab": 3/4, 2/3, 1/2. "aaab": aaa 3/4, aa 2/3, aaa 1/2.
    expected = (3 / 4 * 2 / 3 * 1 / 2) ** (1 / 3)
    assert self_bleu_3(["aaaa", "aaab"], "characters") == pytest.approx(expected)


@given(st.lists(st.text("abc", min_size=3, max_size=8), min_size=2, max_size=6))
def test_self_bleu_against_the_plain_definition(texts: list[str]) -> None:
    def bleu(text: str, references: list[str]) -> float:
        product = 1.0
        for order in (1, 2, 3):
            own = [text[i : i + order] for i in range(len(text) - order + 1)]
            kinds = set(own)
            most = {g: max(sum(r[i : i + order] == g for i in range(len(r))) for r in references) for g in kinds}
            product *= sum(min(own.count(g), most[g]) for g in kinds) / len(own)
        nearest = min((abs(len(r) - len(text)), len(r)) for r in references)[1]
        return product ** (1 / 3) * (1.0 if len(text) >= nearest else math.exp(1 - nearest / len(text)))

    expected = sum(bleu(text, texts[:i] + texts[i + 1 :]) for i, text in enumerate(texts)) / len(texts)
    assert self_bleu_3(texts, "characters") == pytest.approx(expected)


def test_self_bleu_of_blocks_is_the_mean_over_whole_blocks() -> None:
    texts = ["abcde", "abcxyz", "aaaa", "aaab", "left over"]
    expected = (self_bleu_3(texts[:2], "characters") + self_bleu_3(texts[2:4], "characters")) / 2
    assert block_self_bleu_3(texts, "characters", size=2) == pytest.approx(expected)
    assert math.isnan(block_self_bleu_3(texts, "characters", size=6))


def test_self_bleu_saturates_where_that_of_blocks_does_not() -> None:
    rng = random.Random(0)
    texts = ["".join(rng.choices("abcdef", k=20)) for _ in range(480)]
    repeated = [rng.choice(texts[:8]) for _ in range(480)]
    assert self_bleu_3(texts, "characters") > 0.99  # and cannot tell these
    of_few, of_many = (block_self_bleu_3(those, "characters") for those in (texts[:96], texts))
    assert of_few == pytest.approx(of_many, abs=0.02) and of_many < 0.9
    assert block_self_bleu_3(repeated, "characters") > of_many + 0.05


def test_top_share_is_that_of_the_commonest_topic_among_all_texts() -> None:
    assert top_share(["a", "b", "a", ""]) == 0.5
    assert top_share(["", "", "a"]) == pytest.approx(1 / 3)
    assert top_share(["", ""]) == 0.0
