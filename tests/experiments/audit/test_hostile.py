"""Damaged, mixed, empty, enormous and hostile files: one line, or a partial report that says so."""

import gzip
import json
import os
import pickle
import random
import sqlite3
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from loop_harness import training
from messages import says
from paths import IMPORTABLE
from synthetic_runs import decision
from typer.testing import CliRunner

from halfway.curriculum import UserError
from halfway.experiments.audit import database, files
from halfway.experiments.audit.formats import table
from halfway.experiments.audit.formats.base import Choices
from halfway.experiments.audit.log_reading import read_logs
from halfway.experiments.cli import app
from halfway.trainers.loop.loop_options import Budget, FillOptions

LOGS = Path(__file__).parent / "logs"


def line(problem: object = "p", step: object = 0, reward: object = 1, **more: object) -> str:
    return json.dumps({"problem": problem, "step": step, "reward": reward, **more}) + "\n"


def read(path: Path) -> tuple[int, dict[str, int]]:
    """Rollouts read, and what was left out."""
    [log] = read_logs([path])
    return log.history.num_rollouts, dict(log.reading.dropped)


def run_apart(script: str, path: Path) -> str:
    """The output of a script about a path, in a separate process."""
    command = [sys.executable, "-c", script, str(path)]
    environment = {**os.environ, "PYTHONPATH": IMPORTABLE}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def test_a_last_line_that_is_cut_off_is_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text((line() + line(reward=0) + line())[:-9])
    assert read(tmp_path) == (2, {"last line, cut off": 1})


def test_lines_that_are_not_records_are_left_out_and_counted(tmp_path: Path) -> None:
    odd = ["not json\n", "\n", "[1, 2]\n", '{"problem": "p", "step": 0, "reward": {}}\n', "{" * 5000 + "\n"]
    (tmp_path / "t.jsonl").write_text(line() + "".join(odd) + line(reward=0))
    assert read(tmp_path) == (2, {"line that is not such a record": 4})


def test_rewards_that_are_not_numbers_are_left_out_and_counted(tmp_path: Path) -> None:
    text = (
        line()
        + '{"problem": "p", "step": 0, "reward": NaN}\n'
        + line(reward=None)
        + line(reward="high")
        + line(reward=0)
    )
    (tmp_path / "t.jsonl").write_text(text + '{"problem": "p", "step": 0, "reward": -Infinity}\n')
    assert read(tmp_path) == (2, {"rollout without a finite reward": 4})


def test_bytes_that_are_not_utf_8_do_not_stop_an_audit(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(
        line().encode() + b'{"problem": "\xff\xfe", "step": 0, "reward": 1}\n' + b"\x00\x01\n"
    )
    rollouts, dropped = read(tmp_path)
    assert rollouts + sum(dropped.values()) == 3


def test_a_packed_file_that_ends_early_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = gzip.compress("".join(line(i, reward=i % 2) for i in range(50_000)).encode())
    (tmp_path / "t.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    rollouts, dropped = read(tmp_path)
    assert 0 < rollouts < 50_000
    assert "file that could not be read to its end (EOFError)" in dropped


def test_the_rows_of_a_table_before_the_damage_are_read(tmp_path: Path) -> None:
    """Fewer rows than a batch has, with names that do not pack well."""
    generator = random.Random(0)
    rows = "".join(f"{generator.getrandbits(256):x},{i},{i % 2}\n" for i in range(2_000))
    whole = gzip.compress(f"problem,step,reward\n{rows}".encode())
    (tmp_path / "t.csv.gz").write_bytes(whole[: len(whole) // 2])
    rollouts, dropped = read(tmp_path)
    assert 800 < rollouts < 1_100
    assert dropped == {"file that could not be read to its end (EOFError)": 1}


def test_a_line_longer_than_the_limit_is_not_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(files, "BLOCK", 1 << 16)
    endless = '{"problem": "' + "x" * (3 << 20) + '"}\n'
    (tmp_path / "t.jsonl").write_text(line() + endless + line(reward=0))
    assert read(tmp_path) == (2, {"line of more than 1 MiB": 1})


def test_pickles_are_not_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "opened"),)

    (tmp_path / "0.pt").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UserError, match=says("1 x pickle", "run code")):
        read_logs([tmp_path])
    with pytest.raises(UserError, match=r"0\.pt: pickle"):
        read_logs([tmp_path / "0.pt"])
    (tmp_path / "t.jsonl").write_text(line() + line(reward=0))
    assert read(tmp_path)[1] == {files.PICKLE: 1}
    assert not (tmp_path / "opened").exists()


def test_arrays_of_our_own_runs_are_not_called_pickles(tmp_path: Path) -> None:
    training(tmp_path, FillOptions(groups=4), Budget(steps=6), staleness=1).train()
    arrays = {path.name for path in tmp_path.rglob("*.bin")}
    assert "events.bin" in arrays and len(arrays) > 1
    assert files.PICKLE not in read(tmp_path)[1]


def test_paths_do_not_leave_the_folder(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "t.jsonl").write_text(line("hidden") + line("hidden", reward=0))
    given = tmp_path / "given"
    given.mkdir()
    (given / "link.jsonl").symlink_to(secret / "t.jsonl")
    (given / "folder").symlink_to(secret)
    (given / "t.jsonl").write_text(line("open") + line("open", reward=0))
    [log] = read_logs([given])
    assert log.history.problems == ("open",) and log.reading.dropped == {files.OUTSIDE: 1}


@pytest.mark.parametrize("name", ["steps.jsonl", "hosted.json"])
def test_a_file_beside_decisions_is_not_read_through_a_link_or_without_end(name: str, tmp_path: Path) -> None:
    text = '{"step": 0, "seconds": 7200.0, "host": "elsewhere"}\n'
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "decisions.jsonl").write_text("".join(json.dumps(decision(i)) + "\n" for i in range(4)))
    path = tmp_path / "run" / name

    def seen() -> bool:
        [log] = read_logs([tmp_path / "run"])
        return log.hours == 2.0 or "elsewhere" in log.reading.next_step

    path.write_text(text)
    assert seen()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert not seen()
    path.unlink()
    path.write_text(text)
    os.truncate(path, 1 << 40)
    assert not seen()


