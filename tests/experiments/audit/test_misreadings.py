"""Logs that the audit once read wrongly, each with the right value."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from synthetic_runs import decision
from typer.testing import CliRunner

import halfway
from halfway.curriculum import UserError
from halfway.experiments.audit.auditing import audit
from halfway.experiments.audit.builder import expected_zero_variance
from halfway.experiments.audit.counterfactual import Replayed
from halfway.experiments.audit.formats.base import Choices
from halfway.experiments.audit.history import Log
from halfway.experiments.audit.log_measures import findings
from halfway.experiments.audit.log_reading import read_logs
from halfway.experiments.audit.tables import amount, brief, headline, in_short
from halfway.experiments.cli import app

Rows = Iterable[Mapping[str, Any]]


def write(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path, **choices: Any) -> Log:
    [log] = read_logs([path], Choices(**choices))
    return log


def doubts(log: Log) -> str:
    return " ".join(log.reading.doubts)


def groups(log: Log) -> list[tuple[int, int, int]]:
    """(step, passed, size) of every group."""
    history = log.history
    return list(zip(history.step_V.tolist(), history.passed_V.tolist(), history.size_V.tolist(), strict=True))


def rollouts(rates: Sequence[float], n: int = 8, seed: int = 0, filtered: bool = False) -> Rows:
    """A group of n for each pass rate, mixed ones alone if filtered."""
    generator = np.random.default_rng(seed)
    for i, rate in enumerate(rates):
        rewards = (generator.random(n) < rate).astype(float).tolist()
        if not filtered or 0 < sum(rewards) < n:
            yield from ({"problem": f"p{i}", "step": i // 6, "reward": reward} for reward in rewards)


# Filtering is concluded from the chance of seeing no zero-variance group.


def test_pass_counts_show_whether_zero_variance_groups_are_missing() -> None:
    """For one pass rate the bound is exact: 100 groups of three at 1/2 have 12.5 each of 0 and 3, 37.5 of 1 and 2."""
    counts = np.repeat([1, 2], 100_000).astype(np.int32)
    expected = expected_zero_variance(counts, np.full(200_000, 3, np.int32))
    assert expected == pytest.approx(200_000 / 3, rel=1e-4)
    assert expected_zero_variance(np.ones(10, np.int32), np.full(10, 2, np.int32)) == pytest.approx(10 * np.log(2))
    assert expected_zero_variance(np.full(50, 4, np.int32), np.full(50, 8, np.int32)) == 0.0


def test_honest_logs_without_a_zero_variance_group_are_not_called_filtered(tmp_path: Path) -> None:
    for seed in range(20):
        log = read(write(tmp_path / f"{seed}.jsonl", rollouts([0.5] * 60, seed=seed)))
        assert log.reading.keeps_zero_variance and not log.reading.doubts


def test_a_filtered_log_seems_to_be_one_and_its_tables_stay(tmp_path: Path) -> None:
    rates = np.random.default_rng(0).random(300).tolist()
    path = write(tmp_path / "t.jsonl", rollouts(rates, filtered=True))
    [one] = audit([path]).logs
    assert not one.log.reading.keeps_zero_variance and "seem to have been left out" in doubts(one.log)
    assert "seems to leave" in headline(one) and one.findings.over_time and one.findings.fates.problems > 200
    assert in_short(one) == "" and ("beware", one.log.reading.doubts[0]) in brief(one).rows


def test_rewards_of_many_values_never_count_as_filtered_and_passes_are_reported(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = [
        {"input": f"q{p}", "output": f"{p} {i}", "gts": "1", "step": 1, "acc": p < 20, "score": float(p < 20) + shaped}
        for p in range(40)
        for i, shaped in enumerate(generator.random(8) / 2)
    ]
    [one] = audit([write(tmp_path / "1.jsonl", rows)]).logs
    assert one.log.reading.keeps_zero_variance and not one.log.reading.doubts and one.findings.zero_variance == 0
    assert (one.findings.none_failed, one.findings.none_passed) == (0.5, 0.5)
    assert "50.0 % of the groups all failed and 50.0 % all passed" in headline(one)


# TRL's rewards are checked against its advantages.


def trl(folder: Path, rewards: Mapping[str, Sequence[float]], weights: Mapping[str, float], n: int = 4) -> Path:
    """Three of TRL's tables, with the advantages that these weights give, and columns of these rewards."""
    folder.mkdir(parents=True)
    total = sum(np.asarray(rewards[name]) * weight for name, weight in weights.items()).reshape(-1, n)  # type: ignore[union-attr]
    apart = total - total.mean(1, keepdims=True)
    advantages = (apart / (total.std(1, ddof=1, keepdims=True) + 1e-4)).ravel()
    for step in (1, 2, 3):
        rows = [
            {"step": step, "prompt": f"q{i // n}", "completion": f"{step} {i}"}
            | {name: values[i] for name, values in rewards.items()}
            | {"advantage": float(advantages[i])}
            for i in range(len(advantages))
        ]
        lines = write(folder / "rows.tmp", rows)
        target = folder / f"completions_{step:05d}.parquet"
        duckdb.sql(f"COPY (FROM read_ndjson('{lines}')) TO '{target}' (FORMAT parquet)")
        lines.unlink()
    return folder


