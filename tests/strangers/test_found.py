"""What the changes of `mutate_strangers` have found, each as its own test."""

import json
from pathlib import Path

import pytest

from halfway.curriculum import UserError
from halfway.curriculum.support.errors import LONGEST
from halfway.experiments.audit.formats.trl import gaps
from halfway.experiments.audit.reading import read_logs


def test_a_message_is_one_line_of_a_bounded_length() -> None:
    line = str(UserError(f"arms: {'x' * 10**6}\r\nis not acceptable; remove it"))
    assert len(line) <= LONGEST and line.startswith("arms: xx") and line.endswith("xx is not acceptable; remove it")
    assert str(UserError("a: 1\u2028is bad; b")) == "a: 1 is bad; b" and str(UserError("a;  b")) == "a;  b"


def test_gaps_of_enormous_steps_cost_nothing() -> None:
    assert gaps([0, 2**40, 2**41]) != [] and gaps([1, 2, 3]) == []
    assert gaps([1, 2, 2**40]) == [f"{2**40 - 3} steps between the tables are missing"]
    assert "2 steps apart" in gaps([0, 2, 4, 7])[0]


@pytest.mark.parametrize("reward", [10**400, -(10**400), 1e308])
def test_a_reward_without_a_float_is_left_out_and_counted(reward: float, tmp_path: Path) -> None:
    row = {"gen_step": "1", "prompt": ["p"] * 4, "completion": list("abcd"), "advantages": [1.0, -1.0, 1.0, -1.0]}
    lines = [{**row, "reward": [1.0, 0.0, 1.0, 0.0]}, {**row, "gen_step": "2", "reward": [1.0, 0.0, 1.0, reward]}]
    (tmp_path / "completions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    [log] = read_logs([tmp_path])
    assert log.history.num_rollouts == 7 and sum(log.reading.dropped.values()) == 1