def test_an_advantage_without_a_float_does_not_stop_an_audit(tmp_path: Path) -> None:
    row = {"gen_step": "1", "prompt": ["p"] * 4, "completion": list("abcd"), "reward": [1.0, 0.0, 1.0, 0.0]}
    lines = [{**row, "advantages": [1.0, -1.0, odd, None]} for odd in (10**400, -(10**400))]
    (tmp_path / "completions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read(tmp_path) == (8, {})


def test_a_pipe_is_left_out_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "t.jsonl").write_text(line() + line(reward=0))
    assert read(tmp_path)[1] == {files.NOT_REGULAR: 1}


def test_a_link_to_itself_or_to_nothing_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "self.jsonl").symlink_to(tmp_path / "self.jsonl")
    (tmp_path / "lost.jsonl").symlink_to(tmp_path / "nowhere.jsonl")
    (tmp_path / "t.jsonl").write_text(line() + line(reward=0))
    assert read(tmp_path) == (2, {files.NOT_REGULAR: 2})


@pytest.mark.parametrize(
    "odd",
    [
        {"k": 9},
        {"k": -1},
        {"n": 10**30, "k": 0},
        {"step": 10**30},
        {"step": -1},
        {"tokens": -5},
        {"tokens": 10**30},
        {"dropped": {"lost": 10**30}},
        {"dropped": {"lost": -1}},
        {"k": "many"},
    ],
)
def test_decision_records_that_no_run_can_have_are_left_out_and_counted(odd: dict[str, object], tmp_path: Path) -> None:
    good = decision(k=4)
    (tmp_path / "decisions.jsonl").write_text("".join(json.dumps({**good, **change}) + "\n" for change in ({}, odd)))
    assert read(tmp_path) == (8, {"line that is not such a record": 1})


def test_a_line_of_csv_longer_than_the_limit_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "LONGEST_ROW", 1 << 12)
    (tmp_path / "t.csv").write_text("problem,reward\np,1\n" + "," * (1 << 13) + "\np,0\n")
    rollouts, dropped = read(tmp_path)
    assert rollouts == 2 and set(dropped) == {"row with more or fewer columns than the header"}