CORRECT = [0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0]
LENGTH = [0.1, 0.2, 0.3, 0.4, 0.5, 0.1, 0.3, 0.3, 0.2, 0.9, 0.1, 0.4]
ONES = [1.0] * 12


@pytest.mark.parametrize(
    ("rewards", "weights", "zero_variance", "said"),
    [
        ({"correct": CORRECT, "format_reward": ONES}, {"correct": 1, "format_reward": 1}, 1, "correct, format_reward"),
        ({"correct": CORRECT, "confidence": LENGTH}, {"correct": 1}, 1, "the column correct"),
        ({"correct": CORRECT, "brevity": LENGTH}, {"correct": 0.5, "brevity": 1}, 0, "with weights 0.5, 1"),
        ({"correct": CORRECT, "brevity": LENGTH}, {"correct": 1, "brevity": -0.2}, 0, "with weights 1, -0.2"),
    ],
)
def test_trls_reward_is_the_one_that_explains_its_advantages(
    rewards: Mapping[str, Sequence[float]], weights: Mapping[str, float], zero_variance: int, said: str, tmp_path: Path
) -> None:
    log = read(trl(tmp_path / "completions", rewards, weights))
    assert log.history.zero_variance_V.sum() == 3 * zero_variance and not log.reading.doubts
    assert any(said in guess for guess in log.reading.guesses)


def test_a_reward_that_the_advantages_contradict_is_the_finding(tmp_path: Path) -> None:
    path = trl(tmp_path / "completions", {"correct": CORRECT, "format_reward": ONES}, {"correct": 1})
    log = read(path, reward="format_reward")
    assert "advantages contradict this reading in 6 of 9 groups" in doubts(log)
    assert not read(path, reward="correct").reading.doubts


def test_several_rewards_are_chosen_with_weights(tmp_path: Path) -> None:
    path = trl(tmp_path / "completions", {"correct": CORRECT, "brevity": LENGTH}, {"correct": 1})
    log = read(path, reward="correct=1,brevity=0.5", passes_at=1.0)
    assert log.history.passed_V.tolist()[:3] == [2, 4, 1] and log.history.zero_variance_V.sum() == 0
    rows = [{"problem": "p", "step": 0, "right": i % 2, "short": 1 - i % 2} for i in range(4)]
    table = write(tmp_path / "t.jsonl", rows)
    assert read(table, reward="right=1,short=1").history.zero_variance_V.tolist() == [True]
    assert read(table, reward="right=1,short=0.5").history.zero_variance_V.tolist() == [False]
    for reward in ("right=1,tall=2", "right=x,short"):
        with pytest.raises(UserError, match="--reward"):
            read(table, reward=reward)


