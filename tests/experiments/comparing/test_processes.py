"""Forked runs, each that of a fresh process; and a whole comparison that is killed and continued."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from paths import REPOSITORY, TINY
from programs import run_program

from halfway.experiments.comparing import processes
from halfway.experiments.comparing.jobs import Job
from halfway.experiments.comparing.processes import MODULES, end, needs_fresh_process, start
from halfway.experiments.comparing.runner import last_words
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.run import RunConfig, parse_run_config
from halfway.experiments.running.runs import LOG, prepare

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every run has a fresh process")

BASE = {"name": "x", "controllers": ["uniform"], "problems": {"source": "running_sums"}, "budget": {"steps": 1}}

# A process that has asked CUDA's driver for anything cannot hand its devices to a fork.
SPY = f"""
import sys
loaded = "torch" in sys.modules
import torch
asked = []
for name in ("is_available", "device_count", "init", "_lazy_init"):
    setattr(torch.cuda, name, lambda name=name: asked.append(name) or 0)
from importlib import import_module
for module in {MODULES!r}:
    import_module(module)
"""
PROBE = """
import json, os, random, signal, sys, threading
import numpy, torch
found = {
    "loaded, asked": [loaded, asked],
    # In a process that sets no seed, torch and random draw one.
    "seeded": [torch.initial_seed() == 7, random.getstate() == random.Random(7).getstate()],
    "numpy random": float(numpy.random.get_state()[1].sum()),
    "threads": [torch.get_num_threads(), torch.get_num_interop_threads(), len(os.listdir("/proc/self/task"))],
    "deterministic": [torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark],
    "defaults": [str(torch.get_default_dtype()), torch.is_grad_enabled(), torch.get_float32_matmul_precision()],
    "environment": sorted(item for item in os.environ.items() if item[0] != "PYTEST_CURRENT_TEST"),
    "folder": os.getcwd(),
    "modules": sorted(sys.modules),
    "cache": torch.seen if hasattr(torch, "seen") else None,
    "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)],
}
(folder / "found.json").write_text(json.dumps(found))
"""
# What an ill-behaved run may do to its process.
POLLUTE = """
import wave
torch.manual_seed(7), numpy.random.seed(7), random.seed(7)
torch.set_num_threads(3)
torch.ones(300, 300) @ torch.ones(300, 300)
torch.use_deterministic_algorithms(True)
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch.set_float32_matmul_precision("medium")
torch.seen = "something"
os.environ["OMP_NUM_THREADS"] = "5"
os.environ["LEFT_BEHIND"] = "1"
os.chdir("/")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Puts back what `start` sets for its processes."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def config_of(**changes: Any) -> RunConfig:
    return parse_run_config({**BASE, **changes})


def begin(folder: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> BaseProcess:
    """Start a program in place of a run's training."""
    monkeypatch.setattr(processes, "train_alone", run_program)
    folder.mkdir(exist_ok=True)
    (folder / "do.py").write_text(program)
    return start(config_of(), folder, parallel=2)


def ended(process: BaseProcess) -> int:
    """The exit status of a run, once it has one."""
    process.join(600)
    assert process.exitcode is not None, "the run does not end"
    return process.exitcode


def test_no_run_sees_what_an_earlier_one_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "struct.py").write_text("raise SystemExit('the folder in which the user stands')")
    for name in ("a", "b", "fresh"):
        monkeypatch.setattr(processes, "needs_fresh_process", lambda config, name=name: name == "fresh")
        # A fresh process imports by itself what the others find imported, and some of that sets variables.
        program = SPY + PROBE + POLLUTE
        assert ended(begin(tmp_path / name, program, monkeypatch)) == 0, (tmp_path / name / LOG).read_text()
    first, second, fresh = (json.loads((tmp_path / name / "found.json").read_text()) for name in ("a", "b", "fresh"))
    assert second == first
    assert first["threads"][2] == 2  # this one, and the one that ends the run when the comparison is gone
    assert ["OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // 2))] in first["environment"]
    for name in ("seeded", "deterministic", "defaults", "environment", "folder", "cache", "signals"):
        assert fresh[name] == first[name], name
    assert fresh["threads"][:2] == first["threads"][:2]
    assert fresh["loaded, asked"] == [False, []] and first["loaded, asked"] == [True, []]


@pytest.mark.parametrize(
    ("program", "status", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, "killed by signal 9"),
        ("import os; os.abort()", -6, "killed by signal 6"),
        ("print('so far'); raise MemoryError('no room')", 1, "MemoryError: no room"),
        ("print('so far'); import sys; sys.exit('error: learner: NaN')", 1, "error: learner: NaN"),
        ("import sys; print('error: learner.lr', file=sys.stderr); sys.exit(2)", 2, "error: learner.lr"),
    ],
)
def test_a_run_that_dies_says_why_and_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, status: int, words: str
) -> None:
    assert ended(begin(tmp_path / "bad", program, monkeypatch)) == status
    assert last_words(Job("bad", 0, config_of(), tmp_path / "bad"), status) == words
    assert ended(begin(tmp_path / "good", "print('well')", monkeypatch)) == 0
    assert (tmp_path / "good" / LOG).read_text() == "well\n"


