"""Problem sources: stable ids, bad rows with file and line, and held-out problems that never train."""

import ast
import gzip
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import says
from msgspec import structs

from halfway.curriculum import Message, Problem, ProblemSet, Stream, UserError
from halfway.curriculum.problems import PackedProblems, fingerprint
from halfway.curriculum.tasks import data_files, files, reasoning_gym
from halfway.curriculum.tasks.files import File, Pool, Surveyed, write_problems
from halfway.curriculum.tasks.lab import ledger, sums
from halfway.curriculum.tasks.lab.lab_sources import LedgerAccounts, OperatorSheets, RunningSums
from halfway.curriculum.tasks.reasoning_gym import EVALUATING, LITERAL, ReasoningGym, _unpack_answer, is_formula
from halfway.curriculum.tasks.sources import (
    Loaded,
    Source,
    SourceReport,
    content_id,
    split,
    with_also,
    with_generated,
)
from halfway.curriculum.tasks.verifiers.helpers import Unjudged, count, separate_counts, take_counts
from halfway.curriculum.tasks.verifiers.verify import verify, verify_all

STREAM = Stream(7, ("problems",))
GENERATORS = [RunningSums(), OperatorSheets(), LedgerAccounts(), ReasoningGym("chain_sum", {"max_terms": 3})]


def jsonl(folder: Path, *rows: Any, name: str = "tasks.jsonl") -> str:
    path = folder / name
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def rows(number: int) -> list[dict[str, str]]:
    return [{"prompt": f"{i}+{i}=", "answer": str(2 * i)} for i in range(number)]


class Fixed(Source):
    """A source of given problems."""

    def __init__(self, *problems: Problem):
        self.problems = problems

    def load(self, wanted: int | None, stream: Stream) -> Loaded:
        return Loaded(self.problems, SourceReport(len(self.problems)))


# ---------------------------------------------------------------- generators


@pytest.mark.parametrize("source", GENERATORS)
def test_generated_problems_are_a_function_of_the_stream(source: Source) -> None:
    first, again = source.load(20, STREAM), source.load(20, STREAM)
    longer, other = source.load(30, STREAM), source.load(20, Stream(8))
    assert first.problems == again.problems == longer.problems[:20]
    assert first.problems != other.problems
    assert len({p.prompt for p in first.problems}) == len({p.id for p in first.problems}) == 20


@pytest.mark.parametrize("source", GENERATORS)
def test_a_generating_source_needs_a_number(source: Source) -> None:
    with pytest.raises(UserError, match=says("problems.train")):
        split(source, None, 4, STREAM)


@pytest.mark.parametrize("source", GENERATORS)
def test_held_out_problems_do_not_depend_on_the_training_set(source: Source) -> None:
    small, large = split(source, 5, 10, STREAM), split(source, 25, 10, STREAM)
    assert small.heldout == large.heldout
    assert (len(small.train), len(large.train), len(large.heldout)) == (5, 25, 10)


def test_ids_depend_on_content_only() -> None:
    assert content_id("a", "1+1=", "2") == content_id("a", "1+1=", "2")
    variants = {content_id(*t) for t in [("a", "bc", "d"), ("ab", "c", "d"), ("a", "b", "cd"), ("a", "bc", "e")]}
    assert len(variants) == 4
    assert content_id("running_sums", "^74/2a5=", "a25") == "running_sums-63d2870ec916409e"


def test_running_sums_answers_pass_their_own_marking() -> None:
    for problem in RunningSums(min_allowed=0, max_allowed=0).load(50, STREAM).problems:
        assert verify(problem, problem.answer)
        assert problem.features["lines"] == len(sums.parse(problem.prompt).operands)


def test_ledger_problems_state_distance_and_slack() -> None:
    for problem in LedgerAccounts(min_slack=1, max_slack=1).load(50, STREAM).problems:
        account = ledger.parse(problem.prompt)
        distance = abs(account.target - account.balance)
        assert problem.features == {"stratum": "slack 1", "distance": distance, "slack": 1}
        assert problem.answer == f"{account.target:02d}"


