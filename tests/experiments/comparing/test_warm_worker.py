"""Warm workers: a run equals the run of a fresh process, whatever came before it; a worker that dies dies alone."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from paths import REPOSITORY
from tiny_recipes import TINY

from halfway.experiments.comparing import processes
from halfway.experiments.comparing.jobs import Job
from halfway.experiments.comparing.processes import OwnProcess, RunProcess, WarmWorker, Workforce, needs_own_process
from halfway.experiments.comparing.runner import last_words
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.run import RunConfig, parse_run_config
from halfway.experiments.running.runs import LOG, prepare

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every run has a process of its own")

BASE = {"name": "x", "controllers": ["uniform"], "problems": {"source": "running_sums"}, "budget": {"steps": 1}}

# A worker whose runs are small programs, `do.py` in their directories.
WORKER = """
from pathlib import Path
from halfway.experiments.comparing import warm_worker
warm_worker.MODULES = {modules}
warm_worker.import_model = lambda path: None
warm_worker.serve(lambda folder: exec((Path(folder) / "do.py").read_text(), dict(folder=Path(folder))))
"""

PROBE = """
import gc, json, os, random, signal, sys, threading
import numpy, torch
found = {
    # In a process that sets no seed, torch and random draw one.
    "seeded": [torch.initial_seed() == 7, random.getstate() == random.Random(7).getstate()],
    "numpy random": float(numpy.random.get_state()[1].sum()),
    "threads": [torch.get_num_threads(), torch.get_num_interop_threads(), len(os.listdir("/proc/self/task"))],
    "deterministic": [torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark],
    "defaults": [str(torch.get_default_dtype()), torch.is_grad_enabled(), torch.get_float32_matmul_precision()],
    "environment": sorted(os.environ.items()),
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


def worker_importing(*modules: str) -> str:
    return WORKER.format(modules=modules)


def config_of(**changes: Any) -> RunConfig:
    return parse_run_config({**BASE, **changes})


def ended(process: RunProcess, seconds: float = 60.0) -> int:
    """The exit status of a run, once it has one."""
    deadline = time.monotonic() + seconds
    while (status := process.poll()) is None:
        assert time.monotonic() < deadline, "the run does not end"
        time.sleep(0.02)
    return status


@pytest.fixture
def workforce(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workforce]:
    """Workers that run `do.py`, and import nothing before."""
    monkeypatch.setattr(processes, "COMMAND", (sys.executable, "-c", worker_importing()))
    made = Workforce(parallel=2)
    yield made
    made.close()


def begin(workforce: Workforce, folder: Path, program: str) -> RunProcess:
    folder.mkdir(exist_ok=True)
    (folder / "do.py").write_text(program)
    return workforce.start(config_of(), folder)


def run(workforce: Workforce, folder: Path, program: str) -> int:
    process = begin(workforce, folder, program)
    status = ended(process)
    workforce.release(process)
    return status


def test_no_run_sees_what_an_earlier_one_left_behind(
    workforce: Workforce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "COMMAND", (sys.executable, "-c", worker_importing("torch")))
    for name in "abc":
        assert run(workforce, tmp_path / name, PROBE + POLLUTE) == 0, (tmp_path / name / LOG).read_text()
    [worker] = workforce.free
    first, *others = (json.loads((tmp_path / name / "found.json").read_text()) for name in "abc")
    assert others == [first, first]
    assert first["threads"][2] == 2  # this one, and the one that ends the run when the worker is gone
    assert ["OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // 2))] in first["environment"]
    fresh = f"import json, sys; from pathlib import Path; folder = Path({str(tmp_path)!r})\n" + PROBE
    subprocess.run([sys.executable, "-c", "import torch\n" + fresh], check=True, env=dict(worker.environment))
    alone = json.loads((tmp_path / "found.json").read_text())
    for name in ("seeded", "deterministic", "defaults", "environment", "folder", "cache", "signals"):
        assert alone[name] == first[name], name
    assert alone["threads"][:2] == first["threads"][:2]


def test_a_run_that_dies_leaves_its_worker_alive(workforce: Workforce, tmp_path: Path) -> None:
    workers = []
    for program, status, words in [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, "killed by signal 9"),
        ("import os; os.abort()", -6, "killed by signal 6"),
        ("print('so far'); raise MemoryError('no room')", 1, "MemoryError: no room"),
        ("print('so far'); import sys; sys.exit('error: learner: NaN')", 1, "error: learner: NaN"),
        ("import sys; print('error: learner.lr', file=sys.stderr); sys.exit(2)", 2, "error: learner.lr"),
    ]:
        folder = tmp_path / str(len(workers))
        assert run(workforce, folder, program) == status
        assert last_words(Job("bad", 0, config_of(), folder), status) == words
        workers += workforce.free
    assert run(workforce, tmp_path / "good", "print('well')") == 0
    assert workers == workforce.free * 5
    assert (tmp_path / "good" / LOG).read_text() == "well\n"


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


SLEEP = "import os, time; (folder / 'pid').write_text(str(os.getpid())); time.sleep(600)"


def sleeping(workforce: Workforce, folder: Path) -> tuple[WarmWorker, int]:
    """A worker with a run in progress, and the process of the run."""
    process = begin(workforce, folder, SLEEP)
    wait_until(lambda: (folder / "pid").exists() and (folder / "pid").read_text() != "")
    assert isinstance(process, WarmWorker)
    return process, int((folder / "pid").read_text())


def test_a_worker_that_is_killed_fails_its_run_and_is_replaced(workforce: Workforce, tmp_path: Path) -> None:
    worker, child = sleeping(workforce, tmp_path / "a")
    os.kill(worker.process.pid, signal.SIGKILL)
    assert ended(worker) == -signal.SIGKILL
    wait_until(lambda: not alive(child))  # or it would go on training unnoticed
    workforce.release(worker)
    assert workforce.free == []
    assert run(workforce, tmp_path / "b", "print('well')") == 0
    assert workforce.free != [worker]


def test_a_free_worker_that_is_gone_is_replaced(workforce: Workforce, tmp_path: Path) -> None:
    assert run(workforce, tmp_path / "a", "") == 0
    [worker] = workforce.free
    os.kill(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    assert run(workforce, tmp_path / "b", "") == 0


def test_a_run_in_progress_ends_with_its_worker_on_request(workforce: Workforce, tmp_path: Path) -> None:
    worker, child = sleeping(workforce, tmp_path / "a")
    processes.end([worker])
    assert worker.poll() == -signal.SIGTERM
    wait_until(lambda: not alive(child))


def test_workers_end_with_the_comparison_however_it_ends(workforce: Workforce, tmp_path: Path) -> None:
    """Killed by a signal that cannot be caught, it only leaves closed pipes."""
    worker, child = sleeping(workforce, tmp_path / "a")
    worker._requests.close()
    wait_until(lambda: not alive(child) and worker.process.poll() is not None)


def test_a_worker_that_cannot_import_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "COMMAND", (sys.executable, "-c", "import no_such_module"))
    workforce = Workforce(parallel=1)
    status = run(workforce, tmp_path / "a", "")
    assert status == 1 and workforce.free == []
    words = last_words(Job("a", 0, config_of(), tmp_path / "a"), status)
    assert words == "ModuleNotFoundError: No module named 'no_such_module'"


def test_workers_have_the_environment_of_their_runs(workforce: Workforce, tmp_path: Path) -> None:
    for name, threads in (("a", 1), ("b", 2), ("c", 1)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "do.py").write_text("import os; print(os.environ['OMP_NUM_THREADS'])")
        process = workforce.start(config_of(threads=threads), folder)
        assert ended(process) == 0
        workforce.release(process)
        assert (folder / LOG).read_text() == f"{threads}\n"
    assert len(workforce.free) == 2


@pytest.mark.parametrize(
    ("changes", "own"),
    [
        ({}, False),
        ({"rollouts": {"engine": "vllm"}}, True),
        ({"rollouts": {"engine": "vllm_servers"}}, True),
        ({"learner": {"deepspeed": {"zero_stage": 2}}}, True),
    ],
)
def test_runs_of_several_processes_have_one_of_their_own(changes: dict[str, Any], own: bool) -> None:
    assert needs_own_process(config_of(**changes)) is own


SPY = """
import torch
called = []
for name in ("is_available", "device_count", "init", "_lazy_init"):
    setattr(torch.cuda, name, lambda name=name: called.append(name) or 0)
from importlib import import_module
from halfway.experiments.comparing import warm_worker
for module in warm_worker.MODULES:
    import_module(module)
warm_worker.import_model(MODEL)
assert "transformers.models.qwen3.modeling_qwen3" in __import__("sys").modules
assert called == [], called
"""


def test_a_worker_leaves_devices_alone() -> None:
    """A process that has asked CUDA's driver for anything cannot hand its devices to a fork."""
    program = SPY.replace("MODEL", repr(str(REPOSITORY / "experiments/starting_models/sums")))
    subprocess.run([sys.executable, "-c", program], check=True)


CLOCKS = ("seconds", "judge_seconds", "timing")


def outcome_of(folder: Path) -> dict[str, Any]:
    """All that a run leaves behind except its name and what depends on the clock."""
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


def test_a_run_in_a_worker_is_bit_for_bit_that_of_a_fresh_process(tmp_path: Path) -> None:
    """Also when the worker has trained another run before, and whatever the arm is called."""
    methods = REPOSITORY / "experiments" / "recipes" / "methods"
    small = [*TINY, "rollouts.num_rollouts=8"]
    other = load_run_config(
        methods / "prefix_sampling.yaml", [*small, "seed=9", "threads=2", "learner.kl_coefficient=0.1"]
    )
    same = load_run_config(methods / "greso.yaml", [*small, "seed=4"])
    workforce = Workforce(parallel=1)
    for name, config in (("other", other), ("same", same)):
        prepare(config, tmp_path / name)
        process = workforce.start(config, tmp_path / name)
        assert isinstance(process, WarmWorker)
        assert ended(process, 200) == 0, (tmp_path / name / LOG).read_text()
        workforce.release(process)
    workforce.close()
    prepare(same, tmp_path / "fresh")
    assert ended(OwnProcess(tmp_path / "fresh", process.environment), 200) == 0
    outcomes = {name: outcome_of(tmp_path / name) for name in ("same", "fresh", "other")}
    assert outcomes["same"] == outcomes["fresh"] != outcomes["other"]
