"""Data files that public reports say a trainer or a loader could not read, or read wrongly, small and made anew."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from halfway.curriculum import Problem, Stream
from halfway.curriculum.tasks.files import File

USER = {"role": "user", "content": "2+3?"}


def lines(*rows: Any) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def parquet(path: Path, rows: list[Any], **metadata: str) -> None:
    source = path.parent / "rows.txt"
    source.write_text(json.dumps(rows))
    stated = ", ".join(f"{name}: '{text}'" for name, text in metadata.items())
    options = f"FORMAT parquet{f', KV_METADATA {{{stated}}}' if stated else ''}"
    duckdb.sql(f"COPY (FROM read_json('{source}', format = 'array')) TO '{path}' ({options})")


def shards_that_differ(folder: Path) -> Path:
    """LLM360/Reasoning360#103: each shard has columns of its own besides those of verl."""
    row = {"prompt": [USER], "reward_model": {"ground_truth": "5", "style": "rule"}, "task_id": "t"}
    (folder / "set").mkdir()
    parquet(folder / "set" / "math-0.parquet", [row])
    other = {**row, "prompt": [{**USER, "content": "1+4?"}], "starter": "def f():", "extra_info": {"index": 1}}
    parquet(folder / "set" / "math-1.parquet", [other])
    return folder / "set"


def newer_metadata(folder: Path) -> Path:
    """verl-project/verl#2723: a feature type in the table's metadata that an older library does not know."""
    row = {"prompt": [USER], "reward_model": {"ground_truth": "5", "style": "rule"}}
    features = json.dumps({"info": {"features": {"prompt": {"_type": "List"}}}})
    parquet(folder / "t.parquet", [row], huggingface=features)
    return folder / "t.parquet"


def prompt_is_text(folder: Path) -> Path:
    """verl-project/verl#1827: a prompt that is text where messages are expected."""
    parquet(folder / "t.parquet", [{"prompt": "2+3?", "reward_model": {"ground_truth": "5", "style": "rule"}}])
    return folder / "t.parquet"


def empty_last_turn(folder: Path) -> Path:
    """verl-project/verl#4112: a conversation that ends in a call of a tool, without text."""
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {"a": [2]}}}]}
    (folder / "t.jsonl").write_bytes(lines({"messages": [{**USER, "tool_calls": None}, call], "ground_truth": "5"}))
    return folder / "t.jsonl"


def columns_of_others(folder: Path) -> Path:
    """huggingface/open-r1#126, modelscope/ms-swift#5087: KeyError 'prompt' on problem, solution and messages."""
    messages = [USER, {"role": "assistant", "content": "It is 5."}]
    parquet(folder / "t.parquet", [{"problem": "2+3?", "solution": "5", "messages": messages}])
    return folder / "t.parquet"


def mark_of_an_editor(folder: Path) -> Path:
    """huggingface/datasets#8241, microsoft/promptflow#4172: a byte order mark before the first line."""
    (folder / "t.jsonl").write_bytes(b"\xef\xbb\xbf" + lines({"prompt": "2+3?", "answer": 5}) + b"\r\n")
    return folder / "t.jsonl"


def lines_called_json(folder: Path) -> Path:
    """lil-lab/nlvr#1: one object a line under the ending .json, "Extra data: line 2"."""
    (folder / "t.json").write_bytes(lines({"prompt": "2+3?", "answer": "5"}, {"prompt": "1+4?", "answer": "5"}))
    return folder / "t.json"


def integers_with_a_gap(folder: Path) -> Path:
    """huggingface/datasets#8365: a column of integers is written as floating point since one is null."""
    (folder / "t.jsonl").write_bytes(b'{"prompt":"2+3?","answer":5.0}\n{"prompt":"?","answer":null}\n')
    return folder / "t.jsonl"


def floats_that_look_like_integers(folder: Path) -> Path:
    """huggingface/datasets#6937: 1.0 is read as 1."""
    (folder / "t.jsonl").write_bytes(b'{"prompt":"2+3?","answer":5.0}\n')
    return folder / "t.jsonl"


def every_row_a_hundred_times(folder: Path) -> Path:
    """verl-project/verl#3065: DAPO's 17 thousand problems are 1.7 million rows, those of AIME 32 times 30."""
    row = {"prompt": [USER], "reward_model": {"ground_truth": "5", "style": "rule"}}
    parquet(folder / "t.parquet", [{**row, "extra_info": {"index": i}} for i in range(100)])
    return folder / "t.parquet"


