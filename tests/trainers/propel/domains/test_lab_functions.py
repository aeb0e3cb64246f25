"""The lab's function induction: the grammar's meaning, the author's texts as tasks, and tokens that join to texts."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandboxes import needs_sandbox

from halfway.curriculum.tasks.function_induction import as_function
from halfway.experiments.starting_models.tokenizers import INTEGERS, by_integer
from halfway.trainers.propel.domains import functions
from halfway.trainers.propel.domains.base import Invalid
from halfway.trainers.propel.domains.candidates import read
from halfway.trainers.propel.domains.functions import (
    AUTHOR,
    KINDS,
    TEACHER,
    BothSides,
    Constants,
    FunctionAuthor,
    Habits,
    MostlySmall,
)
from halfway.trainers.propel.domains.induction import FunctionInduction

DOMAIN = FunctionInduction(
    syntax="short", input_range=(0, 12), result_range=(-40, 160), distinct_results=2, seconds=5.0
)
SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return by_integer()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("constants", [BothSides(), MostlySmall(0.7)])
def test_the_text_of_a_function_computes_its_value(kind: str, constants: Constants) -> None:
    for seed in range(60):
        example = functions.draw_example(Habits({kind: 1.0}, constants), random.Random(seed))
        code = as_function(example.function.text)
        assert code is not None
        names: dict[str, Any] = {}
        exec(code, names)
        assert tuple(names["f"](x) for x in example.inputs) == example.results


def test_teacher_and_author_know_every_kind() -> None:
    assert TEACHER.keys() == AUTHOR.keys() == KINDS.keys()


@given(SEEDS)
def test_an_example_is_in_range_and_its_halves_are_in_order(seed: int) -> None:
    example = functions.draw_example(Habits(), random.Random(seed))
    assert len(set(example.inputs)) == 10 and set(example.inputs) <= set(range(13))
    shown, hidden = example.inputs[:5], example.inputs[5:]
    assert [*shown] == sorted(shown) and [*hidden] == sorted(hidden)
    assert all(-40 <= result <= 160 for result in example.results) and len(set(example.results)) > 1


def test_habits_without_a_function_in_range_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    far = functions.Function("x+999", lambda x: x + 999)
    monkeypatch.setattr(functions, "KINDS", {"far": lambda draw, rng: far})
    with pytest.raises(AssertionError, match="no function in range"):
        functions.draw_example(Habits({"far": 1.0}), random.Random(0))


def test_the_teacher_prefers_small_constants() -> None:
    habits = Habits({"multiply": 1.0}, MostlySmall(0.5))
    found = Counter(functions.draw_example(habits, random.Random(seed)).function.text for seed in range(400))
    assert found["x*2"] > 150 > found["x*3"] > 60 > found["x*4"] > found["x*7"]


def test_the_author_writes_of_both_sides_of_the_frontier() -> None:
    rng = random.Random(0)
    drawn = [BothSides(near=0.6, middle=0.1, far=0.3)(1, 12, rng) for _ in range(2000)]
    shares = [sum(number in part for number in drawn) / 2000 for part in (range(1, 5), range(5, 13), range(13, 37))]
    assert shares == pytest.approx([0.6, 0.1, 0.3], abs=0.04)
    assert set(drawn) == set(range(1, 37))


@given(SEEDS)
def test_what_the_author_writes_is_a_task_and_what_is_spoilt_is_none(seed: int) -> None:
    good = functions.write_function(FunctionAuthor(flawed=0.0), random.Random(seed))
    assert not isinstance(DOMAIN.parse(good), Invalid), good
    bad = functions.write_function(FunctionAuthor(flawed=1.0), random.Random(seed))
    refused = DOMAIN.parse(bad)
    assert isinstance(refused, Invalid) and refused.reason in ("unreadable", "too few inputs", "repeated input"), bad


@needs_sandbox
def test_the_domain_poses_what_the_teacher_practised() -> None:
    for seed in range(20):
        example = functions.draw_example(Habits(TEACHER, MostlySmall(0.7)), random.Random(seed))
        (candidate,) = read(DOMAIN, [functions.written(example.function.text, example.inputs)])
        assert candidate.problem is not None and candidate.problem.prompt == functions.posed(example)


@given(text=st.text(alphabet="$!x+-*/%()<>=ie,:0123456789", max_size=40))
def test_tokens_join_to_the_text(text: str, tokenizer: Any) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text and tokenizer.unk_token_id not in ids


def test_a_number_of_the_lab_is_one_token(tokenizer: Any) -> None:
    assert tokenizer.tokenize("1:3,12:-40,2:160=") == ["1", ":3", ",12", ":-40", ",2", ":160", "="]
    assert tokenizer.tokenize("(x*12-3)%7ix<105ex") == [*"(x*", "12", *"-3)%7ix<", "105", *"ex"]
    assert tokenizer.tokenize("161:-41,13") == ["16", "1", ":-4", "1", ",1", "3"]
    assert len(set(INTEGERS)) == len(INTEGERS) == len(tokenizer)


@given(seed=SEEDS)
def test_a_prompt_has_eleven_tokens_and_a_task_is_short(seed: int, tokenizer: Any) -> None:
    example = functions.draw_example(Habits(), random.Random(seed))
    assert len(tokenizer.tokenize(functions.posed(example))) == 11
    assert len(tokenizer.tokenize(example.function.text)) < 18
    assert len(tokenizer.tokenize(functions.written(example.function.text, example.inputs))) < 32


@pytest.mark.parametrize(
    ("written", "reason"),
    [("1,2,3,13>x+1", "input out of range"), ("1,2,3,-1>x+1", "input out of range"), ("[1],2,3,4>x", "input out")],
)
def test_an_input_out_of_range_is_refused(written: str, reason: str) -> None:
    refused = replace(DOMAIN, inputs=4).parse(written)
    assert isinstance(refused, Invalid) and refused.reason.startswith(reason)


@needs_sandbox
def test_a_result_out_of_range_is_refused() -> None:
    texts = ["1,2,3,9>x*20", "0,1,2,3>x>2", "1,2,3,10>x*16+0", "1,2,3,6>0-x*8", "1,2,3,8>x*20"]
    candidates = read(replace(DOMAIN, inputs=4), texts)
    reasons = [candidate.invalid.reason if candidate.invalid else "valid" for candidate in candidates]
    assert reasons == ["result out of range", "result out of range", "valid", "result out of range", "valid"]
