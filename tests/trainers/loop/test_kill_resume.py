"""A run that is killed and resumed ends bit for bit like the run that was never killed, a second process or not."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from drivers.kill_driver import MOMENTS
from kills.ends import final_state
from paths import DRIVERS, IMPORTABLE
from preloaded import Preloaded
from repositories import needs_boxes

from halfway.curriculum import UserError
from halfway.experiments.config.run import parse_run_config
from halfway.trainers.rollouts.sampling_process import ProcessPool, hush_lost_connections

CHAINS = {
    "greso": """
controllers: [uniform, greso: {p_hard: 0.1}]
fill: {policy: refill, groups: 3, request: adaptive, request_groups: 4, max_rounds: 4}
""",
    "pros, fitted": """
controllers:
  - pros: {tree_children: 3, per_tree: 2, belief: {bayes: {hyperparameters: fitted, refit_every: 2}}}
fill: {policy: refill, groups: 3, request: fixed, request_groups: 5, surplus: carry, max_rounds: 3}
""",
    "both, with surplus carried over": """
controllers:
  - prefix_sampling: {max_age: 3}
  - uniform
  - greso: {frozen_epochs: 0, p_hard: 0.1}
fill: {policy: refill, groups: 3, request: fixed, request_groups: 5, surplus: carry, max_rounds: 3}
""",
    "hints": """
controllers: [uniform, hints: {kind: seele, width: 3, tries: 2}]
fill: {policy: once, groups: 6, max_rounds: 4}
""",
    "pilot, with replay": """
controllers: [replay: {share: 0.34, capacity: 5}, uniform, pilot: {initial: 2}]
fill: {policy: refill, groups: 3, request_groups: 5, surplus: carry, max_rounds: 4}
""",
    "signal, with downsample": """
controllers: [uniform, signal, downsample: {keep: 0.5, baseline: group}]
fill: {policy: once, groups: 6}
""",
    "probe, with pros by probed priors": """
controllers: [probe: {share: 0.34}, pros: {prior: probed}]
fill: {policy: refill, groups: 3, request: fixed, request_groups: 5, surplus: carry, max_rounds: 3}
""",
    "ppo": """
controllers: [prefix_sampling, uniform]
fill: {policy: once, groups: 6, zero_variance: keep}
learner:
  advantage: gae
  critic: {lr: 1e-2, gae_lambda: 0.95, warmup_steps: 1}
  lr: 1e-3
  num_minibatches: 2
  num_epochs: 2
  schedule: linear
  total_updates: 24
  compact_filtering: false
""",
}

# What must occur in a chain's decision log, or the state that is to survive was never used.
MARKS = {
    "greso": [b'"outcome":"skipped"', b'"round":1'],
    "probe, with pros by probed priors": [b'"origin":"generated"', b'"origin":"prefix"'],
    "ppo": [b'"origin":"prefix"', b'"k":0'],
    "hints": [b'"origin":"hinted"', b'"again"'],
    "pilot, with replay": [b'"origin":"stored"', b'"goes on"', b'"outcome":"carried"'],
    "signal, with downsample": [b'"weights":[', b'"k":0'],
    "pros, fitted": [b'"origin":"prefix"'],
    "both, with surplus carried over": [b'"outcome":"skipped"', b'"origin":"prefix"', b'"outcome":"carried"'],
}

# One chain is killed at every moment. The others only show that their state survives.
EVERY_MOMENT, ONE_MOMENT = "both, with surplus carried over", ("checkpoint",)

SHARED = """
name: killed
problems:
  source:
    file:
      path: problems.jsonl
      verifier: coin
      check_answers: false
      feature_columns: [probed_rate]
      solution_column: solution
  train: 9
model: {path: experiments/starting_models/sums}
rollouts: {num_rollouts: 4, temperature: 1.5, max_response_tokens: 24}
budget: {steps: 5}
evaluation: {points: 2, samples: 2, problems: 2}
checkpoint: {every: 2}
tracking: {mlflow: false}
threads: 1
"""
GENERATED = """  generated:
    file: {path: generated.jsonl, verifier: coin, check_answers: false, feature_columns: [probed_rate]}