def test_a_prompt_that_occurs_twice_in_a_batch_has_two_groups(tmp_path: Path) -> None:
    folder = tmp_path / "completions"
    trl(folder, {"correct": CORRECT}, {"correct": 1})
    for path in folder.iterdir():
        query = f"SELECT * REPLACE (CASE prompt WHEN 'q1' THEN 'q0' ELSE prompt END AS prompt) FROM '{path}'"
        duckdb.sql(f"COPY ({query}) TO '{path}.new' (FORMAT parquet)")
        Path(f"{path}.new").replace(path)
    assert groups(read(folder))[:3] == [(1, 2, 4), (1, 4, 4), (1, 1, 4)]


# Steps, problems and rows of tables.


@pytest.mark.parametrize("names", [("step_1", "step_2"), ("1", "2"), ("rollouts-7", "rollouts-9"), ("a", "b")])
def test_one_file_per_step_without_a_step_column(names: tuple[str, str], tmp_path: Path) -> None:
    for k, name in zip((0, 4), names, strict=True):
        write(tmp_path / f"{name}.jsonl", [{"problem": p, "reward": int(k > 0)} for p in "ab" for _ in range(4)])
    log = read(tmp_path)
    assert [(k, n) for _, k, n in groups(log)] == [(0, 4), (0, 4), (4, 4), (4, 4)]
    assert log.history.zero_variance_V.all() and len(set(log.history.step_V.tolist())) == 2


def test_parts_of_one_table_are_one_step(tmp_path: Path) -> None:
    for part in (0, 1):
        rows = [{"problem": "p", "reward": i % 2} for i in range(4)]
        write(tmp_path / f"train-0000{part}-of-00002.jsonl", rows)
    assert groups(read(tmp_path)) == [(0, 4, 8)]


@pytest.mark.parametrize("name", ["id", "uid", "index"])
def test_ids_of_rows_do_not_hide_the_groups(name: str, tmp_path: Path) -> None:
    rows = [
        {name: f"r{s}{p}{i}", "step": s, "prompt": f"q{p}", "response": f"{i}", "reward": int(i < p)}
        for s, p, i in itertools.product(range(2), range(5), range(4))
    ]
    log = read(write(tmp_path / "t.jsonl", rows))
    assert groups(log) == [(s, p, 4) for s in range(2) for p in range(5)] and len(log.history.problems) == 5
    assert not log.reading.doubts


def test_one_prompt_under_an_id_for_each_visit_is_one_problem(tmp_path: Path) -> None:
    rows = [
        {"prompt_id": f"{s}-{p}", "step": s, "prompt": f"q{p}", "reward": i % 2}
        for s, p, i in itertools.product(range(3), range(4), range(4))
    ]
    log = read(write(tmp_path / "t.jsonl", rows))
    assert len(log.history.problems) == 4 and len(log.history) == 12
    assert len(read(tmp_path / "t.jsonl", problem="prompt_id").history.problems) == 12


def test_the_problem_column_is_chosen(tmp_path: Path) -> None:
    rows = [{"problem": "all", "row": p, "step": 0, "reward": i % 2} for p in range(3) for i in range(4)]
    assert len(read(write(tmp_path / "t.jsonl", rows), problem="row").history) == 3
    with pytest.raises(UserError, match=r"--problem"):
        read(tmp_path / "t.jsonl", problem="nosuch")


def test_groups_of_one_are_the_finding(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [{"problem": f"p{i}", "step": 0, "reward": i % 2} for i in range(128)])
    [one] = audit([path]).logs
    assert "every group has one rollout" in doubts(one.log)
    assert "cannot say how many groups had zero variance" in headline(one) and "%" not in headline(one)