@pytest.mark.parametrize(
    ("kind", "options", "complaint"),
    [
        (RunningSums, {"max_lines": 21}, "max_lines 21"),
        (RunningSums, {"min_lines": 5, "max_lines": 4}, "min_lines 5"),
        (RunningSums, {"min_allowed": -1}, "min_allowed -1"),
        (RunningSums, {"max_allowed": 8}, "max_allowed: cannot be 8; stay below min_lines"),
        (LedgerAccounts, {"max_distance": 95}, "highest 29"),
        (LedgerAccounts, {"max_distance": 95, "highest": 99}, "9"),
        (LedgerAccounts, {"min_slack": 3}, "min_slack 3"),
    ],
)
def test_options_that_no_prompt_can_express_are_refused(
    kind: type[Source], options: dict[str, int], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        kind(**options)


def test_a_generator_that_runs_out_says_so() -> None:
    narrow = RunningSums(min_lines=1, max_lines=1, min_allowed=0, max_allowed=0)
    exist = sums.MODULUS * sums.LARGEST  # starts x operands
    loaded = narrow.load(exist, STREAM)
    assert len(loaded.problems) == exist and loaded.report.dropped["drawn before"] > 0
    with pytest.raises(UserError, match=says(exist + 1, exist)):
        narrow.load(exist + 1, STREAM)


@settings(max_examples=10)
@given(st.integers(1, 12), st.integers(0, 12), st.integers(0, 2**32))
def test_held_out_and_training_share_nothing(train: int, heldout: int, seed: int) -> None:
    narrow = RunningSums(min_lines=1, max_lines=1, min_allowed=0, max_allowed=0)  # few, so that draws repeat
    parts = split(narrow, train, heldout, Stream(seed))
    assert not {p.prompt for p in parts.train} & {p.prompt for p in parts.heldout}
    assert not {p.id for p in parts.train} & {p.id for p in parts.heldout}
    assert (len(parts.train), len(parts.heldout)) == (train, heldout)


def test_problems_that_are_also_held_out_do_not_train() -> None:
    source = Fixed(Problem("a", "1", "1"), Problem("b", "1", "2"), Problem("a", "2", "2"), Problem("c", "3", "3"))
    parts = split(source, None, 1, STREAM)
    assert [p.id for p in parts.train] == ["c"]
    assert parts.report.dropped["shared with held-out"] == 2
    with pytest.raises(UserError, match=says("1 held out", "problems.train")):
        split(source, 2, 1, STREAM)


# ---------------------------------------------------------------- reasoning-gym


def test_a_family_continues_beyond_one_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    source = ReasoningGym("chain_sum")
    whole = [p.id for p in source.load(9, STREAM).problems]
    monkeypatch.setattr("halfway.curriculum.tasks.reasoning_gym.CHUNK", 4)
    assert [p.id for p in source.load(9, STREAM).problems] == whole


@pytest.mark.parametrize("family", ["chain_sum", "basic_arithmetic", "spell_backward", "knights_knaves", "arc_1d"])
def test_a_family_accepts_its_own_answer_and_refuses_a_wrong_one(family: str) -> None:
    import reasoning_gym

    source = ReasoningGym(family)
    seed = STREAM.integer() % 2**31
    entries = {e["question"]: e for e in reasoning_gym.create_dataset(family, seed=seed, size=12)}
    for problem in source.load(8, STREAM).problems:
        reference = entries[problem.prompt]["answer"]
        assert verify(problem, reference)
        assert verify(problem, f"<answer>no</answer> Better: <answer> {reference} </answer>")
        assert not verify(problem, f"<answer>{reference}</answer> or <answer>nothing</answer>")
        assert not verify(problem, "")


def test_partial_credit_is_not_success() -> None:
    (problem,) = ReasoningGym("spell_backward").load(1, STREAM).problems
    reference = ast.literal_eval(problem.answer)["entry"]["answer"]
    assert not verify(problem, f"it is {reference}, I think")  # the family gives a share for containing it


def test_a_response_that_the_family_cannot_read_fails() -> None:
    (problem,) = ReasoningGym("prime_factorization").load(1, STREAM).problems  # its scorer calls int() on any text
    assert not verify(problem, "no idea")


def test_configuration_reaches_the_family() -> None:
    source = ReasoningGym("chain_sum", {"min_terms": 4, "max_terms": 4, "min_digits": 1, "max_digits": 1})
    for problem in source.load(5, STREAM).problems:
        assert problem.prompt.count("+") + problem.prompt.count("-") >= 3
        assert problem.source == "reasoning_gym/chain_sum"


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (ReasoningGym("chain_sums"), "family: .*'chain_sums'.*'chain_sum'"),
        (ReasoningGym("chain_sum", {"max_term": 3}), "'max_term'.*'max_terms'"),
        (ReasoningGym("chain_sum", {"seed": 3}), "'seed'"),
        (ReasoningGym("chain_sum", {"min_terms": 5, "max_terms": 2}), "chain_sum.*AssertionError"),
    ],
)
def test_a_wrong_family_or_option_is_one_line(source: Source, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as error:
        source.load(1, STREAM)
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------- files


def test_a_file_gives_every_row_in_an_order_of_the_stream(tmp_path: Path) -> None:
    path = jsonl(tmp_path, *rows(20))
    forward = File(path, verifier="numeric").load(None, STREAM)
    backward = File(jsonl(tmp_path, *rows(20)[::-1]), verifier="numeric").load(None, STREAM)
    assert forward.problems == backward.problems != File(path, verifier="numeric").load(None, Stream(8)).problems
    assert {(p.prompt, p.answer) for p in forward.problems} == {(r["prompt"], r["answer"]) for r in rows(20)}
    assert forward.report == SourceReport(20)
    assert all(p.source == "tasks" and p.verifier == "numeric" and p.id.startswith("tasks-") for p in forward.problems)


def test_json_jsonl_and_parquet_hold_the_same_problems(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "tasks.json").write_text(json.dumps(rows(9)))
    pq.write_table(pa.Table.from_pylist(rows(9)), tmp_path / "tasks.parquet")
    paths = [jsonl(tmp_path, *rows(9)), str(tmp_path / "tasks.json"), str(tmp_path / "tasks.parquet")]
    first, second, third = (File(path).load(None, STREAM).problems for path in paths)
    assert first == second == third and len(first) == 9


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path,
        {"q": "one", "a": 1, "key": 10, "judge": "numeric"},
        "",
        {"q": "two", "a": "2", "key": "x", "judge": None},
    )
    source = File(path, name="mine", prompt_column="q", answer_column="a", id_column="key", verifier_column="judge")
    problems = {p.id: p for p in source.load(None, STREAM).problems}
    assert problems == {
        "10": Problem("10", "one", "1", "mine", "numeric"),
        "x": Problem("x", "two", "2", "mine", "exact"),
    }


