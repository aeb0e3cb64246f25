"""Public reports about rollout logs, each as a small log with the right value; docs/reports_tried.md names them all."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from halfway.curriculum import UserError
from halfway.experiments.audit.auditing import Audited, audit
from halfway.experiments.audit.tables import headline

Row = Mapping[str, Any]


def write(path: Path, rows: Iterable[Row]) -> Path:
    """Rows as JSON Lines, or as Parquet if the path ends in .parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.with_suffix(".jsonl")
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if path != lines:
        duckdb.sql(f"COPY (FROM read_ndjson('{lines}')) TO '{path}' (FORMAT parquet)")
        lines.unlink()
    return path


def audited(path: Path) -> Audited:
    [one] = audit([path], replayed=()).logs
    return one


def counts(one: Audited) -> list[tuple[int, int]]:
    """(passed, size) of every group."""
    history = one.log.history
    return list(zip(history.passed_V.tolist(), history.size_V.tolist(), strict=True))


def doubts(one: Audited) -> str:
    return " ".join(one.log.reading.doubts)


def verl(step: int, problem: int, score: float, i: int, **more: object) -> Row:
    return {"input": f"q{problem}", "output": f"{step} {i}", "gts": "1", "score": score, "step": step, **more}


def test_nemo_rl_2431_a_shaped_reward_has_variance_where_no_rollout_is_right(tmp_path: Path) -> None:
    """Wrong answers differ by a penalty for length: no zero variance, and yet all failed."""
    rows = [verl(1, p, -1.0 - i / 10, i, acc=False) for p in range(24) for i in range(8)]
    one = audited(write(tmp_path / "1.jsonl", rows))
    assert (one.findings.zero_variance, one.findings.none_passed) == (0.0, 1.0)
    assert one.log.reading.keeps_zero_variance and "100.0 % of the groups all failed" in headline(one)


