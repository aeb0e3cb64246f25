"""Every format against a count by hand. `logs/` was written by the trainers' own code, see `logs/make.py`."""

import csv
import gzip
import json
import re
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest
from messages import says
from paths import REPOSITORY

from halfway.curriculum import UserError
from halfway.experiments.audit.formats.base import Choices
from halfway.experiments.audit.formats.registry import FORMATS
from halfway.experiments.audit.history import Log
from halfway.experiments.audit.log_reading import read_logs

LOGS = Path(__file__).parent / "logs"
# step -> k of problems a, b and c, of four rollouts each; b has zero variance twice, a once.
STORY = {1: {"a": "0000", "b": "1111", "c": "0100"}, 2: {"a": "0110", "b": "1111", "c": "1101"}}
COUNTED = sorted((step, name, rewards.count("1")) for step, group in STORY.items() for name, rewards in group.items())
PROMPT = {"a": "strawberry", "b": "2+2=", "c": "9.11"}


def rows() -> Iterable[tuple[int, str, int, int]]:
    """(step, problem, rollout, reward) of the story."""
    for step, groups in STORY.items():
        for name, rewards in groups.items():
            for i, reward in enumerate(rewards):
                yield step, name, i, int(reward)


def read_one(path: Path, **choices: Any) -> Log:
    [log] = read_logs([path], Choices(**choices))
    return log


def counted(log: Log) -> list[tuple[int, str, int]]:
    """(step, problem, k), problems by what is in their prompts or keys."""
    history = log.history
    found = []
    for place, step, k, n in zip(history.problem_V, history.step_V, history.passed_V, history.size_V, strict=True):
        text = log.texts.get(history.problems[place], history.problems[place])
        [name] = [name for name, word in PROMPT.items() if word in text or text.endswith(f"key-{name}")]
        assert n == 4
        found.append((int(step), name, int(k)))
    return sorted(found)


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("name", ["verl", "verl_v1", "trl", "ms_swift", "trinity", "areal", "prime_rl"])
def test_the_log_of_each_trainer_is_read_exactly(name: str) -> None:
    log = read_one(LOGS / name)
    assert log.reading.format == {"verl_v1": "verl"}.get(name, name)
    assert counted(log) == COUNTED
    assert log.history.zero_variance_V.sum() == 3 and log.reading.identified
    assert log.history.num_rollouts == 24


def test_the_texts_of_verl_are_those_of_its_prompts() -> None:
    assert set(read_one(LOGS / "verl").texts.values()) == {
        'How many "r" in strawberry?',
        "2+2=",
        "Größer: 9.11 oder 9.9?",
    }


def test_verl_counts_what_passed_by_acc_and_silence_by_the_score(tmp_path: Path) -> None:
    common = {"input": "p", "gts": "1", "step": 1}
    shaped = [(True, 0.8), (True, 1.0), (False, 0.0), (False, 0.0)]
    equal = [(True, 0.5), (False, 0.5)]
    lines = [{**common, "output": f"x{i}", "acc": acc, "score": score} for i, (acc, score) in enumerate(shaped)]
    lines += [{**common, "input": "q", "output": f"y{i}", "acc": a, "score": s} for i, (a, s) in enumerate(equal)]
    write_lines(tmp_path / "1.jsonl", lines)
    history = read_one(tmp_path).history
    assert history.passed_V.tolist() == [2, 1] and history.zero_variance_V.tolist() == [False, True]
    assert read_one(tmp_path, passes_at=0.9).history.passed_V.tolist() == [1, 0]
    assert "acc" in " ".join(read_one(tmp_path).reading.guesses)


def test_v1_warns_that_its_reward_fields_are_lost() -> None:
    assert any("reward_extra_info" in trap for trap in read_one(LOGS / "verl_v1").reading.traps)
    assert not any("reward_extra_info" in trap for trap in read_one(LOGS / "verl").reading.traps)


def test_trl_counts_a_batch_that_was_logged_twice_once() -> None:
    reading = read_one(LOGS / "trl").reading
    assert reading.dropped == {"rollout repeated from the file before": 12}
    assert any("logged at several steps" in trap for trap in reading.traps)
    assert any("accuracy_reward, format_reward" in guess for guess in reading.guesses)