GOOD = {"prompt": "1+1=", "answer": "2"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{not json", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "not an object"),
        ({"prompt": "2+2="}, "no answer"),
        ({"prompt": "2+2=", "answer": None}, "no answer"),
        ({"prompt": "2+2=", "answer": " "}, "empty answer"),
        ({"answer": "4"}, "no prompt"),
        ({"prompt": "", "answer": "4"}, "empty prompt"),
        ({"prompt": ["2+2=", "?"], "answer": "4"}, "prompt is not text"),
        ({"prompt": "2+2=", "answer": True}, "answer is not text"),
        ({"prompt": "2+2=", "answer": "4", "judge": "oracle"}, "unknown verifier"),
        ({"prompt": "2+2=", "answer": "4", "judge": 3}, "unknown verifier"),
        ({"prompt": "2+2=", "answer": "four", "judge": "numeric"}, "answer that verifier numeric cannot read"),
        ({"prompt": "2+2=", "answer": {"value": "4"}}, "answer is an object"),
        ({"prompt": "2+2=", "answer": ["4", "four"]}, "answer has several values"),
    ],
)
def test_a_bad_row_is_refused_or_dropped_with_file_and_line(tmp_path: Path, row: Any, reason: str) -> None:
    path = jsonl(tmp_path, GOOD, "", row)
    with pytest.raises(UserError) as error:
        File(path, verifier_column="judge").load(None, STREAM)
    assert str(error.value).startswith(f"{path}:3: {reason}") and "\n" not in str(error.value)
    assert ("any_of(exact)" if "several" in reason else "on_bad_row") in str(error.value)
    kept = File(path, verifier_column="judge", on_bad_row="drop").load(None, STREAM)
    assert [p.prompt for p in kept.problems] == ["1+1="]
    assert kept.report.dropped == {reason: 1}
    assert len(kept.report.examples) == 1 and kept.report.examples[0].startswith(f"{path}:3 {reason}")