def test_the_database_reads_nothing_outside_the_given_folder(tmp_path: Path) -> None:
    given, other = tmp_path / "given", tmp_path / "other"
    for folder in (given, other):
        folder.mkdir()
        duckdb.sql(f"COPY (SELECT 'p' AS problem, 1 AS reward) TO '{folder / 't.parquet'}' (FORMAT parquet)")
    cursor = database.connected(given).cursor()
    assert cursor.execute("SELECT * FROM read_parquet(?)", [str(given / "t.parquet")]).fetchall() == [("p", 1)]
    for query in (
        f"SELECT * FROM read_parquet('{other / 't.parquet'}')",
        f"SELECT * FROM read_parquet('{given}/../other/t.parquet')",
        "SELECT * FROM read_text('/etc/passwd')",
        f"COPY (SELECT 1) TO '{other / 'new.csv'}'",
        f"ATTACH '{other / 'new.db'}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET memory_limit = '100GB'",
    ):
        with pytest.raises(duckdb.Error):
            cursor.execute(query)
    with pytest.raises(duckdb.Error):
        database.connected().execute("SELECT * FROM read_parquet(?)", [str(given / "t.parquet")])


def test_parquet_is_found_by_its_exact_name(tmp_path: Path) -> None:
    folder = tmp_path / "lr=1" / "it's [1]"
    folder.mkdir(parents=True)
    for name in ("t*", "two"):
        rows = "SELECT unnest([0, 1]) AS reward, 'p' AS problem"
        duckdb.sql(f"COPY ({rows}) TO '{tmp_path / 'x'}' (FORMAT parquet)")
        (tmp_path / "x").rename(folder / f"{name}.parquet")
    assert read(folder / "t*.parquet") == (2, {})
    assert read(tmp_path) == (4, {})


def test_formats_may_be_mixed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "t.jsonl").write_text(line() + line(reward=0))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1.jsonl").write_bytes((LOGS / "verl" / "1.jsonl").read_bytes())
    (tmp_path / "notes.json").write_text('{"lr": 1e-6}')
    logs = read_logs([tmp_path])
    assert [(log.name, log.reading.format) for log in logs] == [("a", "table"), ("b", "verl")]
    assert logs[0].reading.dropped == {"file of no known format": 1}


@pytest.mark.parametrize("content", [b"", b"\n\n", b"{}\n", b'{"problem": "p"}\n', b"problem,step,reward\n"])
def test_a_folder_without_a_rollout_gives_one_line(content: bytes, tmp_path: Path) -> None:
    for name in ("t.jsonl", "t.csv", "t.parquet", "t.db"):
        (tmp_path / name).write_bytes(content)
    result = CliRunner().invoke(app, ["audit", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", json.dumps([{"problem": "p", "reward": 1}], indent=1).encode()[:-1], "JSON array that is damaged"),
        ("a.json", b"[1, 2]", "not of records"),
        ("a.parquet", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "run `git lfs pull`"),
        ("a.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "run `git lfs pull`"),
        ("a.csv", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "run `git lfs pull`"),
        ("a.json", b'{\n "log_history": []\n}', "first line is not a whole JSON record"),
        ("a.jsonl", b'{"step": 1, "reward": 0.5, "loss": 0.1}\n', "it has loss, reward, step, which no"),
        ("a.jsonl", b"hello\n", "first line is not a JSON record"),
        ("a.jsonl", b"  \n", "it is empty"),
        ("a.jsonl", gzip.compress(line().encode(), mtime=0), "rename it to end in .gz"),
        ("a.jsonl.gz", line().encode(), "not compressed by gzip"),
        ("a.jsonl", line().encode("utf-16"), "not UTF-8 text"),
        ("a.jsonl", b'{"problem":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n", "not a whole JSON record"),
        ("a.parquet", b"PAR1 and no more", "cannot be read as a parquet file"),
        ("a.db", b"SQLite format 3\0 and no more", "cannot be read as a db file"),
        ("a.tsv", b"problem\tstep\n", "by its name"),
    ],
)
def test_the_error_says_why_a_file_is_not_a_log(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_logs([tmp_path / name])
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(files.MARK + (line() + line(reward=0)).encode())
    assert read(tmp_path) == (2, {})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "does not exist"),
        (["LOG", "--format", "verk"], "did you mean 'verl'?"),
        (["LOG", "--replay", "gresso"], "did you mean 'greso'?"),
        (["LOG", "--write", "audit.pdf"], "ends in .html or .json"),
        (["LOG", "--reward", "quality"], "the log has problem, step, reward"),
    ],
)
def test_a_users_mistake_gives_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    log = tmp_path / "t.jsonl"
    log.write_text(line() + line(reward=0))
    result = CliRunner().invoke(app, ["audit", *(str(log) if word == "LOG" else word for word in words)])
    assert result.exit_code == 2 and message in result.stderr and result.stderr.count("\n") == 1