"""
LEARNER = "learner: {lr: 1e-3, num_minibatches: 2, schedule: linear, total_updates: 12}\n"


@pytest.mark.parametrize("chain", CHAINS)
def test_a_killed_run_resumes_to_the_same_bits(tmp_path: Path, chain: str, preloaded: Preloaded) -> None:
    moments = MOMENTS if chain == EVERY_MOMENT else ONE_MOMENT
    config = tmp_path / "run.yaml"
    shared = SHARED.replace("  train: 9\n", "  train: 9\n" + GENERATED) if "probe:" in CHAINS[chain] else SHARED
    config.write_text(shared + CHAINS[chain] + ("" if "learner:" in CHAINS[chain] else LEARNER))
    # By the coin's answers a third of the problems is hopeless, a third hard, and a third passes half of the time.
    answers = [(start, answer) for start in range(4) for answer in ("never", "4", "2")]
    for name, label in (("problems", "a"), ("generated", "b")):
        rows = [
            {
                "prompt": f"^{start}/1{label}2b{i % 6}c1d4=",
                "answer": a,
                "probed_rate": (i % 5 + 1) / 6,
                "solution": f"a2{i % 6}b13c14d40",
            }
            for i, (start, a) in enumerate(answers)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    preloaded(tmp_path, tmp_path / "output.txt", DRIVERS / "kill_driver.py", tmp_path, config, *moments)
    expected = final_state(tmp_path / "peace")
    decisions = (tmp_path / "peace" / "decisions.jsonl").read_bytes()
    assert decisions.count(b'"outcome":"trained"') >= 6
    assert [mark for mark in MARKS[chain] if mark not in decisions] == []
    for moment in moments:
        assert final_state(tmp_path / moment) == expected, f"killed during {moment}"


# A run on repositories that is killed amid its episodes goes on to the same bits.


@needs_boxes
def test_a_run_killed_amid_episodes_of_repositories_resumes_to_the_same_bits(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    preloaded(tmp_path, tmp_path / "output.txt", DRIVERS / "repository_kill_driver.py", tmp_path)
    peace, killed = (final_state(tmp_path / name) for name in ("peace", "killed"))
    assert peace == killed
    assert {json.loads(line)["step"] for line in peace["decisions"].splitlines()} == {0, 1, 2}
    assert peace["files"][Path("weights.txt")] != b"0 "
    for name in ("peace", "killed"):
        steps = [json.loads(line) for line in (tmp_path / name / "steps.jsonl").read_text().splitlines()]
        # Judging is the commands and more: opening trees, saving them, running the tests of what was submitted.
        spent = [(step["tool_seconds"], step["judge_seconds"]) for step in steps]
        assert spent == sorted(spent) and all(0 < tools < judged for tools, judged in spent)


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
import json, multiprocessing, os, signal, sys
from pathlib import Path
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

if __name__ == "__main__":
    if sys.argv[4] == "fork":  # of a process that has imported what the sampler needs
        context = multiprocessing.get_context("fork")
        multiprocessing.get_context = lambda how: context
    train(json.loads(sys.argv[1]), *sys.argv[2:4])
"""
ENDS = ("take", "update", "save", "sampler")


class Runs:
    """Trains in processes of their own."""

    def __init__(self, preloaded: Preloaded, folder: Path):
        self.preloaded, self.program = preloaded, folder / "driver.py"
        self.program.write_text(DRIVER)

    def run(self, folder: Path, moment: str = "", start: str = "fork") -> tuple[int, int, str]:
        """Exit status of a run, the process that sampled for it, and what it said."""
        said = folder.with_suffix(".txt")
        said.unlink(missing_ok=True)
        words = (self.program, json.dumps(RUN), folder, moment, start)
        status = self.preloaded.status(folder.parent, said, *words)
        return status, int(said.read_text().split()[0]), said.read_text()