def write_parquet(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    lines = write_lines(path.with_suffix(".tmp"), records)
    duckdb.sql(f"COPY (FROM read_ndjson('{lines}')) TO '{path}' (FORMAT parquet)")
    lines.unlink()
    return path


def test_trl_warns_of_steps_between_its_tables(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        common = {"step": step, "prompt": "p", "advantage": 0.0}
        rows = [{**common, "completion": f"{step} {score}", "score": score} for score in (0.0, 1.0)]
        write_parquet(tmp_path / f"completions_{step:05d}.parquet", rows)
    assert any("10 steps apart" in trap for trap in read_one(tmp_path).reading.traps)


def test_trl_takes_the_step_of_the_files_name_where_the_column_has_none(tmp_path: Path) -> None:
    rows = [{"step": None, "prompt": "p", "advantage": 0.0, "completion": f"{s}", "score": s} for s in (0.0, 1.0)]
    write_parquet(tmp_path / "completions_00001.parquet", rows)
    assert read_one(tmp_path).history.step_V.tolist() == [1]


def test_a_filtered_prime_rl_folder_says_that_it_is_one(tmp_path: Path) -> None:
    source = LOGS / "prime_rl" / "rollouts" / "step_1" / "train" / "effective" / "traces.jsonl"
    target = tmp_path / "rollouts" / "step_1" / "train" / "effective" / "traces.jsonl"
    target.parent.mkdir(parents=True)
    target.write_bytes(source.read_bytes())
    log = read_one(tmp_path)
    assert log.history.num_rollouts == 4  # of c alone
    assert any('folder "all"' in trap for trap in log.reading.traps)


def test_tinker_has_groups_but_no_problems() -> None:
    log = read_one(LOGS / "tinker")
    assert sorted(log.history.passed_V.tolist()) == [0, 1, 2, 3, 4, 4]
    assert not log.reading.identified and len(log.history.problems) == 6
    assert log.history.tokens_V.tolist() == [2 + 3 + 4 + 5] * 6 and log.reading.measure == "tokens"


def test_open_instructs_groups_are_the_prompts_of_a_step(tmp_path: Path) -> None:
    place = {"a": 0, "b": 1, "c": 2}
    lines = [
        {
            "step": step, "sample_idx": 4 * place[name] + i, "prompt_idx": place[name], "reward": 10.0 * reward,
            "prompt_tokens": [5, 6, place[name]], "response_tokens": list(range(i + 1)), "advantage": 0.0,
            "finish_reason": "stop", "dataset": "math", "ground_truth": "3", "request_info": {}, "logprobs": None,
        }
        for step, name, i, reward in rows()
    ]  # fmt: skip
    write_lines(tmp_path / "run_rollouts_000000.jsonl", lines[:13])
    write_lines(tmp_path / "run_rollouts_000001.jsonl", lines[13:])
    history = read_one(tmp_path).history
    assert len(history) == 6 and len(history.problems) == 3 and history.zero_variance_V.sum() == 3
    assert history.tokens_V.tolist() == [1 + 2 + 3 + 4] * 6
    assert history.category_P == ("math",) * 3


def test_roll_writes_a_step_as_one_line_of_columns(tmp_path: Path) -> None:
    for step in STORY:
        of_step = [row for row in rows() if row[0] == step]
        columns = {
            "global_step": [step] * 12,
            "id": [f"key-{name}" for _, name, _, _ in of_step],
            "prompt": [PROMPT[name] for _, name, _, _ in of_step],
            "responses": [f"{i} {reward}" for _, _, i, reward in of_step],
            "scores": [float(reward) for *_, reward in of_step],
            "domain": ["math_rule"] * 12,
            "sampling_params": ["{}"] * 12,
        }
        write_lines(tmp_path / f"rollout_dump_data.step_{step}.jsonl", [columns])
    log = read_one(tmp_path)
    assert counted(log) == COUNTED and log.history.problems == ("key-a", "key-b", "key-c")
    assert log.history.category_P == ("math_rule",) * 3


def nemo_lines(step: int, masked: bool, filtered: bool = False) -> Iterable[Mapping[str, Any]]:
    token = {"a": 7, "b": 8, "c": 9}
    for at, name, i, reward in rows():
        if at == step and not (filtered and len(set(STORY[step][name])) == 1):
            lists = {"token_ids": [[1, token[name], 30 + i]], "token_loss_mask": [[0, 0, 1]]} if masked else {}
            rewards = (
                {"filtered_rewards": [float(reward)], "rewards": [0.5]} if filtered else {"rewards": [float(reward)]}
            )
            yield {"content": [f"{PROMPT[name]} {i}"], "input_lengths": [3], "idx": i, **rewards, **lists}


def test_nemo_rl_identifies_problems_by_their_first_tokens(tmp_path: Path) -> None:
    for step in STORY:
        write_lines(tmp_path / f"train_data_step{step}.jsonl", nemo_lines(step, masked=True))
        write_lines(tmp_path / f"val_data_step{step}.jsonl", nemo_lines(step, masked=True))
    log = read_one(tmp_path)
    found = list(zip(log.history.step_V.tolist(), log.history.passed_V.tolist(), strict=True))
    assert found == [(1, 0), (1, 4), (1, 1), (2, 2), (2, 4), (2, 3)] and len(log.history.problems) == 3
    assert log.reading.dropped == {"file of validation": 2}


def test_nemo_rl_with_dynamic_sampling_reads_the_rewards_that_belong_to_the_rows(tmp_path: Path) -> None:
    write_lines(tmp_path / "train_data_step2.jsonl", nemo_lines(2, masked=True, filtered=True))
    log = read_one(tmp_path)
    assert log.history.passed_V.tolist() == [2, 3] and not log.reading.keeps_zero_variance
    assert any("filtered_rewards" in trap for trap in log.reading.traps)


def test_nemo_rl_without_masks_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "train_data_step1.jsonl", nemo_lines(1, masked=False))
    with pytest.raises(UserError, match=says("token_loss_mask")):
        read_logs([tmp_path])


def test_results_of_older_verifiers_are_read_without_steps(tmp_path: Path) -> None:
    lines = [
        {"example_id": "abc".index(name), "prompt": [{"role": "user", "content": PROMPT[name]}], "answer": "",
         "completion": [{"role": "assistant", "content": f"{i}"}], "reward": float(reward), "task": "default"}
        for step, name, i, reward in rows() if step == 2
    ]  # fmt: skip
    write_lines(tmp_path / "results.jsonl", lines)
    (tmp_path / "metadata.json").write_text("{}")
    log = read_one(tmp_path)
    assert log.history.problems == ("0", "1", "2") and log.history.passed_V.tolist() == [2, 4, 3]


def test_trinitys_database_has_groups_but_no_problems(tmp_path: Path) -> None:
    base = sqlite3.connect(tmp_path / "explorer_output.db")
    base.execute(
        "CREATE TABLE pipeline_input (id INTEGER PRIMARY KEY, timestamp TEXT, task_id TEXT, run_id INTEGER, "
        "msg_id TEXT, model_version INTEGER, reward FLOAT, consumed INTEGER)"
    )
    base.execute("CREATE TABLE pipeline_input_blob (id INTEGER PRIMARY KEY, experience_bytes BLOB)")
    for _, name, i, reward in rows():  # both batches by one version of the policy
        query = "INSERT INTO pipeline_input (task_id, run_id, model_version, reward) VALUES (?, ?, 0, ?)"
        base.execute(query, ("abc".index(name), i, float(reward)))
    base.commit()
    base.close()
    log = read_one(tmp_path)
    assert log.reading.format == "trinity_sqlite" and not log.reading.identified
    assert sorted(log.history.passed_V.tolist()) == [0, 1, 2, 3, 4, 4]
    assert not (tmp_path / "explorer_output.db-wal").exists()


def test_computed_values_of_a_database_are_not_read(tmp_path: Path) -> None:
    base = sqlite3.connect(tmp_path / "explorer_output.db")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i"
    base.execute(f"CREATE VIEW a AS {endless} AS task_id, i AS run_id, i AS model_version, 1 AS reward FROM n")
    base.execute(
        "CREATE TABLE t (run_id INTEGER, model_version INTEGER, reward FLOAT, "
        "id AS (hex(zeroblob(100000000 + run_id))))"
    )
    base.executemany("INSERT INTO t VALUES (?, 0, 1.0)", [(i,) for i in range(3)])
    base.execute("ALTER TABLE t ADD COLUMN task_id TEXT DEFAULT '" + "x" * 1_000_000 + "'")
    base.executemany("INSERT INTO t VALUES (?, 0, ?, 'short')", [(i, 0.0) for i in range(2)])
    base.commit()
    base.close()
    log = read_one(tmp_path)
    assert log.history.num_rollouts == 2
    assert dict(log.reading.dropped) == {"rollout of a task whose name has more than 1,000 characters": 3}


TABLE = [{"problem": f"key-{name}", "step": step, "reward": reward} for step, name, _, reward in rows()]


def write_csv(path: Path) -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, ["problem", "step", "reward"])
        writer.writeheader()
        writer.writerows(TABLE)
    return path