def test_text_from_a_log_is_not_markup(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script> [bold red]x[/] \x1b[2J"
    rows = [{"prompt": bad, "step": 0, "reward": r, "response": "same", "source": bad} for r in (0, 1, 1, 0)]
    log = tmp_path / "t.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = tmp_path / "audit.html"
    result = CliRunner().invoke(app, ["audit", str(log), "--replay", "none", "--write", str(page)])
    assert result.exit_code == 0, result.output
    assert "<script>" not in page.read_text() and "&lt;script&gt;" in page.read_text()
    assert "\x1b[2J" not in result.output and "\x1b" not in page.read_text()


def test_memory_does_not_grow_with_a_file(tmp_path: Path) -> None:
    """200 MB of verl's lines in a process that may have 64 MB more than it starts with."""
    row = {"input": "question ", "output": "thought " * 4000, "gts": "1", "score": 1.0, "step": 1}
    with open(tmp_path / "1.jsonl", "w") as file:
        for i in range(6400):
            file.write(json.dumps({**row, "input": f"question {i // 8}", "score": float(i % 3 == 0)}) + "\n")
    script = """
import sys
import tracemalloc
from pathlib import Path
from memory import peak_mib
import halfway.experiments.audit.formats.verl
from halfway.experiments.audit.log_reading import read_logs
before = peak_mib()
[log] = read_logs([Path(sys.argv[1])])
print(log.history.num_rollouts, peak_mib() - before)
"""
    done = run_apart(script, tmp_path)
    rollouts, grown = map(int, done.split())
    assert rollouts == 6400 and grown < 64


def test_installed_formats_are_asked_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from halfway.experiments.audit.formats.registry import FORMATS
    from halfway.experiments.audit.formats.table import Table

    class Ours(Table):
        trainer = "ours"

    monkeypatch.setitem(FORMATS._added, "ours", Ours)
    (tmp_path / "t.jsonl").write_text(line() + line(reward=0))
    [log] = read_logs([tmp_path], Choices())
    assert log.reading.format == "ours"


def test_numbers_beyond_every_trainers_range_are_left_out_and_counted(tmp_path: Path) -> None:
    good = json.loads((LOGS / "verl" / "1.jsonl").read_text().splitlines()[0])
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "t.jsonl").write_text(line() + line(step=10**30) + line(reward=10**300) + line(reward=0))
    lines = [json.dumps({**good, "step": step}) + "\n" for step in (1, 10**30, 2)]
    (tmp_path / "1.jsonl").write_text("".join(lines))
    table, verl = sorted(read_logs([tmp_path]), key=lambda log: log.reading.format)
    odd = "rollout with a number that no trainer writes"
    assert table.history.num_rollouts == 2
    assert table.reading.dropped == {"rollout without a finite reward": 1, odd: 1}
    assert verl.history.num_rollouts == 2
    assert verl.reading.dropped == {odd: 1}


def test_several_logs_get_different_names(tmp_path: Path) -> None:
    for name in ("small", "large"):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "1.jsonl").write_text(line() + line(reward=0))
    assert [log.name for log in read_logs([tmp_path / "runs"])] == ["large", "small"]
    page = tmp_path / "audit.html"
    words = ["audit", str(tmp_path / "runs" / "small"), str(tmp_path / "runs" / "large"), "--write", str(page)]
    result = CliRunner().invoke(app, [*words, "--replay", "none"])
    assert result.exit_code == 0
    assert page.read_text().index("<h2>small</h2>") < page.read_text().index("<h2>large</h2>")


PEAK = """
import sys, time
from pathlib import Path
from memory import peak_mib
from halfway.experiments.audit.log_reading import read_logs
began = time.process_time()
try:
    [log] = read_logs([Path(sys.argv[1])])
    print(log.history.num_rollouts, *log.reading.dropped, sep="; ")
except ValueError as error:
    print(error)
print(peak_mib(), time.process_time() - began)
"""


def packed_lines(path: Path) -> None:
    path.write_bytes(gzip.compress(line().encode() * 3_000_000, 1))


def packed_values(path: Path) -> None:
    path.write_bytes(gzip.compress(line().encode() + b'{"problem": "p", "reward": [1' + b", 1" * 40_000_000, 1))


def packed_commas(path: Path) -> None:
    path.write_bytes(gzip.compress(b"problem,reward\n" + b"," * 150_000_000, 1))


def empty_lists(path: Path) -> None:
    path.write_bytes(line(reward=[1]).encode() + b'{"problem": "p", "reward": [' + b"[], " * 20_000_000 + b"1]}\n")