def negative_after_the_mark(folder: Path) -> Path:
    """google-deepmind/proeval#19: the sign of a GSM8K answer is lost."""
    worked = "It was 2, and it fell by 1,236.5 to -1,234.5.\n#### -1,234.5"
    (folder / "t.jsonl").write_bytes(lines({"question": "2-1236.5?", "answer": worked}))
    return folder / "t.jsonl"


def list_called_lines(folder: Path) -> Path:
    """nuprl/MultiPL-E#81: files of data are lists in JSON, not a row per line."""
    rows = [{"prompt": "2+3?", "answer": "5"}, {"prompt": "1+4?", "answer": "5"}]
    (folder / "t.jsonl").write_text(json.dumps(rows, indent=2))
    return folder / "t.jsonl"


def rows_in_an_object(folder: Path) -> Path:
    """huggingface/datasets#372: a file holds one object, with the rows in one of its fields."""
    (folder / "t.json").write_text(json.dumps({"version": "1.1", "data": [{"prompt": "2+3?", "answer": "5"}]}))
    return folder / "t.json"


def turns_of_sharegpt(folder: Path) -> Path:
    """hiyouga/LlamaFactory#6878, axolotl-ai-cloud/axolotl#752, MakazhanAlpamys/Soup#1093: turns have `from` and
    `value`, and whoever speaks is called human, user, gpt or assistant."""
    names = [("human", "gpt"), ("user", "assistant")]
    rows = [
        {"conversations": [{"from": asks, "value": f"{i}+3?"}, {"from": answers, "value": "So."}], "answer": i + 3}
        for i, (asks, answers) in enumerate(names)
    ]
    (folder / "t.jsonl").write_bytes(lines(*rows))
    return folder / "t.jsonl"


def instructions_of_alpaca(folder: Path) -> Path:
    """kuleshov-group/llmtools#14, johnsmith0031/alpaca_lora_4bit#149: an instruction may have a text beside it."""
    rows = [{"instruction": "Add.", "input": "2, 3", "output": "5"}, {"instruction": "1+4?", "output": "5"}]
    (folder / "t.json").write_text(json.dumps(rows))
    return folder / "t.json"


def columns_of_pandas(folder: Path) -> Path:
    """yakew7/Fair-Code#141: pandas writes columns, rows by number, or a list of rows."""
    (folder / "t.json").write_text('{"prompt": {"0": "2+3?", "2": "1+4?"}, "answer": {"0": 5, "2": 5}}')
    return folder / "t.json"


REPORTS: list[tuple[Callable[[Path], Path], dict[str, str]]] = [
    (shards_that_differ, {"2+3?": "5", "1+4?": "5"}),
    (newer_metadata, {"2+3?": "5"}),
    (prompt_is_text, {"2+3?": "5"}),
    (empty_last_turn, {"2+3?": "5"}),
    (columns_of_others, {"2+3?": "5"}),
    (mark_of_an_editor, {"2+3?": "5"}),
    (lines_called_json, {"2+3?": "5", "1+4?": "5"}),
    (integers_with_a_gap, {"2+3?": "5"}),
    (floats_that_look_like_integers, {"2+3?": "5.0"}),
    (every_row_a_hundred_times, {"2+3?": "5"}),
    (negative_after_the_mark, {"2-1236.5?": "-1,234.5"}),
    (list_called_lines, {"2+3?": "5", "1+4?": "5"}),
    (rows_in_an_object, {"2+3?": "5"}),
    (turns_of_sharegpt, {"0+3?": "3", "1+3?": "4"}),
    (instructions_of_alpaca, {"Add.\n\n2, 3": "5", "1+4?": "5"}),
    (columns_of_pandas, {"2+3?": "5", "1+4?": "5"}),
]


@pytest.mark.parametrize(("made", "wanted"), REPORTS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_reported_file_is_read_right(made: Callable[[Path], Path], wanted: dict[str, str], tmp_path: Path) -> None:
    problems: tuple[Problem, ...] = File(str(made(tmp_path)), on_bad_row="drop").load(None, Stream(0)).problems
    assert {problem.prompt: problem.answer for problem in problems} == wanted
