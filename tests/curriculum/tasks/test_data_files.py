"""Data files as people have them: formats, packing, shards, layouts, numbers, and what is refused."""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from messages import says
from recipe_files import FILES

from halfway.curriculum import Problem, Stream, UserError
from halfway.curriculum.problems import Message
from halfway.curriculum.tasks import data_files
from halfway.curriculum.tasks.data_files import file_rows, stem, value_at
from halfway.curriculum.tasks.files import File, plain_number
from halfway.curriculum.tasks.hub import Hub
from halfway.curriculum.tasks.sources import split
from halfway.curriculum.tasks.verifiers.exact_numeric import Batched
from halfway.curriculum.tasks.verifiers.verify import VERIFIERS, verify_all
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.running.validation import check_run

STREAM = Stream(7, ("problems",))
ROWS = [{"prompt": f'say "{i}",\n and { {"k": i} }', "answer": str(i)} for i in range(9)]


def lines(rows: list[Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def table(path: Path, rows: list[Any], form: str = "parquet") -> Path:
    """The rows as DuckDB writes them in a table."""
    source = path.with_suffix(".source.json")
    source.write_text(json.dumps(rows))
    duckdb.sql(f"COPY (FROM read_json('{source}', format = 'array')) TO '{path}' (FORMAT {form})")
    source.unlink()
    return path


def zstd(path: Path, text: str) -> None:
    import pyarrow as pa

    path.write_bytes(pa.compress(text.encode(), codec="zstd", asbytes=True))


def load(path: Path | str, **options: Any) -> dict[str, str]:
    """Prompt -> answer."""
    return {each.prompt: each.answer for each in File(str(path), **options).load(None, STREAM).problems}


WRITERS: dict[str, Callable[[Path, list[Any]], object]] = {
    "t.jsonl": lambda path, rows: path.write_text(lines(rows)),
    "t.JSONL": lambda path, rows: path.write_text("\n" + lines(rows).replace("\n", "\r\n\n")),
    "t.ndjson": lambda path, rows: path.write_bytes(b"\xef\xbb\xbf" + lines(rows).rstrip().encode()),
    "t.jsonl.gz": lambda path, rows: path.write_bytes(gzip.compress(lines(rows).encode())),
    "t.jsonl.zst": lambda path, rows: zstd(path, lines(rows)),
    "t.json": lambda path, rows: path.write_text(json.dumps(rows, indent=1)),
    "lines.json": lambda path, rows: path.write_text(lines(rows)),
    "t.JSON.GZ": lambda path, rows: path.write_bytes(gzip.compress(json.dumps(rows).encode())),
    "t.json.zst": lambda path, rows: zstd(path, json.dumps(rows, indent=1)),
    "t.csv": lambda path, rows: table(path, rows, "csv"),
    "t.tsv": lambda path, rows: table(path, rows, "csv, DELIMITER '\t'"),
    "t.csv.gz": lambda path, rows: table(path, rows, "csv, COMPRESSION gzip"),
    "t.csv.zst": lambda path, rows: table(path, rows, "csv, COMPRESSION zstd"),
    "t.parquet": table,
    "t.Parquet": table,
}


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_every_format_gives_the_same_problems(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, ROWS)
    assert load(tmp_path / name) == {row["prompt"]: row["answer"] for row in ROWS}


def test_the_name_of_the_problems_is_the_files_without_endings() -> None:
    names = ["a/train.jsonl", "train.JSONL.gz", "a/train", "train-*.parquet", "a/train*.json", "train/"]
    assert {stem(name) for name in names} == {"train"}
    assert stem("v1.5.jsonl") == "v1.5"


# ---------------------------------------------------------------- shards


def test_shards_are_read_in_the_order_of_their_numbers_and_errors_name_theirs(tmp_path: Path) -> None:
    data = tmp_path / "set" / "data"
    data.mkdir(parents=True)
    for i in range(11):
        table(data / f"train-{i}.parquet", [{"prompt": f"p{i}", "answer": i}])
    (tmp_path / "set" / "dataset_info.json").write_text("{}")
    (tmp_path / "set" / ".cache.json").write_text("{}")
    for path in ("set", "set/data/*.parquet", "set/**/train-*"):
        assert [row.values["prompt"] for row in file_rows(str(tmp_path / path))] == [f"p{i}" for i in range(11)]  # type: ignore[call-overload]
        assert len(load(tmp_path / path)) == 11
    table(data / "train-7.parquet", [{"prompt": "p7", "answer": "7"}, {"prompt": "", "answer": "8"}])
    with pytest.raises(UserError, match=r"train-7\.parquet:row 2: empty prompt; correct the file"):
        load(tmp_path / "set")
    table(data / "train-8.parquet", [{"prompt": "p8", "result": "7"}])
    with pytest.raises(UserError, match=r"train-8\.parquet: column .*: unknown name 'answer'"):
        load(tmp_path / "set")


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_reading_opens_the_database_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open it takes longer than to read a shard."""
    opened: list[Path] = []
    connect = data_files.connect
    monkeypatch.setattr(data_files, "connect", lambda path: (opened.append(path), connect(path))[1])
    WRITERS[name](tmp_path / name, ROWS)
    assert sum(len(block.rows) for block in data_files.blocks(tmp_path / name)) == len(ROWS)
    assert opened == [tmp_path / name]


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        ((), "data file"),
        (("train.jsonl", "test.jsonl"), r"test, train.*/train\*"),
        (("train/0.jsonl", "validation/0.jsonl"), "train, val"),
        (("a.jsonl", "b.csv"), "csv, lines"),
    ],
)
def test_a_folder_that_is_not_one_set_is_refused(names: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(lines(ROWS))
    with pytest.raises(UserError, match=complaint):
        load(tmp_path)


def test_files_that_hold_no_data_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_text("")
    (tmp_path / "b.parquet").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    for name, complaint in (
        ("a.arrow", r"ends in '\.arrow'; give a \.jsonl, "),
        ("b.parquet", "git lfs pull"),
        ("c*", "'.*' does"),
    ):
        with pytest.raises(UserError, match=complaint):
            load(tmp_path / name.replace("c*", "c*.jsonl"))


# ---------------------------------------------------------------- layouts

USER = [{"role": "user", "content": "1+1?"}]
SHAREGPT = [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "That is 2."}]
VERL = {
    "data_source": "openai/gsm8k",
    "prompt": USER,
    "ability": "math",
    "reward_model": {"ground_truth": "2", "style": "rule"},
    "extra_info": {"answer": "1+1 = 2\n#### 2", "index": 4, "question": "1+1?", "split": "train"},
}
LAYOUTS: list[tuple[dict[str, Any], str]] = [
    (VERL, "read as verl: prompt, reward_model.ground_truth"),
    ({"prompt": USER, "solution": "$2$"}, "read as TRL: prompt, solution"),
    ({"messages": [*USER, {"role": "assistant", "content": "2"}], "answer": "2"}, "read as TRL: messages, answer"),
    ({"question": "1+1?", "answer": "1+1=<<1+1=2>>2\n#### 2"}, "read as GSM8K: question, answer after ####"),
    ({"question": "1+1?", "answer": "2"}, "read as question and answer: question, answer"),
    (
        {"problem": "1+1?", "answer": "2", "source": "x", "domain": ["a"], "llama8b_solve_rate": None},
        "read as Big-Math: problem, answer",
    ),
    (
        {"question": "1+1?", "final_answer": "2", "difficulty": 5.0, "topic": "sums", "r1_solution_1": "2"},
        "read as DeepMath: question, final_answer",
    ),
    ({"prompt": USER, "reward_model": {"ground_truth": '["2"]'}}, "read as verl: prompt, reward_model.ground_truth"),
    ({"problem": "1+1?", "solution": r"So \boxed{1}+1=\boxed{2}."}, r"read as MATH: problem, solution after \boxed"),
    (
        {"prompt": "1+1?", "verification_info": '{"ground_truth": "2"}', "metadata": "{}"},
        "read as prime-rl: prompt, verification_info.ground_truth",
    ),
    ({"input": "1+1?", "label": "2"}, "read as OpenRLHF: input, label"),
    ({"problem": "1+1?", "expected_answer": "2"}, "read as problem and expected_answer: problem, expected_answer"),
    ({"instruction": "1+1?", "input": "", "output": "2"}, "read as Alpaca: instruction, input, output"),
    ({"conversations": SHAREGPT, "answer": "2"}, "read as ShareGPT: conversations, answer"),
    ({"conversations": SHAREGPT[:1], "ground_truth": "2"}, "read as ShareGPT: conversations, ground_truth"),
    (
        {"prompt": USER, "env_class": "gsm8k", "reward_spec": {"method": "rule", "ground_truth": "2"}},
        "read as SkyRL: prompt, reward_spec.ground_truth",
    ),
    (
        {"0": {"value": "1+1?"}, "1": {"from": "assistant", "ground_truth": {"value": "2"}}},
        "read as ORZ: 0.value, 1.ground_truth.value",
    ),
    (
        {"responses_create_params": {"input": USER}, "expected_answer": "2"},
        "read as NeMo Gym: responses_create_params.input, expected_answer",
    ),
    (
        {"responses_create_params": {"input": USER}, "verifier_metadata": {"expected_answer": "2"}},
        "read as NeMo Gym: responses_create_params.input, verifier_metadata.expected_answer",
    ),
    (
        {"question": "1+1?", "answer": "We add one and one. " * 5 + "So it is 2.", "reference_answer": "2"},
        "read as question and reference_answer: question, reference_answer",
    ),
    ({"question": "1+1?", "answer": 2, "reference_answer": "3"}, "read as question and answer: question, answer"),
    ({"id": "Q1", "question": "1+1?", "answerKey": "2"}, "read as question and answerKey: question, answerKey"),
]


@pytest.mark.parametrize(("row", "said"), LAYOUTS)
@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_a_layout_is_recognised_and_said(row: dict[str, Any], said: str, name: str, tmp_path: Path) -> None:
    (table if name.endswith("t") else WRITERS[name])(tmp_path / name, [row])
    [problem], report = File(str(tmp_path / name)).load(None, STREAM)
    assert (problem.prompt, problem.answer.strip("$"), report.notes) == ("1+1?", "2", (said,))
    solution = row["answer"] if "GSM8K" in said else row["solution"] if "MATH:" in said else ""
    assert problem.solution == solution
    assert split(File(str(tmp_path / name)), None, 0, STREAM).report.notes == (said,)


def test_the_story_of_svamp_comes_before_its_question(tmp_path: Path) -> None:
    row = {"Body": "Ann has 3 pears.", "Question": "How many pears has she?", "Answer": 3.0, "Type": "Addition"}
    (tmp_path / "t.jsonl").write_text(lines([row]))
    [problem], report = File(str(tmp_path / "t.jsonl"), verifier="numeric").load(None, STREAM)
    assert problem.prompt == "Ann has 3 pears.\n\nHow many pears has she?"
    assert report.notes == ("read as Body and Answer: Body, Question, Answer",)


GOLD = ["Robert Zimmerman", "Bob Dylan"]
SEARCH_R1 = {"prompt": USER, "reward_model": {"ground_truth": {"target": GOLD}, "style": "rule"}}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (SEARCH_R1, "read as Search-R1: prompt, reward_model.ground_truth.target; any one of a row's answers is right"),
        (
            {"question": "1+1?", "golden_answers": GOLD},
            "read as question and golden_answers: question, golden_answers; any one of a row's answers is right",
        ),
    ],
)
@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_any_one_of_several_answers_is_right(row: dict[str, Any], said: str, name: str, tmp_path: Path) -> None:
    (table if name.endswith("t") else WRITERS[name])(tmp_path / name, [row])
    [problem], report = File(str(tmp_path / name), verifier="symbolic").load(None, STREAM)
    assert report.notes == (said,) and problem.verifier == "any_of(symbolic)"
    responses = ["<answer>bob dylan</answer>", r"\boxed{Robert Zimmerman}", "<answer>Bob Marley</answer>", ""]
    assert verify_all([problem] * 4, responses) == [True, True, False, False]


def test_a_target_that_is_no_list_is_not_the_answer(tmp_path: Path) -> None:
    """TinyZero's answers are equations, which the target alone does not check."""
    truth = {"target": 98, "numbers": [44, 19, 35]}
    (tmp_path / "t.jsonl").write_text(lines([SEARCH_R1 | {"reward_model": {"ground_truth": truth}}]))
    said = r":1: reward_model\.ground_truth is an object .*; name one of its fields, as in answer_column: "
    with pytest.raises(UserError, match=said):
        File(str(tmp_path / "t.jsonl")).load(None, STREAM)


def test_several_answers_need_a_word_that_any_one_is_right(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(lines([{"question": "x^2=4?", "answer": [2, "-2"]}]))
    with pytest.raises(UserError, match=r":1: answer has several values .*; .* verifier to any_of\(numeric\)$"):
        File(str(tmp_path / "t.jsonl"), verifier="numeric").load(None, STREAM)
    [problem], _ = File(str(tmp_path / "t.jsonl"), verifier="any_of(numeric)").load(None, STREAM)
    assert verify_all([problem] * 3, ["2", r"\boxed{-2}", "4"]) == [True, True, False]


MMLU = {"question": "1+1?", "choices": ["2", "3 or so"], "answer": 0}


@pytest.mark.parametrize(
    ("row", "unseen"),
    [
        (MMLU, "choices"),
        ({"prompt": USER, "options": {"A": "one", "B": "two"}, "answer": "B"}, "options"),
        ({"question": "1+1?", "choices": {"text": ["one", "two"], "label": ["A", "B"]}, "answer": "B"}, "choices"),
        (MMLU | {"question": "1+1?\nA) 2\nB) 3 or so"}, ""),
        (MMLU | {"choices": []}, ""),
    ],
)
@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_options_that_prompts_do_not_show_are_said(row: dict[str, Any], unseen: str, name: str, tmp_path: Path) -> None:
    (table if name.endswith("t") else WRITERS[name])(tmp_path / name, [row])
    warnings = [note for note in File(str(tmp_path / name)).load(None, STREAM).report.notes if "warning" in note]
    said = f"warning: prompts do not show the options in the column {unseen}; write them into the prompts"
    assert warnings == ([said] if unseen else [])


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_answers_that_are_tests_of_programs_are_said(name: str, tmp_path: Path) -> None:
    truth = json.dumps({"inputs": ["1"], "outputs": ["2"]})
    (table if name.endswith("t") else WRITERS[name])(
        tmp_path / name, [VERL | {"reward_model": {"ground_truth": truth}}]
    )
    said = "warning: answers are JSON objects, which symbolic compares as text; give a verifier for them"
    for verifier, warnings in (("symbolic", (said,)), ("function_induction", ())):
        source = File(str(tmp_path / name), verifier=verifier, check_answers=False)
        assert source.load(None, STREAM).report.notes[1:] == warnings


def test_columns_are_recognised_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(lines([{"ID": "2024-I-1", "Problem": "1+1?", "Answer": 2}]))
    [problem], report = File(str(tmp_path / "t.jsonl")).load(None, STREAM)
    assert (problem.prompt, problem.answer) == ("1+1?", "2")
    assert report.notes == ("read as Problem and Answer: Problem, Answer",)


def test_columns_that_are_named_are_taken(tmp_path: Path) -> None:
    table(tmp_path / "t.parquet", [VERL])
    (tmp_path / "t.jsonl").write_text(lines([VERL | {"extra_info": json.dumps(VERL["extra_info"])}]))
    for name in ("t.parquet", "t.jsonl"):
        source = File(
            str(tmp_path / name),
            prompt_column="extra_info.question",
            answer_column="extra_info.answer",
            answer_after="####",
            id_column="extra_info.index",
            feature_columns=("data_source",),
        )
        [problem], report = source.load(None, STREAM)
        expected = Problem("4", "1+1?", "2", "t", features={"data_source": "openai/gsm8k"})
        assert problem == expected and not report.notes
    with pytest.raises(UserError, match=r"column .*: unknown name 'extra_info.indx'; did you mean 'extra_info.index'"):
        load(tmp_path / "t.parquet", id_column="extra_info.indx")
    with pytest.raises(UserError, match=r":1: no reward_model.truth"):
        load(tmp_path / "t.jsonl", answer_column="reward_model.truth")


def test_an_answer_without_its_mark_is_a_bad_row(tmp_path: Path) -> None:
    rows = [{"question": f"{i}?", "answer": f"#### {i}"} for i in range(20)] + [{"question": "x", "answer": "nothing"}]
    (tmp_path / "t.jsonl").write_text(lines(rows))
    with pytest.raises(UserError, match=r":21: answer has nothing after #### \('nothing'\)"):
        load(tmp_path / "t.jsonl")


def test_a_message_may_be_a_list_of_texts(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "1+"}, {"type": "text", "text": "1?"}]
    table(tmp_path / "t.parquet", [{"prompt": [{"role": "user", "content": parts}], "answer": "2"}])
    [problem] = File(str(tmp_path / "t.parquet")).load(None, STREAM).problems
    assert problem.messages == (Message("user", "1+1?"),) and problem.prompt == "1+1?"
    parts.append({"type": "image"})
    (tmp_path / "t.jsonl").write_text(lines([{"prompt": [{"role": "user", "content": parts}], "answer": "2"}]))
    with pytest.raises(UserError, match=r":1: prompt has a message with parts that are not text"):
        load(tmp_path / "t.jsonl")


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("0.00005", "0.00005"),
        ("5e-05", "0.00005"),
        ("1.50", "1.50"),
        ("42.0", "42.0"),
        ("6.02E23", "602000000000000000000000"),
        ("-7", "-7"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("1e99999999", "1E+99999999"),
    ],
)
def test_numbers_stay_as_they_are_written_but_for_exponents(written: str, read: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(f'{{"prompt": "x", "answer": {written}}}\n')
    (tmp_path / "t.json").write_text(f'[{{"prompt": "x", "answer": {written}}}]')
    (tmp_path / "t.csv").write_text(f"prompt,answer\nx,{written}\n")
    assert [load(tmp_path / name)["x"] for name in ("t.jsonl", "t.json", "t.csv")] == [read] * 3


def test_a_text_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(lines([{"prompt": "x", "answer": "5e-05"}, {"prompt": "y", "answer": "nan"}]))
    assert load(tmp_path / "t.jsonl") == {"x": "5e-05", "y": "nan"}


def test_columns_of_tables_are_read_without_noise(tmp_path: Path) -> None:
    numbers = (0.1, 5e-5, 3.5, 7, 8)
    types = {"a": "FLOAT", "b": "DOUBLE", "c": "DECIMAL(6, 2)", "d": "BIGINT", "e": "HUGEINT"}
    cells = ", ".join(f"{value}::{kind} AS {name}" for (name, kind), value in zip(types.items(), numbers, strict=True))
    duckdb.sql(f"COPY (SELECT 'x' AS prompt, {cells}, {{'f': 0.3::FLOAT}} AS s) TO '{tmp_path}/t.parquet'")
    path, wanted = tmp_path / "t.parquet", {"a": "0.1", "b": "0.00005", "c": "3.50", "d": "7", "s.f": "0.3"}
    assert {name: load(path, answer_column=name)["x"] for name in wanted} == wanted
    [problem] = File(str(path), answer_column="d", feature_columns=("a", "s.f")).load(None, STREAM).problems
    assert problem.features == {"a": 0.1, "s.f": 0.3}


@pytest.mark.parametrize("gap", ["NULL", "'nan'::DOUBLE"])
def test_integers_with_gaps_stay_integers(gap: str, tmp_path: Path) -> None:
    rows = f"(VALUES ('x', 42.0::DOUBLE), ('y', {gap}), ('z', -3.0::DOUBLE)) t(prompt, answer)"
    duckdb.sql(f"COPY (FROM {rows}) TO '{tmp_path}/t.parquet'")
    gaps = '{"prompt": "x", "answer": 42.0}\n{"prompt": "y", "answer": NaN}\n{"prompt": "z", "answer": -3.0}\n'
    (tmp_path / "t.jsonl").write_text(gaps)
    for name in ("t.parquet", "t.jsonl"):
        assert load(tmp_path / name, on_bad_row="drop") == {"x": "42", "z": "-3"}
        with pytest.raises(UserError, match=r"2: (no answer|answer is NaN)"):
            load(tmp_path / name)
    (tmp_path / "t.jsonl").write_text(gaps.replace("42.0", "42.5"))
    assert load(tmp_path / "t.jsonl", on_bad_row="drop") == {"x": "42.5", "z": "-3.0"}


def test_a_numbers_length_is_bounded() -> None:
    assert plain_number(Decimal("1e400")) == "1" + "0" * 400 and plain_number(Decimal("1e401")) == "1E+401"


# ---------------------------------------------------------------- what is said, and refused


def test_one_prompt_with_two_answers_is_said_with_both_rows(tmp_path: Path) -> None:
    rows = [("a", "1"), ("b", "1"), ("a", "2"), ("a", "3")]
    path = tmp_path / "t.jsonl"
    path.write_text(lines([{"prompt": prompt, "answer": answer} for prompt, answer in rows]))
    problems, report = File(str(path)).load(None, STREAM)
    assert len(problems) == 4 and not report.dropped
    [note] = report.notes
    assert f"{path}:3: has the prompt of {path}:1" in note and "1 more" in note


def test_a_repeated_row_names_its_first_place_over_blocks_and_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfway.curriculum.tasks.data_files.BLOCK", 16)
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("\n" + lines([{"prompt": f"{name}{i}", "answer": "1"} for i in range(20)]))
    with (tmp_path / "b.jsonl").open("a") as file:
        file.write(lines([{"prompt": "a.jsonl9", "answer": "1"}]))
    [place] = File(str(tmp_path)).load(None, STREAM).report.examples
    assert place == f"{tmp_path}/b.jsonl:22 repeats the prompt and answer of an earlier row ({tmp_path}/a.jsonl:11)"


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl.gz", "t.jsonl.zst", "t.parquet"])
def test_a_damaged_file_is_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path, ROWS * 40 if "csv" not in name else ROWS)
    content = path.read_bytes()
    path.write_bytes(content + b'x,y,"z' if name == "t.csv" else content[: len(content) // 2])
    with pytest.raises(UserError) as error:
        load(path)
    assert name in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["t.jsonl.gz", "t.jsonl.zst"])
def test_a_packed_file_that_unpacks_to_much_is_refused(name: str, tmp_path: Path) -> None:
    text = lines([{"prompt": "x" * 1_000_000, "answer": "1"}]) * 70
    path = tmp_path / name
    if name.endswith("gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        zstd(path, text)
    assert path.stat().st_size < 200_000
    with pytest.raises(UserError, match="unpacks to more than 100 times its size"):
        load(path)


@pytest.mark.parametrize("name", ["train.jsonl", "train.json", "train.csv", "train.parquet"])
def test_a_pipe_or_device_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "endless").mkdir()
    (tmp_path / "endless" / name).symlink_to("/dev/zero")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / name)
    for path in (tmp_path / "endless" / name, tmp_path / "pipe" / name, tmp_path / "pipe"):
        with pytest.raises(UserError, match=rf"{name}: is not a regular file; give a "):
            File(str(path)).load(8, Stream(0))


def test_a_line_without_end_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "sparse.jsonl"
    with path.open("wb") as file:
        file.write(b'{"prompt": "2+2=", "answer": "4"}\n')
        file.truncate(33 << 20)
    with pytest.raises(UserError, match=r"sparse.jsonl:2: is longer than 32 MiB; give a "):
        File(str(path)).load(8, Stream(0))


def test_a_column_inside_another_is_found() -> None:
    row = {"a.b": 1, "a": {"b": 2, "c": {"d": 3}}, "j": '{"k": 4}', "t": "{no"}
    paths = ("a.b", "a.c.d", "j.k", "t.k", "a.c.x.y", "z")
    assert [value_at(row, path) for path in paths] == [1, 3, 4, None, None, None]


# ---------------------------------------------------------------- answers


def test_answers_are_checked_once_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def judge(problems: Any, responses: Any) -> list[bool]:
        asked.extend(problem.answer for problem in problems)
        if any(problem.answer == "3" for problem in problems):
            raise ValueError("three")
        return [False] * len(problems)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(VERIFIERS._added, "symbolic", Batched(judge))
    path = tmp_path / "t.jsonl"
    path.write_text(lines(ROWS))
    for _ in range(2):
        found = File(str(path), verifier="symbolic", on_bad_row="drop").load(None, STREAM)
        assert len(found.problems) == 8 and found.report.dropped == {"answer that verifier symbolic cannot read": 1}
        assert "three" in found.report.examples[0]
    assert sorted(asked) == [str(i) for i in range(9)]
    [memory] = (tmp_path / "cache" / "halfway" / "answers").iterdir()
    for content in ("{", '{"4": 5}', "[]"):  # a damaged memory is none
        memory.write_text(content)
        asked.clear()
        assert len(load(path, verifier="symbolic", on_bad_row="drop")) == 8 and len(asked) == 9
        memory.unlink(missing_ok=True)
    asked.clear()
    path.write_text(lines(ROWS[:-1]))
    load(path, verifier="symbolic", on_bad_row="drop")
    assert len(asked) == 8
    (tmp_path / "cache" / "halfway" / "answers").chmod(0o777)  # anybody may write there
    asked.clear()
    load(path, verifier="symbolic", on_bad_row="drop")
    assert len(asked) == 8


def test_a_list_of_one_answer_is_that_answer(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(lines([{"prompt": "a", "answer": ["42"]}, {"prompt": "b", "answer": [43]}]))
    assert load(path) == {"a": "42", "b": "43"}
    path.write_text(lines([{"prompt": "a", "answer": ["42"]}, {"prompt": "b", "answer": ["43", "44"]}]))
    with pytest.raises(UserError, match=r"a\.jsonl:2: answer has several values"):
        load(path)


# ---------------------------------------------------------------- the hub

COMMIT = "0" * 39 + "1"
README = """---
license: mit
configs:
- config_name: main
  data_files:
  - {split: train, path: main/train-*}
  - {split: test, path: main/test-*}
- config_name: socratic
  data_files: [{split: train, path: "socratic/train-*"}]
---
# GSM8K
"""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Puts files of a data set into a local cache of the hub, as a download does; there is no network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    def keep(name: str, files: dict[str, str | list[Any]]) -> str:
        folder = tmp_path / "hub" / f"datasets--{name.replace('/', '--')}"
        for place in ("refs", "blobs"):
            (folder / place).mkdir(parents=True)
        (folder / "refs" / "main").write_text(COMMIT)
        for number, (path, content) in enumerate(files.items()):
            link, blob = folder / "snapshots" / COMMIT / path, folder / "blobs" / str(number)
            link.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                blob.write_text(content)
            else:
                table(blob, content)
            link.symlink_to(blob)
        return name

    return keep


def gsm8k(*numbers: int) -> list[dict[str, str]]:
    return [{"question": f"{i}+{i}?", "answer": f"{i}+{i}={2 * i}\n#### {2 * i}"} for i in numbers]


def test_a_data_set_is_read_from_the_hubs_cache_by_name(hub: Callable[..., str]) -> None:
    files = {
        "README.md": README,
        "main/train-00000-of-00002.parquet": gsm8k(1, 2),
        "main/train-00001-of-00002.parquet": gsm8k(3),
        "main/test-00000-of-00001.parquet": gsm8k(4),
        "socratic/train-00000-of-00001.parquet": gsm8k(5),
    }
    name = hub("openai/gsm8k", files)
    parts = split(Hub(name, heldout_split="test"), None, 1, STREAM)
    assert sorted(problem.answer for problem in parts.train) == ["2", "4", "6"] and parts.heldout[0].answer == "8"
    assert sorted(problem.solution for problem in parts.train)[0] == "1+1=2\n#### 2"
    assert parts.report.notes[0] == "read as GSM8K: question, answer after ####"
    assert all(problem.source == "gsm8k" and problem.id.startswith("gsm8k-") for problem in parts.train)
    [other] = Hub(name, config="socratic", revision=COMMIT).load(None, STREAM).problems
    assert other.answer == "10"
    for options, complaint in (
        ({"split": "dev"}, r"hub\.split: 'dev' is not one of test, train"),
        ({"config": "mian"}, r"hub\.config: 'mian' is not one of .*main, socratic"),
        ({"revision": "v2"}, r"openai/gsm8k is not in the local cache, and the hub does not answer"),
    ):
        with pytest.raises(UserError, match=complaint):
            Hub(name, **options).load(None, STREAM)


def test_a_data_set_is_read_where_nothing_else_has_imported_the_hubs_client(tmp_path: Path) -> None:
    """The client imports its own modules only when they are asked for by name."""
    command = [sys.executable, "-m", "halfway.experiments.cli", "init", str(tmp_path / "own.yaml"), "--data", "a/b"]
    offline = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(command, env=offline, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2 and ended.stderr == (
        "error: hub: a/b is not in the local cache, and the hub does not answer; check the network and HF_HUB_OFFLINE\n"
    )


def test_a_recipe_is_checked_without_its_data_set(hub: Callable[..., str]) -> None:
    """`validate` checks everything else, and says that the problems were not read."""
    absent = ["problems.source={hub: {name: a/absent}}", "environment=single_turn"]
    [unchecked] = check_run(load_run_config(FILES["lab/sums"], absent), {})
    assert re.match(says("hub: a/absent is not in the local cache", "the problems were not checked"), unchecked)


@pytest.mark.parametrize("place", ["data/train-00000-of-00001.parquet", "train.parquet", "default/train/0000.parquet"])
def test_splits_are_found_by_the_names_of_files(place: str, hub: Callable[..., str]) -> None:
    other = place.replace("train", "test")
    name = hub("a/b", {"README.md": "no head", place: gsm8k(1), other: gsm8k(2), "data/constrain.jsonl": "{}"})
    [problem] = Hub(name).load(None, STREAM).problems
    assert problem.answer == "2"


def test_a_data_set_that_is_not_there_is_one_line(hub: Callable[..., str], tmp_path: Path) -> None:
    script = hub("a/scripted", {"README.md": "", "scripted.py": f"open({str(tmp_path / 'ran')!r}, 'w')"})
    for source, complaint in (
        (Hub("a/absent"), "a/absent is not in the local cache, and the hub does not answer"),
        (Hub(script), "made by a script, which is not run; try revision: refs/convert/parquet"),
        (Hub(hub("a/cut", {"README.md": README})), "has no data files of split 'train'"),
    ):
        with pytest.raises(UserError, match=complaint) as error:
            source.load(None, STREAM)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(UserError, match=r"hub\.name: must be owner/name, as on the hub, not 'gsm8k'"):
        Hub("gsm8k")


SOLVED = [{"question": f"{i}?", "answer": f"so {i}\n#### {i}"} for i in range(8)]


def test_a_layout_is_recognised_by_most_rows_and_the_odd_ones_are_bad(tmp_path: Path) -> None:
    """A null or an unmarked answer among the first rows must not make whole solutions the answers."""
    odd = [{"question": "n?", "answer": None}, {"question": "u?", "answer": "unmarked"}]
    (tmp_path / "t.jsonl").write_text(lines([*odd, *SOLVED]))
    assert load(tmp_path / "t.jsonl", on_bad_row="drop") == {f"{i}?": str(i) for i in range(8)}


def test_a_solution_in_prose_is_no_answer(tmp_path: Path) -> None:
    proof = "Assume the contrary, and count the pairs of both colours in two ways; this is absurd."
    (tmp_path / "t.jsonl").write_text(lines([{"problem": "p", "solution": proof}]))
    with pytest.raises(UserError, match="answer"):
        load(tmp_path / "t.jsonl")
    (tmp_path / "t.jsonl").write_text(lines([{"problem": "p", "solution": proof + r" So \boxed{7}"}]))
    assert load(tmp_path / "t.jsonl") == {"p": "7"}


def test_boxes_may_nest_and_lack_braces(tmp_path: Path) -> None:
    """Some solutions of MATH end in "\\boxed 2"; `exact` would never match a whole solution."""
    solutions = [r"so $\boxed{\frac{1}{2}}$", r"so \boxed{0}, no: $\boxed 2$.", "so 3"]
    (tmp_path / "t.jsonl").write_text(lines([{"problem": f"{i}?", "solution": s} for i, s in enumerate(solutions)]))
    assert load(tmp_path / "t.jsonl", on_bad_row="drop") == {"0?": r"\frac{1}{2}", "1?": "2"}


@pytest.mark.parametrize(
    "row", [{"prompt": "a\ud800"}, {"answer": "\udfff"}, {"prompt": [{"role": "user", "content": "\ud800"}]}]
)
def test_half_of_a_surrogate_pair_is_a_bad_row(row: dict[str, Any], tmp_path: Path) -> None:
    """Tokenizers refuse such a text, so it would end a training when it is first drawn."""
    (tmp_path / "t.jsonl").write_text(lines([{"prompt": "p", "answer": "1", "unused": "\ud800"}, ROWS[0] | row]))
    with pytest.raises(UserError, match=r"t\.jsonl:2: .* has half a surrogate pair"):
        load(tmp_path / "t.jsonl")
    assert load(tmp_path / "t.jsonl", on_bad_row="drop") == {"p": "1"}


def test_messages_in_a_cell_of_text_are_messages(tmp_path: Path) -> None:
    asked = [{"role": "user", "content": "2+2?"}]
    (tmp_path / "t.jsonl").write_text(lines([{"prompt": json.dumps(asked), "answer": "4"}]))
    [problem] = File(str(tmp_path / "t.jsonl")).load(None, STREAM).problems
    assert problem.messages == (Message("user", "2+2?"),)
    (tmp_path / "t.jsonl").write_text(lines([{"prompt": repr(asked), "answer": "4"}]))
    with pytest.raises(UserError, match="not JSON"):
        load(tmp_path / "t.jsonl")


def test_a_shard_that_is_missing_is_named(hub: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for number in (0, 2):
        (tmp_path / "set" / f"train-0000{number}-of-00003.jsonl").write_text(lines([{"prompt": "a", "answer": "1"}]))
    with pytest.raises(UserError, match=r"has 2 of the 3 files train-\*"):
        load(tmp_path / "set")
    name = hub("a/half", {"README.md": "no head", "data/train-00000-of-00002.parquet": gsm8k(1)})
    with pytest.raises(UserError, match=r"has 1 of the 2 files train-\*"):
        Hub(name).load(None, STREAM)


def test_configurations_are_not_mixed_and_a_split_may_be_listed_twice(hub: Callable[..., str]) -> None:
    files = {"main/train-00000-of-00001.parquet": gsm8k(1), "socratic/train-00000-of-00001.parquet": gsm8k(2)}
    with pytest.raises(UserError, match=r"hub\.config: a/two has the configurations main, socratic; name one of them"):
        Hub(hub("a/two", files)).load(None, STREAM)
    head = "---\nconfigs:\n- config_name: main\n  data_files:\n"
    listed = "".join(f"  - split: train\n    path: {name}.jsonl\n" for name in "ab")
    twice = {"README.md": f"{head}{listed}---\n", **{f"{name}.jsonl": lines(gsm8k(i)) for i, name in enumerate("ab")}}
    assert len(Hub(hub("a/twice", twice)).load(None, STREAM).problems) == 2


def test_a_readme_names_only_files_of_its_data_set(hub: Callable[..., str]) -> None:
    """A stranger's README must not name files of this machine."""
    for number, path in enumerate(("../../../../secret.jsonl", "/etc/secret.jsonl")):
        head = f"---\nconfigs:\n- config_name: main\n  data_files: {path}\n---\n"
        with pytest.raises(UserError, match="only files of the data set"):
            Hub(hub(f"a/escape{number}", {"README.md": head})).load(None, STREAM)


def test_tables_of_text_as_pandas_writes_them(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",prompt,answer\n0,x,1.0\n1,y,\n2,z,2.0\n")
    assert load(tmp_path / "t.csv", on_bad_row="drop") == {"x": "1", "z": "2"}
    (tmp_path / "t.csv").write_text("prompt,answer\nx,1e99999999999999999999\n")
    assert load(tmp_path / "t.csv")["x"] == "1e99999999999999999999"
    (tmp_path / "t.jsonl").write_text('{"prompt": "x", "answer": "1", "n": 1e99999999999999999999}\n')
    with pytest.raises(UserError, match=r"t\.jsonl"):
        load(tmp_path / "t.jsonl")


def test_a_verifier_of_a_file_may_have_options(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(lines([{"prompt": "x", "answer": "3.14", "v": "numeric(tolerance=0.1)"}]))
    for options in ({"verifier": "numeric(tolerance=0.01)"}, {"verifier_column": "v"}):
        [problem] = File(str(tmp_path / "t.jsonl"), **options).load(None, STREAM).problems
        assert problem.verifier.startswith("numeric(tolerance=")
    with pytest.raises(UserError, match="tolerance"):
        File(str(tmp_path / "t.jsonl"), verifier="numeric(tol=1)").load(None, STREAM)


def test_features_are_finite(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"prompt": "x", "answer": "1", "f": 1e400}\n')
    with pytest.raises(UserError, match="f is too large a number"):
        load(tmp_path / "t.jsonl", feature_columns=("f",))


@pytest.mark.parametrize(
    "text",
    [
        "prompt,answer\r\na,1\nb,2\r\n",
        "prompt,answer\na,1\r\nb,2\n",
        "prompt,answer\ra,1\rb,2\r",
        '"prompt",answer\r\n\r\na,1\nb,"2"',
    ],
)
def test_lines_of_a_table_may_end_in_several_ways(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(text.encode())
    problems = File(path=str(tmp_path / "t.csv")).load(None, Stream(0)).problems
    assert {problem.prompt: problem.answer for problem in problems} == {"a": "1", "b": "2"}


def test_line_ends_inside_cells_are_kept_and_short_rows_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b'prompt,answer\r\n"a\nx",1\r\n')
    assert File(path=str(tmp_path / "t.csv")).load(None, Stream(0)).problems[0].prompt == "a\nx"
    (tmp_path / "t.csv").write_bytes(b"prompt,answer\r\na,1\nb\r\n")
    with pytest.raises(UserError, match=r"t\.csv:row 2: .*1 cells, 2 columns"):
        File(path=str(tmp_path / "t.csv")).load(None, Stream(0))


def test_names_may_hold_what_patterns_are_made_of(tmp_path: Path) -> None:
    folder = tmp_path / "set[v2]"
    folder.mkdir()
    duckdb.sql(f"COPY (SELECT 'a' prompt, '1' answer) TO '{tmp_path}/t.parquet' (FORMAT parquet)")
    (tmp_path / "t.parquet").rename(folder / "train[1]?.parquet")
    (folder / "more*.csv").write_text("prompt,answer\na,1\n")
    for path in ("train[1]?.parquet", "more*.csv", "train*.parquet", "*.csv"):
        [problem] = File(path=str(folder / path)).load(None, Stream(0)).problems
        assert (problem.prompt, problem.answer) == ("a", "1")


@pytest.mark.parametrize("name", ["valid.jsonl", "data/dev-0.jsonl", "val/0.jsonl"])
def test_a_split_is_found_by_the_usual_short_names(name: str, hub: Callable[..., str]) -> None:
    one, two = (f"{json.dumps(gsm8k(i)[0])}\n" for i in (1, 2))
    made = hub("a/b", {"train.jsonl": one, name: two})
    [problem] = Hub(made, split="validation").load(None, STREAM).problems
    assert problem.prompt == "2+2?"


@pytest.mark.parametrize("pattern", ["", "**/*.jsonl", "*/*.jsonl", "a/**/*.jsonl"])
def test_a_folder_or_pattern_of_too_many_files_is_not_searched(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    for i in range(3):
        (tmp_path / "a" / f"{i}.jsonl").write_text(lines([{"prompt": f"{i}", "answer": "1"}]))
    assert len(load(tmp_path / pattern)) == 3
    monkeypatch.setattr(data_files, "MOST_ENTRIES", 2)
    with pytest.raises(UserError, match="files to search; name the folder of the data"):
        load(tmp_path / pattern)
    assert len(load(tmp_path / "a" / "*.jsonl")) == 3, "one folder is looked through, whatever it holds"


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl.zst"])
def test_long_rows_after_short_ones_are_read_a_few_at_a_time(ending: str, tmp_path: Path) -> None:
    prompts = [*map(str, range(3000)), *(f"{i:0500000}" for i in range(40))]
    lines = tmp_path / "rows.jsonl"
    lines.write_text("".join(f'{{"prompt": "{prompt}", "answer": "1"}}\n' for prompt in prompts))
    path, form = tmp_path / f"x.{ending}", ending.removeprefix("jsonl.").replace("zst", "json, COMPRESSION zstd")
    rows = f"read_json('{lines}', columns = {{prompt: 'VARCHAR', answer: 'VARCHAR'}})"
    duckdb.sql(f"COPY (FROM {rows}) TO '{path}' (FORMAT {form})")
    found = [[str(row["prompt"]) for row in block.rows if isinstance(row, dict)] for block in data_files.blocks(path)]
    assert [prompt for block in found for prompt in block] == prompts
    assert max(sum(map(len, block)) for block in found) < 8 * data_files.BLOCK


SUMS = [{"prompt": "1+1?", "answer": "2"}, {"prompt": "1+2?", "answer": "3"}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.jsonl", json.dumps(SUMS)),
        ("indented.jsonl", json.dumps(SUMS, indent=1)),
        ("data.json", json.dumps({"version": "1.0", "data": SUMS})),
        ("indented.json", json.dumps({"data": SUMS, "sources": [1]}, indent=1)),
        ("odd.jsonl", "[1]\n" + "".join(f"{json.dumps(row)}\n" for row in SUMS)),
        ("commas.jsonl", "".join(f"{json.dumps(row)},\r\n" for row in SUMS)),
        ("columns.json", json.dumps({"prompt": ["1+1?", "1+2?"], "answer": ["2", "3"]})),
        ("conversations.json", json.dumps({"prompt": [USER, [{**USER[0], "content": "?"}]], "answer": ["2", "3"]})),
        ("pandas.json", json.dumps({"prompt": {"0": "1+1?", "1": "1+2?"}, "answer": {"0": "2", "1": "3"}})),
        (
            "split.json",
            json.dumps({"columns": ["prompt", "answer"], "index": [0, 1], "data": [["?", "2"], ["!", "3"]]}),
        ),
        ("by_id.json", json.dumps({"a": SUMS[0], "b": SUMS[1]}, indent=1)),
        ("by_number.json", json.dumps({"0": SUMS[0], "1": SUMS[1]})),
        ("orz.json", json.dumps([[SHAREGPT[0], {"from": "assistant", "ground_truth": {"value": i}}] for i in "23"])),
        ("excel.csv", "sep=;\nprompt;answer\n1+1?;2\n1+2?;3\n"),
        ("pipes.csv", "prompt|answer\n1+1?|2\n1+2?|3\n"),
        (
            "prompts_in_lists.jsonl",
            "".join(lines([{"prompt": [row["prompt"]], "answer": row["answer"]}]) for row in SUMS),
        ),
        ("mac.csv", "sep=,\rprompt,answer\r1+1?,2\r1+2?,3\r"),
    ],
)
def test_a_list_of_rows_is_read_wherever_it_is(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    loaded = File(str(tmp_path / name), on_bad_row="drop").load(None, STREAM)
    assert {problem.answer for problem in loaded.problems} == {"2", "3"}
    assert loaded.report.dropped == ({"not an object": 1} if name == "odd.jsonl" else {})


@pytest.mark.parametrize(
    "row",
    [
        {"messages": USER, "answer": "2"},
        {"messages": [{"role": "system", "content": "Add."}, *USER], "answer": ["2"]},
        {"prompt": USER, "reward_model": {"ground_truth": "2"}, "tools": [{"type": "function"}]},
        {"conversations": SHAREGPT, "answer": ["2"]},
    ],
)
def test_one_row_with_lists_and_objects_is_a_row(row: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(row))
    assert len(File(str(tmp_path / "x.json")).load(None, STREAM).problems) == 1


def test_a_file_of_one_indented_object_is_a_row_as_in_math(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(json.dumps({"problem": "1+1?", "level": "1", "solution": r"\boxed{2}"}, indent=4))
    assert load(tmp_path / "1.json") == {"1+1?": "2"}


def test_a_text_beside_the_prompt_follows_it(tmp_path: Path) -> None:
    rows = [{"instruction": "Add.", "input": "1+1", "output": 2}, {"instruction": "1+2?", "input": "", "output": 3}]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    loaded = File(str(tmp_path / "t.json")).load(None, STREAM)
    assert {problem.prompt: problem.answer for problem in loaded.problems} == {"Add.\n\n1+1": "2", "1+2?": "3"}
    assert loaded.report.notes == ("read as Alpaca: instruction, input, output",)
    (tmp_path / "t.json").write_text(json.dumps([{"instruction": "Add.", "input": ["1+1"], "output": 2}]))
    with pytest.raises(UserError, match="input is not text"):
        load(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        ("t.jsonl", lines([{"conversations": SHAREGPT}]), "column of final answers with answer_column, or add one"),
        ("t.jsonl", lines([VERL | {"reward_model": {"ground_truth": {"target": 9}}}]), "name one of its fields"),
        ("t.jsonl", lines([{"input": "?", "output": "So 2.", "gts": "2", "score": 1.0}]), "answer_column, or add one"),
        ("t.jsonl", lines([{"question_text": "?", "answer": "2"}]), "name the file's columns with prompt_column"),
        ("t.jsonl", "{'prompt': '1+1?'}\n", "write one object per line, as json.dumps does"),
        ("t.csv", "prompt,answer\na,1,2\nb,2\n", r"Expected Number of Columns: 2 Found: 3\); correct it"),
        ("t.jsonl", lines([{"prompt": "?", "answer": "1 or 2"}]), "take another verifier"),
        ("t.json", json.dumps({"train": SUMS, "test": SUMS}), "give a list of objects"),
        ("t.csv", "prompt,answer\ncaf\xe9?,1\n", "save it as UTF-8"),
    ],
)
def test_a_file_without_problems_is_refused_with_a_fitting_remedy(
    name: str, text: str, remedy: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=remedy):
        load(tmp_path / name, verifier="numeric")