def test_a_row_that_repeats_a_problem_is_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DAPO-Math-17k has each of its problems a hundred times."""
    monkeypatch.setattr("halfway.curriculum.tasks.files.MOST_BAD", 10)
    path = jsonl(tmp_path, *[GOOD, GOOD | {"prompt": "2+2="}] * 100)
    for source in (File(path), File(path, on_bad_row="drop")):
        problems, report = source.load(None, STREAM)
        assert {problem.prompt for problem in problems} == {GOOD["prompt"], "2+2="}
        assert report.dropped == {"repeats the prompt and answer of an earlier row": 198} and not report.notes
        assert report.examples[0] == f"{path}:3 repeats the prompt and answer of an earlier row ({path}:1)"
    with pytest.raises(UserError, match=r":201: no answer; correct the file"):
        File(jsonl(tmp_path, *[GOOD] * 200, {"prompt": "3+3=", "answer": None})).load(None, STREAM)


def test_a_line_that_is_not_utf8_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b'\n{"prompt": "\xff", "answer": "1"}\n')
    with pytest.raises(UserError, match=r"tasks\.jsonl:2: not JSON"):
        File(str(path)).load(None, STREAM)


def test_a_repeated_id_names_both_lines(tmp_path: Path) -> None:
    path = jsonl(tmp_path, GOOD | {"key": "k"}, {"prompt": "2+2=", "answer": "4", "key": "k"})
    with pytest.raises(UserError) as error:
        File(path, id_column="key").load(None, STREAM)
    assert str(error.value).startswith(f"{path}:2: repeats the id of an earlier row ({path}:1); ")


def test_further_bad_rows_are_counted(tmp_path: Path) -> None:
    path = jsonl(tmp_path, GOOD, {"prompt": "x"}, "{", {"prompt": "y"})
    with pytest.raises(UserError, match=says(":2: ", "no answer", "prompt", "2 more")):
        File(path).load(None, STREAM)
    report = File(path, on_bad_row="drop").load(None, STREAM).report
    assert report.dropped == {"no answer": 2, "not JSON": 1}
    assert str(report).startswith("1 problems kept, 3 dropped (2 no answer, 1 not JSON; first: ")


def test_rows_of_json_and_parquet_are_counted_from_one(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = [GOOD, {"prompt": "2+2=", "answer": None}]
    (tmp_path / "tasks.json").write_text(json.dumps(table))
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "tasks.parquet")
    for name in ("tasks.json", "tasks.parquet"):
        with pytest.raises(UserError, match=says(f"{name}:row 2", "no answer")):
            File(str(tmp_path / name)).load(None, STREAM)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("empty.jsonl", "", "the file has no rows"),
        ("empty.json", "[]", "the file has no rows"),
        ("blank.jsonl", "\n\n", "the file has no rows"),
        (
            "all_bad.jsonl",
            '{"theme": "x", "answer": "1"}\n',
            "1: no prompt (the row has theme, answer); no row is left; name the file's columns with prompt_column",
        ),
        ("commas.jsonl", '{"prompt": "x", "answer": "1"},,\n', "1: not JSON"),
        (
            "indented.jsonl",
            '{\n"prompt": "x",\n"answer": "1"\n}\n{\n"prompt": "y",\n"answer": "1"\n}\n',
            "one object per line",
        ),
        ("utf16.csv", "prompt,answer\nx,1\n".encode("utf-16"), "is encoded as UTF-16; save it as UTF-8"),
        (
            "packed.jsonl",
            gzip.compress(b'{"prompt":"x","answer":1}\n', mtime=0),
            "is compressed; rename it to packed.jsonl.gz",
        ),
        ("workbook.csv", b"PK\x03\x04\x14\x00", "is a ZIP archive, as workbooks are; unpack it, or export CSV"),
        ("half.json", "[", "not JSON"),
        ("deep.json", "[" * 100_000, "not JSON"),
        ("object.json", "{}", "holds an object, not one list of rows; give a list of objects"),
        ("splits.json", '{"train": [{}],\n"test": [{}]}', "holds an object, not one list of rows; give a list"),
        ("text.parquet", "no", "not a Parquet file"),
        ("table.csv", "a,b", "column (as in prompt_column): unknown name 'prompt'; choose one of a, b"),
        ("table.xlsx", "a,b", "ends in '.xlsx'; give a .jsonl, .json, .csv or .parquet file"),
    ],
)
def test_a_file_that_gives_nothing_is_one_line(tmp_path: Path, name: str, content: str | bytes, complaint: str) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for policy in ("refuse", "drop"):
        with pytest.raises(UserError) as error:
            File(str(path), on_bad_row=policy).load(None, STREAM)
        assert complaint in str(error.value) and name in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("times", [1, 5000])
def test_a_parquet_file_that_unpacks_to_much_is_not_read_to_its_end(times: int, tmp_path: Path) -> None:
    """The first by a page that packs one long text, the second by one text in many rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = pa.DictionaryArray.from_arrays(pa.array([0] * times), pa.array(["x" * int(1e8 / times**0.5)]))
    table = pa.table({"prompt": column, "answer": ["1"] * times})
    pq.write_table(table, tmp_path / "tasks.parquet", compression="zstd")
    assert (tmp_path / "tasks.parquet").stat().st_size < 200_000
    with pytest.raises(UserError, match=says("tasks.parquet", 100, "JSON Lines")):
        File(str(tmp_path / "tasks.parquet")).load(None, STREAM)


