"""Servers end with the process that started them; a whole run with a server that dies."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from paths import DRIVERS, IMPORTABLE, REPOSITORY, count_lines

from halfway.experiments.starting_models.widen_heads import widen_heads
from halfway.trainers.engines.vllm_servers.server.server import Server

RUN = """
import atexit, sys
from pathlib import Path
from halfway.trainers.engines.vllm_servers.server.server import Server
from halfway.trainers.engines.vllm_servers.engine import VllmServersEngine
from halfway.trainers.engines.contract import EngineSetup
from halfway.trainers.engines.vllm_servers.part import VllmServers

folder = Path(sys.argv[1]) / "of the run"
folder.mkdir()
(folder / "weights").touch()
servers = [Server("127.0.0.1:1", ("sleep", "600"), folder / f"{number}.log") for number in range(2)]
engine = VllmServersEngine(servers, VllmServers(), EngineSetup(None, "model", [], 0), folder)
atexit.register(engine.close)
for server in servers:
    server.start()
    print(server.process.pid, flush=True)
sys.stdin.read()
"""


def lives(pid: int) -> bool:
    """Whether it runs; a process that has ended but was not waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def start(folder: Path) -> "tuple[subprocess.Popen[str], list[int]]":
    """A run, and the servers it has started."""
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return run, [int(run.stdout.readline()) for _ in range(2)]


def test_servers_end_with_the_interpreter(tmp_path: Path) -> None:
    begun = time.monotonic()
    run, pids = start(tmp_path)
    _, errors = run.communicate("")
    assert run.returncode == 0 and not errors
    assert not any(map(lives, pids)) and not list(tmp_path.iterdir())
    assert time.monotonic() - begun < 60.0  # at most the time granted for tidying up


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_servers_and_weights_end_with_a_run_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    run, pids = start(tmp_path)
    while not all(map(children, pids)):
        time.sleep(0.05)
    everyone = [*pids, *(child for pid in pids for child in children(pid))]
    assert len(everyone) == 4
    run.send_signal(number)
    run.communicate()
    deadline = time.monotonic() + 10
    while any(map(lives, everyone)) or list(tmp_path.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_server_executes_nothing_of_the_folder_in_which_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timeit.py").write_text("open('executed', 'w').close()")
    monkeypatch.chdir(tmp_path)
    server = Server("127.0.0.1:1", (sys.executable, "-m", "timeit", "-n1", "-r1"), tmp_path / "log")
    server.start()
    assert server.process is not None
    server.process.wait(60)
    assert "1 loop" in (tmp_path / "log").read_text() and not (tmp_path / "executed").exists()


CONFIG = """
name: attacked
controllers: [{prefix_sampling: {max_share: 0.5}}, uniform]
problems: {source: {running_sums: {max_lines: 9}}, train: 24}
model: {path: POLICY}
fill: {policy: once, groups: 8}
rollouts:
  engine:
    vllm_servers: {kv_cache_gib: 0.1, max_length: 256, count: 2, seconds: 15, start_seconds: 600, folder: FOLDER}
  num_rollouts: 8
  max_response_tokens: 64
  sync_tolerance: 1e-4
learner: {lr: 1e-4}
budget: {steps: 3}
evaluation: {points: 1, samples: 2, problems: 8}
tracking: {mlflow: false}
threads: 1
"""


STREAMING = """
base: run.yaml
name: streaming
rollouts:
  engine: {vllm_servers: {kv_cache_gib: 0.1, max_length: 256, count: 1, start_seconds: 600, folder: FOLDER}}
  max_response_tokens: 160
  max_sequences: 4  # few, so that some are under way whenever weights change
  staleness: 2
  in_flight: true
learner: {lr: 1e-4, mismatch: token_truncated}
checkpoint: {every: 1}
budget: {steps: 16}
evaluation: {points: 0}
"""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONPATH": IMPORTABLE, "HF_HUB_OFFLINE": "1"}


def written(folder: Path) -> Path:
    """The recipes, with their policy. Returns the first."""
    pytest.importorskip("vllm", reason="vLLM is not installed (extra vllm)", exc_type=ImportError)
    widen_heads(REPOSITORY / "experiments" / "starting_models" / "sums", folder / "policy", 32)
    for name, text in (("run", CONFIG), ("streaming", STREAMING)):
        (folder / f"{name}.yaml").write_text(
            text.replace("POLICY", str(folder / "policy")).replace("FOLDER", str(folder))
        )
    return folder / "run.yaml"


def records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.engines
def test_a_run_survives_the_loss_of_a_server(tmp_path: Path) -> None:
    config, run = written(tmp_path), tmp_path / "attacked"
    done = subprocess.run(
        [sys.executable, DRIVERS / "servers_driver.py", run, config],
        env=os.environ | ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    retried = {int(step): number for step, number in json.loads((run / "retried.json").read_text()).items()}
    assert retried[1] > 0
    decisions = records(run / "decisions.jsonl")
    assert Counter(record["step"] for record in decisions) == dict.fromkeys(range(3), 8)
    assert Counter(record["n"] for record in decisions) == {8: 24}
    assert all(record["policy_version"] == record["step"] for record in decisions)
    evaluations = records(run / "evaluations.jsonl")
    assert [record["step"] for record in evaluations] == [0, 3]


def halfway(folder: Path, *words: str) -> "subprocess.Popen[str]":
    command = (sys.executable, "-P", "-m", "halfway.experiments.cli", *words)
    return subprocess.Popen(
        command, cwd=folder, env=os.environ | ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finished(process: "subprocess.Popen[str]") -> str:
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output[-3000:]
    return output


def once(tickets: Sequence[str]) -> bool:
    return len(set(tickets)) == len(tickets) > 0


@pytest.mark.engines
def test_a_run_killed_with_rollouts_in_flight_observes_nothing_twice_and_can_be_retraced(tmp_path: Path) -> None:
    written(tmp_path)
    run = tmp_path / "runs" / "streaming"
    killed = halfway(tmp_path, "run", "streaming.yaml")
    while count_lines(run / "steps.jsonl") < 3:
        assert killed.poll() is None, finished(killed)
        time.sleep(0.05)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    finished(halfway(tmp_path, "resume", str(run)))
    events = records(run / "events.jsonl")
    done = [event for event in events if event["event"] == "done"]
    asked = [ticket for event in events if event["event"] == "draw" for ticket, _, _ in event["tickets"]]
    tickets = [event["ticket"] for event in done]
    assert once(asked) and once(tickets) and tickets == asked[: len(tickets)]
    assert all(event["size"] + sum(event.get("dropped", {}).values()) == 8 for event in done)
    assert any(len(event["versions"]) > 1 for event in done), "no rollout was written by two versions"
    assert len(records(run / "steps.jsonl")) == 16
    assert "16 steps" in finished(halfway(tmp_path, "retrace", str(run)))