def test_rollouts_that_ended_in_an_error_are_lost_not_failed(tmp_path: Path) -> None:
    rows = [
        {"example_id": 0, "reward": reward, "error": error}
        for reward, error in [
            (1.0, None),
            (0.0, ""),
            (0.0, False),
            (0.0, "refused"),
            (0.0, {"kind": "timeout"}),
            (0.0, True),
        ]
    ]
    log = read(write(tmp_path / "results.jsonl", rows))
    assert groups(log) == [(0, 1, 3)] and log.reading.dropped == {"rollout that ended in an error": 3}
    assert "3 of 6 rollouts have no verdict" in doubts(log)


def test_prime_rls_files_of_steps_are_one_run_without_evaluations(tmp_path: Path) -> None:
    for step in range(3):
        for name, k in (("train", step), ("eval", 4)):
            rows = [{"example_id": e, "prompt": f"q{e}", "reward": float(i < k)} for e in range(2) for i in range(4)]
            write(tmp_path / "rollouts" / f"step_{step}" / f"{name}_rollouts.jsonl", rows)
    log = read(tmp_path)
    assert groups(log) == [(step, step, 4) for step in range(3) for _ in range(2)]
    assert log.reading.dropped == {"file of an evaluation": 3}


def test_rows_of_an_evaluation_are_left_out_beside_those_of_the_training(tmp_path: Path) -> None:
    rows = [{"problem": "p", "step": 0, "split": s, "reward": i % 2} for s in ("train", "val") for i in range(4)]
    log = read(write(tmp_path / "t.jsonl", rows))
    assert groups(log) == [(0, 2, 4)] and log.reading.dropped == {"row of an evaluation": 4}
    assert groups(read(write(tmp_path / "t.jsonl", rows[4:]))) == [(0, 2, 4)]


@pytest.mark.parametrize(("flag", "training"), [("is_eval", False), ("validate", False), ("is_train", True)])
def test_a_flag_may_tell_the_rows_of_an_evaluation(flag: str, training: bool, tmp_path: Path) -> None:
    rows = [{"problem": "p", "step": 0, flag: mark, "reward": i % 2} for mark in (True, False) for i in range(4)]
    log = read(write(tmp_path / "t.jsonl", rows))
    assert groups(log) == [(0, 2, 4)] and log.reading.dropped == {"row of an evaluation": 4}
    kept = [row for row in rows if row[flag] == training]
    assert groups(read(write(tmp_path / "t.jsonl", kept))) == [(0, 2, 4)]


@pytest.mark.parametrize("name", ["val", "eval_rollouts", "Validation"])
def test_a_folder_of_evaluations_is_left_out_beside_that_of_the_training(name: str, tmp_path: Path) -> None:
    """A given folder often has both of verl's, rollout_data_dir and validation_data_dir."""
    for folder, k in (("rollouts", 1), (name, 4)):
        rows = [{"problem": "p", "step": 0, "reward": float(i < k)} for i in range(4)]
        write(tmp_path / folder / "0.jsonl", rows)
    log = read(tmp_path)
    assert groups(log) == [(0, 1, 4)] and log.reading.dropped == {"file of an evaluation": 1}
    assert groups(read(tmp_path / name)) == [(0, 4, 4)]


def test_a_reward_in_a_list_of_its_own_is_one_rollout(tmp_path: Path) -> None:
    prompt = [{"role": "user", "content": "q"}]
    rows = [{"prompt": prompt, "step": 0, "response": f"{i}", "reward": [float(i % 2)]} for i in range(4)]
    log = read(write(tmp_path / "t.jsonl", rows))
    assert groups(log) == [(0, 2, 4)] and not log.reading.doubts


def test_groups_that_lack_rows_are_counted(tmp_path: Path) -> None:
    rows = [{"problem": f"p{p}", "step": 0, "reward": i % 2} for p in range(6) for i in range(3 if p < 2 else 4)]
    [trap] = read(write(tmp_path / "t.jsonl", rows)).reading.traps
    assert trap.startswith("2 of 6 groups have fewer rollouts than the largest, of 4: rows were lost")


