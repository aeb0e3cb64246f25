"""A run on repositories that is killed amid its episodes goes on to the same bits."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from paths import DRIVERS, IMPORTABLE
from repositories import needs_boxes

CLOCKED = ("seconds", "tool_seconds", "wall_seconds", "log_sizes")


def timeless(value: Any) -> Any:
    """The same value without what depends on the time: seconds, and the sizes of files that hold them."""
    if isinstance(value, dict):
        return {
            k: timeless(v)
            for k, v in value.items()
            if k not in ("seconds", "tool_seconds", "judge_seconds", "wall_seconds", "log_sizes")
        }
    return [timeless(one) for one in value] if isinstance(value, list) else value


def final_state(folder: Path) -> dict[str, Any]:
    last = max((folder / "checkpoints").glob("step-*"))
    loop = timeless(json.loads((last / "loop.json").read_text()))
    decisions = [json.loads(line) for line in (folder / "decisions.jsonl").read_text().splitlines()]
    return {"weights": (last / "weights.txt").read_text(), "loop": loop, "decisions": decisions}


@needs_boxes
def test_a_run_killed_amid_episodes_of_repositories_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, DRIVERS / "repository_kill_driver.py", tmp_path],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": IMPORTABLE},
    )
    peace, killed = (final_state(tmp_path / name) for name in ("peace", "killed"))
    assert peace == killed
    assert {record["step"] for record in peace["decisions"]} == {0, 1, 2}
    assert peace["weights"] != "0 "
    for name in ("peace", "killed"):
        steps = [json.loads(line) for line in (tmp_path / name / "steps.jsonl").read_text().splitlines()]
        # Judging is the commands and more: opening trees, saving them, running the tests of what was submitted.
        spent = [(step["tool_seconds"], step["judge_seconds"]) for step in steps]
        assert spent == sorted(spent) and all(0 < tools < judged for tools, judged in spent)