def test_a_missing_file_and_a_missing_column_are_named(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pytest.raises(UserError, match=says("absent.jsonl'", "path")):
        File(str(tmp_path / "absent.jsonl")).load(None, STREAM)
    pq.write_table(pa.Table.from_pylist([GOOD]), tmp_path / "tasks.parquet")
    with pytest.raises(UserError, match=says("column", "'answers'", "'answer'")):
        File(str(tmp_path / "tasks.parquet"), answer_column="answers").load(None, STREAM)
    with pytest.raises(UserError, match=says("'numeric'")):
        File("tasks.jsonl", verifier="numerical")


def test_held_out_rows_of_one_file_do_not_depend_on_their_place(tmp_path: Path) -> None:
    forward = split(File(jsonl(tmp_path, *rows(30))), None, 10, STREAM)
    backward = split(File(jsonl(tmp_path, *rows(30)[::-1])), 12, 10, STREAM)
    assert forward.heldout == backward.heldout
    assert (len(forward.train), len(backward.train)) == (20, 12)
    assert backward.report.dropped == {"not needed": 8}
    assert not {p.id for p in forward.train} & {p.id for p in forward.heldout}


def test_held_out_problems_can_come_from_a_separate_file(tmp_path: Path) -> None:
    train, heldout = jsonl(tmp_path, *rows(10)), jsonl(tmp_path, *rows(3), name="heldout.jsonl")
    parts = split(File(train, heldout), None, 3, STREAM)
    assert sorted(p.prompt for p in parts.heldout) == ["0+0=", "1+1=", "2+2="]
    assert sorted(p.prompt for p in parts.train) == [f"{i}+{i}=" for i in range(3, 10)]
    assert parts.report.dropped == {"shared with held-out": 3}
    with pytest.raises(UserError, match=says("held-out problems", 4, 3, "evaluation.problems")):
        split(File(train, heldout), None, 4, STREAM)


def test_a_file_with_nothing_left_to_train_on(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says("0", "5 held out", "evaluation.problems")):
        split(File(jsonl(tmp_path, *rows(5))), None, 5, STREAM)


def test_written_problems_are_read_back(tmp_path: Path) -> None:
    problems = ReasoningGym("spell_backward").load(6, STREAM).problems
    path = str(tmp_path / "frozen.jsonl")
    write_problems(problems, path)
    read = File(path, id_column="id", verifier_column="verifier").load(None, STREAM).problems
    key = {p.id: (p.prompt, p.answer, p.verifier) for p in problems}
    assert {p.id: (p.prompt, p.answer, p.verifier) for p in read} == key
    assert list(tmp_path.iterdir()) == [Path(path)]


def test_columns_may_become_features(tmp_path: Path) -> None:
    path = jsonl(tmp_path, GOOD | {"hard": 3, "topic": "sums"})
    [problem] = File(path, feature_columns=("hard", "topic")).load(None, STREAM).problems
    assert problem.features == {"hard": 3, "topic": "sums"}
    path = jsonl(tmp_path, GOOD, {"prompt": "2+2=", "answer": "4", "hard": 1})
    kept = File(path, feature_columns=("hard",), on_bad_row="drop").load(None, STREAM)
    assert [p.answer for p in kept.problems] == ["4"] and kept.report.dropped == {"no hard": 1}


def test_a_pool_needs_probed_rates(tmp_path: Path) -> None:
    row = GOOD | {"id": "g1", "verifier": "exact", "probed_rate": 0.25, "probed_by": "abc"}
    [problem] = Pool(jsonl(tmp_path, row)).load(None, STREAM).problems
    assert problem == Problem("g1", "1+1=", "2", "tasks", "exact", {"probed_rate": 0.25, "probed_by": "abc"})
    with pytest.raises(UserError, match=says(":1: ", "probed_rate", "prompt")):
        Pool(jsonl(tmp_path, {k: v for k, v in row.items() if k != "probed_rate"})).load(None, STREAM)
    with pytest.raises(UserError, match=says("no rows")):
        Pool(jsonl(tmp_path)).load(None, STREAM)


def test_generated_problems_exclude_those_of_the_set() -> None:
    made = [Problem(f"p{i}", f"prompt {i}", "1") for i in range(6)]
    parts = split(Fixed(*made[:4]), None, 2, STREAM)
    held, trained = parts.heldout[0], parts.train[0]
    others = [structs.replace(held, id="x"), structs.replace(trained, prompt="y"), *made[4:]]
    both = with_generated(parts, Fixed(*others), STREAM)
    assert list(both.train) == list(parts.train) and both.heldout == parts.heldout
    assert list(both.train.generated) == made[4:] and parts.train.generated == ()
    assert both.report.dropped == {"generated, shared with held-out": 1, "generated, in the training set": 1}
    with pytest.raises(UserError, match=says("problems.generated", 4)):
        with_generated(parts, Fixed(*made[:4]), STREAM)


def test_a_further_sources_problems_train_behind_the_others() -> None:
    made = [Problem(f"p{i}", f"prompt {i}", "1") for i in range(8)]
    parts = split(Fixed(*made[:4]), None, 2, STREAM)
    held, trained = parts.heldout[0], parts.train[0]
    others = [structs.replace(held, id="x"), structs.replace(trained, prompt="y"), *made[4:]]
    more = with_also(parts, Fixed(*others), 3, STREAM)
    assert list(more.train) == [*parts.train, *made[4:7]] and more.heldout == parts.heldout
    assert more.train.generated == ()
    dropped = {"also, shared with held-out": 1, "also, in the training set": 1, "also, not needed": 1}
    assert more.report.dropped == dropped and more.report.kept == parts.report.kept + 3
    assert list(with_also(parts, Fixed(*others), None, STREAM).train)[2:] == made[4:]
    with pytest.raises(UserError, match=says("problems.also", 4, "another source")):
        with_also(parts, Fixed(*made[:4]), None, STREAM)


def test_packed_problems_are_those_that_were_packed() -> None:
    features = {"rate": 0.5, "topic": "sums", "state": (1.0, -2.5)}
    whole = Problem("b", "user: é", "2", "s", "numeric", features, (Message("user", "é"),), "1+1")
    problems = [Problem("a", "p", "1"), whole, Problem("c", "q", "")]
    table = PackedProblems(problems)
    assert list(table) == problems and table[-1] == problems[2] and table[1:] == tuple(problems[1:])
    assert table.column("topic") == [None, "sums", None] and table.ids() == ["a", "b", "c"]
    some = table.choose([2, 1]).choose([1])
    assert list(some) == [whole] and some == PackedProblems([whole]) != table and some != [whole]
    made = [Problem("d", "r", "")]
    assert (
        ProblemSet(table, made).fingerprint()
        == ProblemSet(problems, made).fingerprint()
        == fingerprint([*table, *made])
    )
    with pytest.raises(IndexError):
        table[3]


def test_a_problem_of_a_file_takes_less_than_300_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = 20_000
    monkeypatch.setattr(data_files, "BLOCK", 1 << 14)
    path = jsonl(tmp_path, *rows(number))
    tracemalloc.start()
    try:
        train = split(File(path, check_answers=False), None, 10, STREAM).train
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(train) == number - 10 and held < 300 * number and peak < 500 * number


def test_further_problems_of_a_file_stay_packed(tmp_path: Path) -> None:
    parts = split(File(jsonl(tmp_path, *rows(6))), None, 2, STREAM)
    more = with_also(parts, File(jsonl(tmp_path, *rows(9), name="more.jsonl")), None, STREAM)
    assert isinstance(more.trained, PackedProblems) and len(more.train) == 7
    assert list(more.trained[:4]) == list(parts.trained)
    mixed = with_also(parts, Fixed(Problem("x", "y", "z")), None, STREAM)
    assert list(mixed.train) == [*parts.trained, Problem("x", "y", "z")]


def test_prompts_of_one_hash_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "hash", len, raising=False)
    source = File(jsonl(tmp_path, *rows(9), rows(9)[4], rows(9)[4] | {"answer": "0"}))
    loaded = source.load(None, STREAM)
    assert sorted(p.answer for p in loaded.problems) == sorted([*(row["answer"] for row in rows(9)), "0"])
    assert loaded.report.dropped.total() == 1 and len(loaded.report.notes) == 1  # type: ignore[attr-defined]