def test_a_folder_of_tables_without_a_known_reward_names_their_columns(tmp_path: Path) -> None:
    rows = [{"prompt": "q", "correctness_reward": 1.0, "format_reward": 0.5}]
    path = write(tmp_path / "log" / "t.jsonl", rows).parent
    with pytest.raises(UserError, match=r"t\.jsonl, it has correctness_reward, format_reward, prompt, .* --reward"):
        read(path)
    assert groups(read(path, reward="correctness_reward,format_reward=0.5")) == [(0, 1, 1)]


@pytest.mark.parametrize("empty", [[], "", [{"role": "assistant", "content": ""}]])
def test_empty_responses_are_the_finding(empty: object, tmp_path: Path) -> None:
    rows = [{"id": p, "prompt": f"q{p}", "completion": empty, "reward": 0.0} for p in range(30) for _ in range(3)]
    assert "every response is empty" in doubts(read(write(tmp_path / "t.jsonl", rows)))


def test_groups_that_repeat_one_response_are_the_finding(tmp_path: Path) -> None:
    rows = [{"id": p, "response": f"{p}", "reward": p % 2, "step": 0} for p in range(10) for _ in range(4)]
    assert "10 of 10 groups repeat one response" in doubts(read(write(tmp_path / "t.jsonl", rows)))


def test_problems_without_identity_are_not_compared_between_logs(tmp_path: Path) -> None:
    for run, rate in (("a", 0), ("b", 1)):
        rows = [
            {"iteration": 0, "group_idx": g, "traj_idx": i, "total_reward": float(g % 2 == rate or g == 9)}
            for g in range(10)
            for i in range(16)
        ]
        write(tmp_path / run / "train_rollout_summaries.jsonl", rows)
    assert audit([tmp_path], replayed=()).suspects == ()


@pytest.mark.parametrize("name", ["accuracy", "reward", "score"])
def test_counts_win_over_rates(name: str, tmp_path: Path) -> None:
    rows = [{"problem": f"p{k}", "step": 0, "k": k, "n": 8, name: k / 8} for k in range(9)]
    assert groups(read(write(tmp_path / "t.jsonl", rows))) == [(0, k, 8) for k in range(9)]


def test_verdicts_of_single_rollouts_win_over_counts(tmp_path: Path) -> None:
    rows = [{"problem": "p", "step": 0, "k": 3, "n": 4, "reward": float(i < 3)} for i in range(4)]
    assert groups(read(write(tmp_path / "t.jsonl", rows))) == [(0, 3, 4)]


@pytest.mark.parametrize("reward", [60.1, 0.7, 1e6 + 0.1, -0.3])
def test_a_reward_at_the_threshold_passes(reward: float, tmp_path: Path) -> None:
    rows = [{"problem": "a", "step": 0, "reward": reward - i % 2} for i in range(8)]
    assert groups(read(write(tmp_path / "t.jsonl", rows), passes_at=reward)) == [(0, 4, 8)]


def test_steps_are_read_from_texts_and_rows_without_one_are_counted(tmp_path: Path) -> None:
    rows = [{"problem": "p", "step": f"step {s}", "reward": i % 2} for s in range(3) for i in range(4)]
    log = read(write(tmp_path / "t.jsonl", [*rows, {"problem": "p", "step": None, "reward": 1}]))
    assert groups(log) == [(s, 2, 4) for s in range(3)]
    assert log.reading.dropped == {"row whose step is not a number": 1}
    log = read(write(tmp_path / "t.jsonl", [{**row, "step": "warm-up"} for row in rows]))
    assert len(log.history) == 1 and any("has no numbers" in trap for trap in log.reading.traps)