def test_runs_end_on_request_even_those_that_do_not_want_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PATIENCE_SECONDS", 0.5)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); (folder / 'ready').touch()\n"
    runs = [
        begin(tmp_path / name, deaf * (name == "deaf") + "import time; time.sleep(600)", monkeypatch) for name in NAMES
    ]
    deadline = time.monotonic() + 60
    while not (tmp_path / "deaf" / "ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    end(runs)
    assert [run.exitcode for run in runs] == [-signal.SIGTERM, -signal.SIGKILL]


NAMES = ("willing", "deaf")


@pytest.mark.parametrize(
    ("changes", "fresh"),
    [
        ({}, False),
        ({"rollouts": {"engine": "vllm"}}, True),
        ({"rollouts": {"engine": "vllm_servers"}}, True),
        ({"learner": {"deepspeed": {"zero_stage": 2}}}, True),
    ],
)
def test_runs_of_several_processes_have_a_fresh_one(changes: dict[str, Any], fresh: bool) -> None:
    assert needs_fresh_process(config_of(**changes)) is fresh


CLOCKS = ("seconds", "judge_seconds", "timing")


def outcome_of(folder: Path) -> dict[str, Any]:
    """Everything that a run leaves behind, except its name and times."""
    evaluations = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    kept = [
        path for path in sorted((folder / "checkpoints").rglob("*")) if path.suffix in (".safetensors", ".bin", ".pt")
    ]
    assert kept
    return {
        "decisions": (folder / "decisions.jsonl").read_bytes(),
        "evaluations": [{k: v for k, v in record.items() if k not in CLOCKS} for record in evaluations],
        "steps": [{k: v for k, v in record.items() if k not in CLOCKS} for record in steps],
        "weights": {str(path.relative_to(folder)): path.read_bytes() for path in kept},
    }


def test_a_forked_run_is_bit_for_bit_that_of_a_fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after another run, and whatever the arm is called."""
    methods = REPOSITORY / "experiments" / "recipes" / "methods"
    small = [*TINY, "rollouts.num_rollouts=8", "budget.steps=3"]
    other = load_run_config(
        methods / "prefix_sampling.yaml", [*small, "seed=9", "threads=2", "learner.kl_coefficient=0.1"]
    )
    same = load_run_config(methods / "greso.yaml", [*small, "seed=4"])
    for name, config in (("other", other), ("forked", same), ("fresh", same)):
        monkeypatch.setattr(processes, "needs_fresh_process", lambda config, name=name: name == "fresh")
        prepare(config, tmp_path / name)
        assert ended(start(config, tmp_path / name, parallel=1)) == 0, (tmp_path / name / LOG).read_text()
    outcomes = {name: outcome_of(tmp_path / name) for name in ("other", "forked", "fresh")}
    assert outcomes["forked"] == outcomes["fresh"] != outcomes["other"]


CONTEST = f"""
base:
  base: {REPOSITORY}/experiments/recipes/lab/sums.yaml
  problems: {{train: 8}}
  fill: {{groups: 3}}
  rollouts: {{num_rollouts: 4, max_response_tokens: 40}}
  evaluation: {{points: 2, samples: 1, problems: 4}}
  checkpoint: {{every: 1}}
budget: {{steps: 2}}
seeds: [0, 1]
arms: {{plain: {{}}, the_same: {{}}}}
tune: {{grid: {{learner.lr: [1e-4, 3e-4]}}, seeds: [100], share: 0.5}}
contrasts: {{baseline: plain}}
targets: [0.5]
"""


def compare(folder: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-P", "-m", "halfway.experiments.cli", "compare", "contest.yaml", "--jobs", "2"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def children_of(pid: int) -> list[int]:
    """The processes that it started, and their children."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    found = [int(word) for word in path.read_text().split()] if path.exists() else []
    return [*found, *(far for near in found for far in children_of(near))]


def records(run: Path, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if key not in ("seconds", "judge_seconds", "timing")}
        for line in lines
    ]


def weights(run: Path) -> bytes:
    [path] = (run / "checkpoints" / "step-00000002").rglob("*.safetensors")
    return path.read_bytes()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_a_killed_contest_resumes_and_equal_arms_have_equal_results(tmp_path: Path) -> None:
    (tmp_path / "contest.yaml").write_text(CONTEST)
    folder = tmp_path / "runs" / "contest"
    running = compare(tmp_path)
    deadline = time.monotonic() + 300
    while not list(folder.glob("tuning/plain/*/seed-100/checkpoints/step-00000001")):
        assert running.poll() is None and time.monotonic() < deadline, running.communicate()
        time.sleep(0.05)
    started = children_of(running.pid)
    assert len(started) >= 3  # two workers, and a run in at least one of them
    running.kill()
    running.communicate(timeout=60)
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    again = compare(tmp_path)
    output, _ = again.communicate(timeout=500)
    printed = output.decode()
    assert again.returncode == 0, printed
    assert "report: runs/contest/report.html" in printed and (folder / "report.html").exists()
    assert "mlflow ui --backend-store-uri sqlite:///runs/mlflow.db" in printed
    tuning = json.loads((folder / "tuning.json").read_text())["arms"]
    assert tuning["plain"] == tuning["the_same"] and tuning["plain"]["at_edge"] == ["learner.lr"]
    runs = {arm: [folder / arm / f"seed-{seed}" for seed in (0, 1)] for arm in ("plain", "the_same")}
    for one, other in zip(*runs.values(), strict=True):
        assert weights(one) == weights(other)
        for name in ("decisions", "steps", "evaluations"):
            assert records(one, name) == records(other, name) != []
    assert weights(runs["plain"][0]) != weights(runs["plain"][1])
    copied = json.loads((runs["plain"][0] / "mlflow.json").read_text())
    assert (copied["complete"], copied["step"], copied["evaluation"]) == (True, 1, 2)
    assert "held-out pass@1" in (runs["plain"][0] / "log.txt").read_text()