def test_a_name_that_is_not_text_is_refused(tmp_path: Path) -> None:
    """Logs and checkpoints hold text only, so a run would end in its first step."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl")
    Path(path).write_text(json.dumps(rows(1)[0]) + "\n")
    with pytest.raises(UserError, match="is not UTF-8"):
        File(path).load(None, STREAM)
    assert len(File(path, name="sums").load(None, STREAM).problems) == 1
    row = rows(1)[0] | {"id": "a", "verifier": "exact", "pass_rate": 0.5, "\ud800": 1}
    with pytest.raises(UserError, match="half a surrogate pair"):
        Surveyed(path=jsonl(tmp_path, row)).load(None, STREAM)


def test_different_sets_have_different_fingerprints() -> None:
    problems = RunningSums().load(5, STREAM).problems
    assert fingerprint(problems) == fingerprint(list(problems)) != fingerprint(problems[::-1])


@pytest.mark.parametrize("family", sorted(EVALUATING | LITERAL))
def test_no_answer_is_executed(family: str, tmp_path: Path) -> None:
    """reasoning_gym passes the policy's text to `eval`, or to sympy, which evaluates it."""
    trace = tmp_path / "executed"
    load = ReasoningGym(family).load(3, Stream(0))
    attack = f"__import__('pathlib').Path({str(trace)!r}).touch()"
    hostile = [attack, f"[{attack}]", f"<answer>{attack}</answer>", f"(lambda: {attack})()", f"1 + 0 * len({attack})"]
    assert verify_all([load.problems[0]] * len(hostile), hostile) == [False] * len(hostile)
    assert not trace.exists()
    own = [_unpack_answer(problem.answer)["entry"]["answer"] for problem in load.problems]
    assert verify_all(load.problems, [f"<answer>{answer}</answer>" for answer in own]) == [True] * 3


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("2*x**3 - sin(x)/sqrt(2) + C", True),
        ("(3 + 4)*5 - 6/2.5", True),
        ("4! % 7 + E**pi", True),
        ("x.__class__", False),
        ("open(1)", False),
        ("sympify(latex(x))", False),
        ("lambdify(x, y)", False),
        ("exec(chr(49))", False),
        ("[1, 2]", False),
        ("1 .real", False),
        ("e\uff58ec(1)", False),
    ],
)
def test_formulas_and_programs_are_distinguished(text: str, formula: bool) -> None:
    assert is_formula(text) is formula