def test_rows_that_are_groups_keep_tokens_and_category(tmp_path: Path) -> None:
    rows = [{"problem": "p", "step": 0, "rewards": [1, 0], "tokens": [3, 4], "category": "zählen"}]
    log = read(write(tmp_path / "t.jsonl", rows))
    assert log.history.tokens_V.tolist() == [7] and log.history.category_P == ("zählen",)
    assert read(write(tmp_path / "t.jsonl", [{**rows[0], "tokens": 7}])).history.tokens_V.tolist() == [7]


def test_a_conversation_with_a_list_of_rewards_is_one_group(tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": "q"}], "step": 0, "rewards": [1, 0, 0, 1]}]
    assert groups(read(write(tmp_path / "t.jsonl", rows))) == [(0, 2, 4)]


def test_json_arrays_and_tables_with_semicolons_are_read(tmp_path: Path) -> None:
    rows = [{"problem": "p", "step": 0, "reward": i % 2} for i in range(4)]
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=1))
    (tmp_path / "b.csv").write_text("problem;step;reward\n" + "".join(f"p;0;{i % 2}\n" for i in range(4)))
    for name in ("a.json", "b.csv"):
        assert groups(read(tmp_path / name)) == [(0, 2, 4)]


def test_an_unread_file_in_a_folder_is_counted_with_its_reason(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl", [{"problem": "p", "step": 0, "reward": i % 2} for i in range(4)])
    (tmp_path / "more.jsonl").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert any("Git LFS" in reason for reason in read(tmp_path).reading.dropped)


def test_episodes_without_keys_are_identified_by_prompt_and_broken_ones_are_lost(tmp_path: Path) -> None:
    def episode(prompt: str, score: float, ok: bool = True) -> Mapping[str, Any]:
        return {"task": {"data": {"prompt": prompt}}, "ok": ok, "traces": [{"rewards": {"a": {"score": score}}}]}

    rows = [episode(f"q{p}", i % 2) for p in range(3) for i in range(4)]
    log = read(write(tmp_path / "traces.jsonl", [*rows, episode("q0", 0.0, ok=False)]))
    assert len(log.history.problems) == 3 and groups(log) == [(0, 2, 4)] * 3
    assert log.reading.dropped == {"rollout that ended in an error": 1}


def test_earlier_outputs_of_a_rollout_do_not_count(tmp_path: Path) -> None:
    """verl's V1 writes each part of a context that was compacted; the last one has the score."""
    outputs = {"a": [(0, 0.0), (1, 0.0), (2, 1.0)], "b": [(0, 0.0)]}
    rows = [
        {"input": "q", "output": f"{name}{i}", "gts": "1", "score": score, "step": 1, "uid": f"x_{name}_{i}"}
        for name, parts in outputs.items()
        for i, score in parts
    ]
    log = read(write(tmp_path / "1.jsonl", rows))
    assert groups(log) == [(1, 1, 2)] and log.reading.dropped == {"earlier output of a rollout": 2}


def test_keys_of_groups_that_two_problems_share_do_not_join_them(tmp_path: Path) -> None:
    rows = [{"problem": p, "group": 0, "step": 0, "reward": i % 2} for p in "ab" for i in range(4)]
    assert groups(read(write(tmp_path / "t.jsonl", rows))) == [(0, 2, 4)] * 2
    rows = [{"id": f"{g}{i}", "uid": g, "step": 0, "reward": i % 2} for g in "ab" for i in range(4)]
    assert groups(read(write(tmp_path / "t.jsonl", rows))) == [(0, 2, 4)] * 2


def test_fractions_of_an_epoch_are_steps(tmp_path: Path) -> None:
    rows = [{"problem": "p", "epoch": s / 100, "reward": i % 2} for s in range(3) for i in range(4)]
    assert groups(read(write(tmp_path / "t.jsonl", rows))) == [(0, 2, 4), (10, 2, 4), (20, 2, 4)]


def test_counts_that_cannot_be_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [{"problem": "p", "step": 0, "k": k, "n": 8} for k in (9, -1, 3)]
    log = read(write(tmp_path / "t.jsonl", rows))
    assert groups(log) == [(0, 3, 8)] and sum(log.reading.dropped.values()) == 2


def test_files_with_a_column_of_steps_need_no_names(tmp_path: Path) -> None:
    for step, name in enumerate("ab"):
        write(tmp_path / f"{name}.jsonl", [{"problem": "p", "step": step, "reward": i % 2} for i in range(4)])
    log = read(tmp_path)
    assert groups(log) == [(0, 2, 4), (1, 2, 4)] and not log.reading.traps


# What a reader is told.


def test_hours_keep_their_digits() -> None:
    assert [amount(hours) for hours in (240.3, 1240, 24.4, 9.5, 0.347)] == ["240", "1,240", "24", "9.5", "0.35"]


def test_one_sentence_says_what_was_lost_and_what_would_have_been_skipped(tmp_path: Path) -> None:
    rows = [
        {"problem": p, "step": s, "reward": int(p == "b" and i % 2)} for s in range(30) for p in "ab" for i in range(8)
    ]
    [one] = audit([write(tmp_path / "t.jsonl", rows)], hours=340).logs
    [greso] = [each for each in one.replays if isinstance(each, Replayed) and each.name == "greso"]
    assert findings(one.log).zero_variance == 0.5
    text = in_short(one)
    low, high = (100 * share for share in greso.forecast)
    skipped = f"GRESO would have skipped {low:.0f} to {high:.0f} % of the visits"
    assert text == f"170 of 340 hours bought no gradient; {skipped}, all of them rightly."


def test_files_are_written_before_anything_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise BrokenPipeError

    log = write(tmp_path / "t.jsonl", [{"problem": "p", "step": 0, "reward": i % 2} for i in range(4)])
    monkeypatch.setattr("halfway.experiments.audit.tables.show", gone)
    CliRunner().invoke(app, ["audit", str(log), "--write", str(tmp_path / "audit.html")])
    assert (tmp_path / "audit.html").is_file()


def test_python_has_the_options_of_the_command_line(tmp_path: Path) -> None:
    rows = [{"row": p, "step": 0, "right": float(i < p)} for p in range(5) for i in range(4)]
    path = write(tmp_path / "t.jsonl", rows)
    found = halfway.audit(path, problem="row", reward="right", passes_at=0.5, format="table", replayed="greso")
    assert found.groups.aggregate("sum(k)::INT").fetchall() == [(10,)]
    for wrong in (lambda: halfway.audit(), lambda: halfway.audit(path, hours=-1), lambda: halfway.audit(path, hours=0)):
        with pytest.raises(UserError, match=r"logs|--hours"):
            wrong()


def test_a_run_hosted_elsewhere_is_advised_for_its_trainer(tmp_path: Path) -> None:
    run = write(tmp_path / "run" / "decisions.jsonl", [decision(k=0)])
    write(tmp_path / "run" / "steps.jsonl", [{"step": 1, "seconds": 1.0}])
    assert "in Halfway" in read(run).reading.next_step
    (tmp_path / "run" / "hosted.json").write_text(json.dumps({"host": "TRL 1.16.0", "seed": 0}))
    assert read(run).reading.next_step.startswith("in TRL 1.16.0: ")
    (tmp_path / "run" / "hosted.json").write_text('{"host": ')
    assert "in Halfway" in read(run).reading.next_step


def test_a_chain_that_has_greso_is_not_advised_to_add_it(tmp_path: Path) -> None:
    acted = {"decisions": [["uniform", "drawn"], ["greso", "kept"]]}
    run = write(tmp_path / "run" / "decisions.jsonl", [decision(k=0) | acted])
    assert read(run).reading.next_step == "in Halfway: the chain has `greso`; try another row of `halfway list`"
