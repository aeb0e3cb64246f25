"""Lockstep with a real policy, in two processes; `test_lockstep` has all moments, with the simulator."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from paths import IMPORTABLE

from halfway.curriculum import UserError
from halfway.experiments.config.run import parse_run_config

RUN: dict[str, Any] = {
    "name": "lockstep",
    "problems": {"source": {"running_sums": {}}, "train": 24},
    "model": {"path": "experiments/starting_models/sums"},
    "controllers": [{"prefix_sampling": {}}, "uniform"],
    "fill": {"policy": "refill", "groups": 3, "max_rounds": 4},
    "rollouts": {"num_rollouts": 4, "max_response_tokens": 32, "staleness": 1, "sync_tolerance": 1e-3},
    "learner": {"lr": 1e-3, "mismatch": "token_masked"},
    "budget": {"steps": 4},
    "evaluation": {"points": 2, "samples": 2, "problems": 2},
    "checkpoint": {"every": 1},
    "tracking": {"mlflow": False},
    "threads": 1,
}
DRIVER = """
import json, os, signal, sys
from pathlib import Path
from halfway.experiments.config.run import parse_run_config
from halfway.experiments.running.build import build_run

def train():
    config, folder, moment = json.loads(sys.argv[1])
    training = build_run(parse_run_config(config), Path(folder))
    print(training.pool._process, flush=True)
    owners = {"update": training.learner, "save": training.learner, "take": training.pool}
    owner = owners.get(moment, training.session)
    if moment == "sampler":
        owner, moment, victim = training.learner, "update", training.pool._process
    else:
        victim = os.getpid()
    original = getattr(owner, moment, None)

    def fatal(*arguments, **options):
        if training.progress.step == 2:
            os.kill(victim, signal.SIGKILL)
        return original(*arguments, **options)

    if original is not None:
        setattr(owner, moment, fatal)
    training.train()

if __name__ == "__main__":
    train()
"""
MOMENTS = ("take", "update", "save", "sampler")


def run(script: Path, folder: Path, moment: str = "") -> "tuple[int, int, str]":
    """Exit status of a run, the process that sampled for it, and what it said."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": IMPORTABLE}
    words = [sys.executable, str(script), json.dumps([RUN, str(folder), moment])]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False, timeout=500)
    return done.returncode, int(done.stdout.split()[0]), done.stderr


def final(folder: Path) -> tuple[Any, ...]:
    """What must be equal: decisions, weights, and what is outstanding."""
    last = max((folder / "checkpoints").glob("step-*"))
    state = json.loads((last / "loop.json").read_text())
    decisions = (folder / "decisions.jsonl").read_bytes()
    return decisions, (last / "policy" / "model.safetensors").read_bytes(), state["waiting"], state["session"]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_killed_run_is_resumed_to_the_same_bits_and_leaves_no_process_behind(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    status, sampler, errors = run(script, tmp_path / "peace")
    assert status == 0, errors
    expected = final(tmp_path / "peace")
    assert b'"lag":1' in expected[0] and len(expected[2]) == 3
    assert not lives(sampler)
    for moment in MOMENTS:
        status, sampler, errors = run(script, tmp_path / moment, moment)
        if moment == "sampler":
            assert "rollouts.staleness: the process that samples has ended" in errors
        else:
            assert status == -signal.SIGKILL, errors
        deadline = time.monotonic() + 20
        while lives(sampler):
            assert time.monotonic() < deadline, f"the sampler outlives a run that is killed in {moment}"
            time.sleep(0.1)
        status, _, errors = run(script, tmp_path / moment)
        assert status == 0, errors
        assert final(tmp_path / moment) == expected, moment


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learner": {}}, r"learner\.mismatch: 'none' .* older weights have sampled what trains"),
        ({"rollouts": {"staleness": 9}}, r"rollouts\.staleness: 9 .* from 0 to 8"),
        ({"rollouts": {"staleness": 1, "engine": "vllm"}}, "cannot sample while the learner updates"),
        (
            {"rollouts": {"staleness": 1, "engine": {"vllm_servers": {"sleep": True}}}},
            "cannot sample while the learner updates",
        ),
        ({"controllers": ["uniform", "pilot"]}, r"controllers\.pilot extends groups round by round"),
        ({"fill": {"policy": "refill", "surplus": "carry"}}, "rounds are as large as what is missing"),
        ({"fill": {"policy": "refill", "request": "adaptive"}}, "rounds are as large as what is missing"),
    ],
)
def test_what_cannot_be_sampled_ahead_is_refused(changes: dict[str, Any], message: str) -> None:
    parse_run_config(RUN)
    with pytest.raises(UserError, match=message):
        parse_run_config(RUN | changes)


def test_the_clipped_ratio_against_the_sampling_weights_is_a_correction_too() -> None:
    parse_run_config(RUN | {"learner": {"old_logprobs": "engine"}})