def test_a_formula_that_has_no_end_has_failed_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning_gym, "SECONDS", 3.0)
    [problem] = ReasoningGym("countdown").load(1, Stream(0)).problems
    verify(problem, "1")  # its process has started
    take_counts()
    assert verify(problem, "9**9**9**9 - 9**9**9**9") is False
    assert sum(take_counts().values()) <= 1


def test_separate_counts_do_not_change_earlier_ones() -> None:
    take_counts()
    count(Unjudged("time"))
    with separate_counts() as apart:
        count(Unjudged("died"))
    assert apart == {"died": 1} and take_counts() == {"time": 1}


@pytest.mark.parametrize("rate", [-1, 7, "NaN", "x", 10**99])
def test_a_rate_that_is_none_is_named(rate: Any, tmp_path: Path) -> None:
    row = {"id": "a", "prompt": "1+1=", "answer": "2", "verifier": "exact", "pass_rate": 0.5, "probed_by": "x"}
    for kind, name in ((Surveyed, "pass_rate"), (Pool, "probed_rate")):
        for value in (0, 1, 0.5):
            kind(jsonl(tmp_path, row | {name: value})).load(None, STREAM)
        with pytest.raises(UserError, match=says("tasks.jsonl:1", name)):
            kind(jsonl(tmp_path, row | {name: rate})).load(None, STREAM)