@pytest.fixture
def runs(preloaded: Preloaded, tmp_path: Path) -> Runs:
    return Runs(preloaded, tmp_path)


def final(folder: Path) -> tuple[Any, ...]:
    """The parts that must be equal: decisions, weights, and outstanding groups."""
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
    for moment in ENDS:
        status, sampler, said = runs.run(tmp_path / moment, moment)
        if moment == "sampler":
            assert "rollouts.staleness: " in said
        else:
            assert status == -signal.SIGKILL, said
        deadline = time.monotonic() + 20
        while lives(sampler):
            assert time.monotonic() < deadline, f"the sampler outlives a run that is killed in {moment}"
            time.sleep(0.1)
        status, _, said = runs.run(tmp_path / moment)
        assert status == 0, said
        assert final(tmp_path / moment) == expected, moment


ABANDONED = """
import multiprocessing, os, signal
from types import SimpleNamespace
from halfway.trainers.rollouts import sampling_process

def die(manager, build):
    print(manager._process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

context = multiprocessing.get_context("fork")
sampling_process.multiprocessing = SimpleNamespace(get_context=lambda how: context)
sampling_process._Manager.sampler = die
sampling_process.ProcessPool(None)
"""


def test_a_sampler_whose_run_dies_before_it_has_a_collector_ends_too() -> None:
    environment = {**os.environ, "PYTHONPATH": IMPORTABLE}
    with subprocess.Popen([sys.executable, "-c", ABANDONED], stdout=PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        sampler = int(run.stdout.readline())
        assert run.wait(60) == -signal.SIGKILL
    deadline = time.monotonic() + 20
    while lives(sampler):
        if time.monotonic() > deadline:
            os.kill(sampler, signal.SIGKILL)
            pytest.fail("it outlives its run")
        time.sleep(0.1)


def test_only_the_main_thread_speaks_of_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, *_: said.append(kind))
    hush_lost_connections()
    once = sys.excepthook
    hush_lost_connections()  # of the next run in this process
    assert sys.excepthook is once

    def speak(error: BaseException) -> None:
        sys.excepthook(type(error), error, None)

    for error in (ConnectionResetError(), EOFError(), ValueError()):
        thread = threading.Thread(target=speak, args=(error,))
        thread.start()
        thread.join()
    speak(EOFError())
    assert said == [ValueError, EOFError]


def test_a_sampler_that_ends_as_it_starts_is_one_line() -> None:
    build: Any = partial(os._exit, 1)
    with pytest.raises(UserError, match=r"rollouts\.staleness: the sampling process has ended"):
        ProcessPool(build)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learner": {}}, r"learner\.mismatch: .*'none'"),
        ({"rollouts": {"staleness": 9}}, r"rollouts\.staleness: (?=.*9).*0.*8"),
        ({"rollouts": {"staleness": 1, "engine": "vllm"}}, "cannot sample while the learner updates"),
        (
            {"rollouts": {"staleness": 1, "engine": {"vllm_servers": {"sleep": True}}}},
            "cannot sample while the learner updates",
        ),
        ({"controllers": ["uniform", "pilot"]}, r"controllers\.pilot"),
        ({"fill": {"policy": "refill", "surplus": "carry"}}, "rounds are as large as what is missing"),
        ({"fill": {"policy": "refill", "request": "adaptive"}}, "rounds are as large as what is missing"),
    ],
)
def test_runs_that_cannot_sample_ahead_are_refused(changes: dict[str, Any], message: str) -> None:
    parse_run_config(RUN)
    with pytest.raises(UserError, match=message):
        parse_run_config(RUN | changes)


def test_the_clipped_ratio_against_the_sampling_weights_is_a_correction_too() -> None:
    parse_run_config(RUN | {"learner": {"old_logprobs": "engine"}})