def counts(path: Path) -> None:
    path.write_text(line(k=0, n=100_000).replace("reward", "other") * 3_000)


def long_cells(path: Path) -> None:
    rows = "SELECT 'p' AS problem, 1 AS reward, repeat('x', 1000000) AS response FROM range(400)"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (FORMAT parquet)")


def many_rows(path: Path) -> None:
    duckdb.sql(f"COPY (SELECT 'p' AS problem, 1 AS reward FROM range(7500000)) TO '{path}' (FORMAT parquet)")


def later_cells(path: Path) -> None:
    """Short texts, and then one long text that is stored once."""
    texts = "CASE WHEN i < 1000 THEN 'x' ELSE repeat('x', 1000000) END"
    rows = f"SELECT 'p' AS problem, 1 AS reward, {texts} AS response FROM range(2000) t(i)"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (FORMAT parquet, PARQUET_VERSION v2)")


def long_lists(path: Path) -> None:
    rows = "SELECT [{'role': 'user', 'content': 'p'} FOR i IN range(100000)] AS problem, 1 AS reward FROM range(60)"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")


@pytest.mark.parametrize(
    ("write", "name", "reason"),
    [
        (packed_lines, "t.jsonl.gz", database.TOO_DENSE),
        (packed_values, "t.jsonl.gz", database.TOO_DENSE),
        (packed_commas, "t.csv.gz", database.TOO_DENSE),
        (empty_lists, "t.jsonl", "line of more than 4,000,000 values"),
        (counts, "t.jsonl", "row after counts of more than 5,000,000 rollouts"),
        (long_cells, "t.parquet", database.TOO_DENSE),
        (later_cells, "t.parquet", database.TOO_DENSE),
        (long_lists, "t.parquet", database.TOO_DENSE),
        (many_rows, "t.parquet", database.TOO_DENSE),
    ],
)
def test_a_small_file_that_unpacks_to_much_is_read_up_to_a_limit(
    write: Callable[[Path], None], name: str, reason: str, tmp_path: Path
) -> None:
    write(tmp_path / name)
    done = run_apart(PEAK, tmp_path / name)
    said, numbers = done.splitlines()
    peak, seconds = map(float, numbers.split())
    assert reason in said and peak < 1024 and seconds < 30, done


@pytest.mark.parametrize(
    ("old", "said"),
    [(b"reward", "parquet file"), (b"problem", "cannot be read"), (b"prob-one", database.DAMAGED)],
)
def test_a_parquet_file_whose_text_is_not_utf8_is_refused_in_one_line(old: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    rows = "SELECT 'prob-one' AS problem, 1 AS reward"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (FORMAT parquet, COMPRESSION uncompressed)")
    path.write_bytes(path.read_bytes().replace(old, b"\xff\xfe" + old[2:]))
    with pytest.raises(UserError, match=said) as told:
        read_logs([path])
    assert "\n" not in str(told.value)


def test_a_packed_log_of_a_usual_density_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "UNPACKED", 1000)
    rows = "".join(line(i, reward=i % 2) for i in range(1000))
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    assert read(tmp_path) == (1000, {})


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE sqlite_master SET sql = replace(sql, 'CREATE', CAST(x'435245c55445' AS TEXT))",
        "UPDATE sqlite_master SET name = CAST(name AS BLOB)",
    ],
)
def test_a_database_whose_schema_is_not_text_is_refused_in_one_line(change: str, tmp_path: Path) -> None:
    path = tmp_path / "explorer.db"
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE t (task_id TEXT, run_id INTEGER, model_version INTEGER, reward REAL)")
        base.execute("INSERT INTO t VALUES ('a', 0, 0, 1.0)")
        base.commit()
        assert len(read_logs([path])) == 1
        base.execute("PRAGMA writable_schema = ON")
        base.execute(change)
        base.commit()
    with pytest.raises(UserError, match=says("explorer.db", "db file")):
        read_logs([path])


def test_a_long_text_among_numbers_costs_its_own_size(tmp_path: Path) -> None:
    """In an array of texts, each would take the room of the longest: a gigabyte for 64 rows."""
    rows = [{"problem": f"p{i // 4}", "step": i // 8, "reward": i % 2} for i in range(64)]
    rows[5]["step"] = "x" * (1 << 22)
    (tmp_path / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tracemalloc.start()
    [log] = read_logs([tmp_path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert log.history.num_rollouts == 63 and peak < 2 * 10**8