def write_gz(path: Path) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(record) + "\n" for record in TABLE).encode()))
    return path


def write_groups(path: Path) -> Path:
    lines = [
        {"prompt_id": f"key-{name}", "step": step, "rewards": [int(reward) for reward in rewards]}
        for step, groups in STORY.items()
        for name, rewards in groups.items()
    ]
    return write_lines(path, lines)


def write_counts(path: Path) -> Path:
    return write_lines(path, [{"problem": f"key-{name}", "step": step, "k": k, "n": 4} for step, name, k in COUNTED])


def write_steps(path: Path) -> Path:
    """As DeepScaleR and POLARIS do: one line per step, and its number nowhere else."""
    columns = []
    for step in STORY:
        mine = [row for row in TABLE if row["step"] == step]
        columns.append(
            {"index": [r["problem"] for r in mine], "score": [float(str(r["reward"])) for r in mine], "step": step}
        )
    return write_lines(path, columns)


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda path: write_lines(path, TABLE), "log.jsonl"),
        (write_gz, "log.jsonl.gz"),
        (write_csv, "log.csv"),
        (lambda path: write_parquet(path, TABLE), "log.parquet"),
        (write_groups, "groups.jsonl"),
        (write_counts, "counts.jsonl"),
        (write_steps, "steps_of_polaris.jsonl"),
    ],
)
def test_a_table_is_read_in_every_kind_of_file(write: Any, name: str, tmp_path: Path) -> None:
    log = read_one(write(tmp_path / name))
    assert log.reading.format == "table"
    assert counted(log) == COUNTED and log.history.zero_variance_V.sum() == 3