def test_verl_recipe_125_an_unfiltered_log_of_shaped_rewards_is_not_called_filtered(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = [
        {"problem_id": f"t{p}", "step": 0, "reward": float(generator.random())} for p in range(40) for _ in range(4)
    ]
    one = audited(write(tmp_path / "t.jsonl", rows))
    assert one.log.reading.keeps_zero_variance and not one.log.reading.doubts and one.findings.zero_variance == 0


def test_verl_4786_equal_rewards_of_one_half_have_zero_variance(tmp_path: Path) -> None:
    one = audited(write(tmp_path / "1.jsonl", [verl(1, p, p / 4, i) for p in range(5) for i in range(4)]))
    assert one.findings.zero_variance == 1.0


def test_nemo_rl_4158_equal_rewards_that_are_no_binary_fractions_have_zero_variance(tmp_path: Path) -> None:
    scores = [0.95, 0.1 + 0.2, 0.3, 0.95000000001]
    rows = [verl(1, p, score, i) for p, score in enumerate(scores[:3]) for i in range(7)]
    rows += [verl(1, 0, scores[3], 7), verl(1, 1, 0.3, 7), verl(1, 2, 0.3, 7)]
    assert audited(write(tmp_path / "1.jsonl", rows)).findings.zero_variance == 1.0


def test_verl_4232_verdicts_in_another_order_than_scores_are_noticed(tmp_path: Path) -> None:
    scores = np.random.default_rng(0).integers(0, 2, 64).tolist()
    for apart, said in ((0, False), (5, True)):
        verdicts = scores[apart:] + scores[:apart]
        rows = [
            verl(1, i // 8, float(score), i, acc=bool(acc))
            for i, (score, acc) in enumerate(zip(scores, verdicts, strict=True))
        ]
        assert ("verdicts contradict its rewards" in doubts(audited(write(tmp_path / "1.jsonl", rows)))) == said


def test_verl_6024_a_rollout_counts_once_with_its_last_score(tmp_path: Path) -> None:
    parts = {"a": [0.0, 0.0, 1.0], "b": [0.0], "c": [0.0, 1.0]}
    rows = [
        verl(1, 0, score, i, uid=f"u_{session}_{i}")
        for session, scores in parts.items()
        for i, score in enumerate(scores)
    ]
    assert counts(audited(write(tmp_path / "1.jsonl", rows))) == [(2, 3)]


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("apart", [False, True])
def test_miles_3141_rows_that_every_rank_wrote_count_once(copies: int, apart: bool, tmp_path: Path) -> None:
    """A group of 4 in which one passes is no group of 8 in which two pass."""
    rows = [verl(1, p, float(i == 0), i) for p in range(12) for i in range(4)]
    rows = rows * copies if apart else [row for row in rows for _ in range(copies)]
    one = audited(write(tmp_path / "1.jsonl", rows))
    assert counts(one) == [(1, 4)] * 12
    assert (f"every rollout {copies} times" in doubts(one)) == (copies > 1)
    assert one.log.reading.dropped == ({"row that repeats another": 48 * (copies - 1)} if copies > 1 else {})


def test_equal_responses_are_no_copies(tmp_path: Path) -> None:
    """Of a policy that always answers alike, or of one with two answers, drawn four and four times in one group."""
    rows = [verl(1, p, 1.0, 0) for p in range(12) for _ in range(4)]
    assert counts(audited(write(tmp_path / "1.jsonl", rows))) == [(4, 4)] * 12
    generator = np.random.default_rng(0)
    drawn = [verl(1, p, float(generator.integers(2)), 0) for p in range(64) for _ in range(8)]
    assert counts(audited(write(tmp_path / "1.jsonl", drawn)))[0][1] == 8


def trl(step: int, i: int, advantage: float, **rewards: float) -> Row:
    return {"step": step, "prompt": f"q{i // 4}", "completion": f"{step} {i}", **rewards, "advantage": advantage}


def test_trl_5352_weights_of_rewards_are_those_of_the_advantages(tmp_path: Path) -> None:
    """With weights .7 and -.7 the two rewards cancel out; the plain sum would call every group mixed."""
    rows = [trl(1, i, 0.0, first=float(i % 2), second=float(i % 2)) for i in range(8)]
    rows += [trl(1, i, (-1.0) ** i, first=float(i % 2 == 0), second=0.0) for i in range(8, 16)]
    one = audited(write(tmp_path / "completions_00001.parquet", rows))
    assert one.findings.zero_variance == 0.5 and not one.log.reading.doubts
    assert any("weights 1, -1" in guess for guess in one.log.reading.guesses)


def test_trl_5233_a_number_that_a_reward_function_logs_beside_is_no_reward(tmp_path: Path) -> None:
    right = [0, 1, 0, 1, 1, 1, 1, 1]
    rows = [trl(1, i, (2.0 * k - 1) * (i < 4), accuracy=float(k), confidence=0.1 * i) for i, k in enumerate(right)]
    one = audited(write(tmp_path / "completions_00001.parquet", rows))
    assert one.findings.zero_variance == 0.5 and any(
        "the column accuracy" in guess for guess in one.log.reading.guesses
    )


def test_trl_4086_a_generation_that_is_logged_at_several_steps_counts_once(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        batch = (step - 1) // 2
        rows = [{**trl(step, i, 0.0, reward=float(i % 2)), "completion": f"{batch} {i}"} for i in range(8)]
        write(tmp_path / f"completions_{step:05d}.parquet", rows)
    assert audited(tmp_path).log.history.num_rollouts == 16


def test_trl_3452_a_reward_of_a_constant_part_and_a_real_one_has_the_real_ones_variance(tmp_path: Path) -> None:
    rows = [trl(1, i, (-1.0) ** (i + 1), correctness=float(i % 2), format_reward=1.0) for i in range(32)]
    assert audited(write(tmp_path / "completions_00001.parquet", rows)).findings.zero_variance == 0.0


def verifiers(example: int, reward: float, **more: object) -> Row:
    asked = [{"role": "user", "content": f"What is {example}+{example}?"}]
    return {"example_id": example, "prompt": asked, "completion": [{"role": "assistant", "content": f"{reward}"}],
            "reward": reward, **more}  # fmt: skip


@pytest.mark.parametrize("error", ["ModelError('refused')", {"type": "timeout"}])
def test_nemo_rl_2207_a_judge_that_failed_is_no_failure_of_the_policy(error: object, tmp_path: Path) -> None:
    """As verifiers' results.jsonl says it; prime-rl#1416 masks such rollouts too."""
    rows = [verifiers(e, float(i < 2), error=error if i == 3 else None) for e in range(6) for i in range(4)]
    one = audited(write(tmp_path / "results.jsonl", rows))
    assert counts(one) == [(2, 3)] * 6 and one.log.reading.dropped == {"rollout that ended in an error": 6}
    assert "6 of 24 rollouts have no verdict" in doubts(one)


def test_verifiers_1939_an_episode_that_failed_is_lost_though_a_part_was_scored(tmp_path: Path) -> None:
    rows = [
        {"task": {"key": "t"}, "ok": ok, "traces": [{"rewards": {"r": {"score": score}}}]}
        for ok, score in [(True, 1.0), (True, 0.0), (False, 0.0)]
    ]
    assert counts(audited(write(tmp_path / "traces.jsonl", rows))) == [(1, 2)]


def test_verifiers_459_ids_that_count_rows_do_not_hide_the_groups(tmp_path: Path) -> None:
    rows = [{**verifiers(i % 5, float(i % 2)), "id": i} for i in range(20)]
    rows = [{name: value for name, value in row.items() if name != "example_id"} for row in rows]
    assert counts(audited(write(tmp_path / "results.jsonl", rows))) == [(2, 4)] * 5


def test_prime_758_groups_need_not_have_one_size(tmp_path: Path) -> None:
    rows = [verifiers(e, float(i == 0)) for e, n in enumerate((4, 4, 2)) for i in range(n)]
    assert counts(audited(write(tmp_path / "results.jsonl", rows))) == [(1, 4), (1, 4), (1, 2)]


def test_prime_rl_of_spring_2026_is_one_run_without_its_evaluations(tmp_path: Path) -> None:
    for step in range(4):
        folder = tmp_path / "rollouts" / f"step_{step}"
        write(folder / "train_rollouts.jsonl", [verifiers(e, float(i < step)) for e in range(4) for i in range(4)])
        write(folder / "eval_rollouts.jsonl", [verifiers(e, 1.0) for e in range(4) for _ in range(4)])
    one = audited(tmp_path)
    assert one.findings.steps == 4 and counts(one) == [(step, 4) for step in range(4) for _ in range(4)]


def test_a_server_that_answers_nothing_is_the_finding(tmp_path: Path) -> None:
    rows = [{**verifiers(e, 0.0), "completion": []} for e in range(30) for _ in range(3)]
    assert "every response is empty" in doubts(audited(write(tmp_path / "results.jsonl", rows)))


def tinker(iteration: int, group: int, i: int, reward: float) -> Row:
    return {"iteration": iteration, "group_idx": group, "traj_idx": i, "total_reward": reward, "split": "train"}


def test_tinker_cookbook_155_a_filter_that_does_nothing_shows_in_the_log(tmp_path: Path) -> None:
    rows = [tinker(t, g, i, float(g == 0 and i % 2)) for t in range(8) for g in range(4) for i in range(4)]
    one = audited(write(tmp_path / "train_rollout_summaries.jsonl", rows))
    assert one.log.reading.keeps_zero_variance and one.findings.zero_variance == 0.75


def test_prime_rl_2192_a_filtered_log_seems_to_be_one(tmp_path: Path) -> None:
    """Of groups at uniform pass rates, those without advantage are missing."""
    generator = np.random.default_rng(0)
    passed = [k for rate in generator.random(200) if 0 < (k := int(generator.binomial(8, rate))) < 8]
    rows = [{"problem": f"p{p}", "step": 0, "reward": int(i < k)} for p, k in enumerate(passed) for i in range(8)]
    one = audited(write(tmp_path / "t.jsonl", rows))
    assert not one.log.reading.keeps_zero_variance and "seems to leave zero-variance groups out" in headline(one)


def test_open_instruct_1406_advantages_confirm_the_rewards_or_contradict_them(tmp_path: Path) -> None:
    def row(i: int, reward: float, advantage: float) -> Row:
        return {"step": 1, "prompt_idx": i // 4, "prompt_tokens": [i // 4], "response_tokens": [i], "reward": reward,
                "advantage": advantage, "dataset": ["math"], "ground_truth": ["1"]}  # fmt: skip

    sound = [row(i, 10.0 * (i % 2), (-1.0) ** i) for i in range(16)]
    assert not audited(write(tmp_path / "a_rollouts_000000.jsonl", sound)).log.reading.doubts
    mixed_up = [row(i, 10.0, (-1.0) ** i) for i in range(16)]
    one = audited(write(tmp_path / "a_rollouts_000000.jsonl", mixed_up))
    assert "advantages contradict this reading in 4 of 4 groups" in doubts(one)


def test_a_table_by_column_has_its_steps(tmp_path: Path) -> None:
    """As pandas writes with orient="list": one object with a list a column."""
    rows = [(step, f"q{p}", float(i <= step)) for step in range(3) for p in range(2) for i in range(4)]
    columns = dict(zip(("step", "prompt", "reward"), map(list, zip(*rows, strict=True)), strict=True))
    (tmp_path / "log.json").write_text(json.dumps(columns))
    one = audited(tmp_path / "log.json")
    assert one.log.history.step_V.tolist() == [0, 0, 1, 1, 2, 2]
    assert counts(one) == [(1, 4), (1, 4), (2, 4), (2, 4), (3, 4), (3, 4)]


def test_rewards_may_be_words_and_rows_without_a_problem_are_counted(tmp_path: Path) -> None:
    rows = [{"step": 0, "prompt": f"q{p}", "reward": word} for p in range(2) for word in ("pass", "FAIL", "passed")]
    one = audited(write(tmp_path / "log.jsonl", [*rows, {"step": 0, "prompt": None, "reward": "pass"}]))
    assert counts(one) == [(2, 3), (2, 3)]
    assert one.log.reading.dropped == {"row without a problem": 1}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"uid": "a", "reward": 1.0}, "name their columns with --problem NAME and --reward NAME"),
        ({"prompt": "q", "rewards": {"format": 1.0}}, "holds objects there; make columns of their parts"),
    ],
)
def test_a_table_that_cannot_be_read_says_what_to_do(row: Row, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        audit([write(tmp_path / "log.jsonl", [row] * 8)], replayed=())


@pytest.mark.parametrize("reward", ["reward", "accuracy_reward"])
def test_trl_6568_completions_are_tables_of_weights_and_biases(reward: str, tmp_path: Path) -> None:
    """One table in JSON per step. A reward function's name is a column, and the advantages confirm it."""
    names = ["step", "prompt", "completion", reward, "advantage"]
    for step in range(3):
        rows = [
            [step, f"q{p}", f"c{step}{p}{i}", float(i <= step), 1.0 if i <= step else -1.0]
            for p in range(2)
            for i in range(4)
        ]
        table = {"columns": names, "data": rows, "ncols": len(names), "nrows": len(rows)}
        (tmp_path / f"completions_{step}_3f2a1b.table.json").write_text(json.dumps(table))
    assert counts(audited(tmp_path)) == [(1, 4), (1, 4), (2, 4), (2, 4), (3, 4), (3, 4)]


def test_trl_5126_rewards_that_are_nan_are_not_failures(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    line = '{{"step": 0, "prompt": "q{}", "reward": {}}}\n'
    path.write_text("".join(line.format(p, "NaN" if i > 5 else float(i % 2)) for p in range(4) for i in range(8)))
    one = audited(path)
    assert counts(one) == [(3, 6)] * 4
    assert one.log.reading.dropped["rollout without a finite reward"] == 8


def test_rllm_63_a_wrong_answer_gets_minus_1(tmp_path: Path) -> None:
    rows = [{"step": 0, "prompt": f"q{p}", "reward": 1.0 if i < p else -1.0} for p in range(9) for i in range(8)]
    one = audited(write(tmp_path / "log.jsonl", rows))
    assert counts(one) == [(p, 8) for p in range(9)]
    assert one.findings.zero_variance == pytest.approx(2 / 9)


def test_swift_3877_rewards_that_differ_between_groups_alone_have_no_variance(tmp_path: Path) -> None:
    """huggingface/trl#3857 as well: the deviation over all rollouts is 5, that of every group is 0."""
    rows = [{"step": 0, "prompt": f"q{p}", "reward": 2.0 - 5 * (p % 2)} for p in range(20) for _ in range(8)]
    assert audited(write(tmp_path / "log.jsonl", rows)).findings.zero_variance == 1.0


@pytest.mark.parametrize("name", ["step", "gen_step"])
def test_one_step_may_stand_for_a_line_of_lists(name: str, tmp_path: Path) -> None:
    """All lines were one step, and visits of a problem one group."""
    lists = {"completion": ["a", "b"], "accuracy": [0.0, 1.0], "advantages": [-1.0, 1.0]}
    rows = [{name: step, "prompt": [f"q{p}"] * 2, **lists} for step in (1, 2, 3) for p in (1, 2)]
    one = audited(write(tmp_path / "completions.jsonl", rows))
    assert counts(one) == [(1, 2)] * 6 and one.findings.groups == 6


def test_coursia_10603_most_groups_of_two_are_wasted(tmp_path: Path) -> None:
    """At a pass rate of .18, p^2 + (1-p)^2 = .70 of the groups."""
    generator = np.random.default_rng(0)
    passed = (generator.random((4000, 2)) < 0.18).astype(float)
    rows = [{"step": g // 40, "prompt": f"q{g}", "reward": r} for g, pair in enumerate(passed) for r in pair]
    assert audited(write(tmp_path / "log.jsonl", rows)).findings.zero_variance == pytest.approx(0.705, abs=0.02)


def test_counts_may_have_the_names_of_evaluations(tmp_path: Path) -> None:
    rows = [{"prompt": f"q{p}", "num_correct": p, "num_samples": 8} for p in range(9)]
    assert counts(audited(write(tmp_path / "log.jsonl", rows))) == [(p, 8) for p in range(9)]
