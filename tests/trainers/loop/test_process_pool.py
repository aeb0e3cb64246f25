"""Lockstep with a real policy, in two processes; `test_lockstep` has all moments, with the simulator."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
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
import json, multiprocessing, os, signal, sys, traceback
from importlib import import_module
from pathlib import Path
from drivers.kill_driver import HEAVY
from halfway.experiments.config.run import parse_run_config
from halfway.experiments.running.build import build_run

def train(config, folder, moment):
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

def forked(said, start, *task):
    if start == "fork":  # of a process that has imported what the sampler needs
        context = multiprocessing.get_context("fork")
        multiprocessing.get_context = lambda how: context
    with open(said, "w") as file:
        os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
    try:
        train(*task)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)

if __name__ == "__main__":
    for module in HEAVY:
        import_module(module)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            forked(*json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
MOMENTS = ("take", "update", "save", "sampler")


class Runs:
    """Trains in forks of one process that has imported torch, which takes longer than these runs."""

    def __init__(self, folder: Path):
        (folder / "driver.py").write_text(DRIVER)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": IMPORTABLE}
        words = [sys.executable, str(folder / "driver.py")]
        self.driver = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def run(self, folder: Path, moment: str = "", start: str = "fork") -> tuple[int, int, str]:
        """Exit status of a run, the process that sampled for it, and what it said."""
        assert self.driver.stdin is not None and self.driver.stdout is not None
        said = folder.with_suffix(".txt")
        self.driver.stdin.write(json.dumps([str(said), start, RUN, str(folder), moment]) + "\n")
        self.driver.stdin.flush()
        status = int(self.driver.stdout.readline())
        return status, int(said.read_text().split()[0]), said.read_text()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    trained = Runs(tmp_path)
    yield trained
    trained.driver.communicate()


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


def test_a_killed_run_is_resumed_to_the_same_bits_and_leaves_no_process_behind(runs: Runs, tmp_path: Path) -> None:
    status, sampler, said = runs.run(tmp_path / "peace", start="spawn")
    assert status == 0, said
    expected = final(tmp_path / "peace")
    assert b'"lag":1' in expected[0] and len(expected[2]) == 3
    assert not lives(sampler)
    for moment in MOMENTS:
        status, sampler, said = runs.run(tmp_path / moment, moment)
        if moment == "sampler":
            assert "rollouts.staleness: the process that samples has ended" in said
        else:
            assert status == -signal.SIGKILL, said
        deadline = time.monotonic() + 20
        while lives(sampler):
            assert time.monotonic() < deadline, f"the sampler outlives a run that is killed in {moment}"
            time.sleep(0.1)
        status, _, said = runs.run(tmp_path / moment)
        assert status == 0, said
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