@pytest.mark.parametrize("name", ["groups.jsonl", "groups.csv"])
def test_rows_of_a_table_that_are_groups_stay_apart(name: str, tmp_path: Path) -> None:
    """Two groups of each problem, in a table without steps."""
    outcomes = [(problem, passed) for problem in "abc" for passed in (0, 4)]
    lines = [json.dumps({"problem": problem, "rewards": [bool(passed)] * 4}) for problem, passed in outcomes]
    if name.endswith(".csv"):
        lines = ["problem,k,n", *(f"{problem},{passed},4" for problem, passed in outcomes)]
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    history = read_one(tmp_path / name).history
    assert sorted(history.passed_V.tolist()) == [0, 0, 0, 4, 4, 4] and history.zero_variance_V.all()
    assert history.size_V.tolist() == [4] * 6


def test_a_reward_is_chosen_where_there_are_several_and_refused_where_it_cannot_be(tmp_path: Path) -> None:
    guesses = read_one(LOGS / "trl", reward="format_reward").reading.guesses
    assert any("the reward is the column format_reward" in guess for guess in guesses)
    with pytest.raises(UserError, match=says("--reward", "'nosuch'", "accuracy_reward")):
        read_one(LOGS / "trl", reward="nosuch")
    with pytest.raises(UserError, match=says("--reward", "'score'")):
        read_one(LOGS / "verl", reward="score")
    with pytest.raises(UserError, match=r"--passes-at: .*nan"):
        read_one(LOGS / "trl", passes_at=float("nan"))


def test_prompts_of_a_table_are_hashed(tmp_path: Path) -> None:
    write_lines(tmp_path / "t.jsonl", [{"prompt": "what?", "reward": 1}, {"prompt": "what?", "reward": 0}])
    log = read_one(tmp_path)
    [problem] = log.history.problems
    assert len(problem) == 16 and log.texts[problem] == "what?"
    assert any("no step" in trap for trap in log.reading.traps)


def test_a_format_of_ones_own_is_a_map_from_columns_to_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of docs/audit.md."""
    guide = (REPOSITORY / "docs" / "audit.md").read_text()
    [example] = re.findall(r"```python\n(import msgspec\n.*?)```", guide, re.DOTALL)
    names: dict[str, Any] = {"__name__": __name__}
    exec(example, names)
    monkeypatch.setitem(FORMATS._added, "mine", names["Mine"])
    lines = [{"step": step, "question": PROMPT[name], "verdict": bool(reward)} for step, name, _, reward in rows()]
    log = read_one(write_lines(tmp_path / "mine.jsonl", lines))
    assert log.reading.format == "mine" and counted(log) == COUNTED


def test_a_table_whose_reward_has_a_name_of_its_own_is_read_once_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [
        {"prompt": f"{i}+1=", "step": step, "verdict": float(i > n)}
        for step in (0, 1)
        for i in range(3)
        for n in range(4)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=says("problem", "reward", "--reward NAME")):
        read_logs([path])
    [log] = read_logs([path], Choices(reward="verdict"))
    assert log.reading.format == "table" and len(log.history) == 6
    with pytest.raises(UserError, match=says("log")):
        read_logs([path], Choices(reward="absent"))
