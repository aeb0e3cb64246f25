"""Several processes give the same run as one; a lost process ends the run, which can be resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import IMPORTABLE, REPOSITORY

from halfway.curriculum import Group, Origin, Problem, Request, Stream
from halfway.curriculum.tasks.helpers import Unjudged, counted, take_counts
from halfway.trainers.distributed import workers
from halfway.trainers.distributed.workers import WorkerGroup, spread

SHARED = """
controllers: [prefix_sampling, uniform, greso]
problems: {source: {running_sums: {max_lines: 8}}, train: 12}
model: {path: experiments/starting_models/sums}
fill: {policy: refill, groups: 3, request: fixed, request_groups: 5, max_rounds: 3}
rollouts: {num_rollouts: 4, max_response_tokens: 40}
evaluation: {points: 1, samples: 2, problems: 3}
checkpoint: {every: 2}
tracking: {mlflow: false}
threads: 1
"""
STEPS = 6
LEARNER = "learner: {lr: 1e-3, num_minibatches: 2, deepspeed: {zero_stage: %s}}\n"


def start(processes: int, command: str, path: Path, output: Path) -> "subprocess.Popen[str]":
    """`halfway run` or `resume` in its own process session."""
    environment = os.environ | {"PYTHONPATH": IMPORTABLE, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    with output.open("w") as file:
        return subprocess.Popen(
            [*launcher, "-m", "halfway.experiments.cli", command, str(path)],
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd=REPOSITORY,
            start_new_session=True,
        )


def write_config(folder: Path, name: str, stage: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(f"output: {folder}\nname: {name}\nbudget: {{steps: {STEPS}}}\n" + SHARED + LEARNER % stage)
    return path


def run(folder: Path, name: str, processes: int, stage: str = "null") -> Path:
    path = write_config(folder, name, stage)
    output = folder / f"{name}.txt"
    assert start(processes, "run", path, output).wait(timeout=300) == 0, output.read_text()[-3000:]
    return folder / name


def records(folder: Path, name: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / f"{name}.jsonl").read_text().splitlines())
    return [{k: v for k, v in record.items() if k not in ("seconds", "judge_seconds", "timing")} for record in lines]


def assert_alike(one: Path, two: Path) -> None:
    """Equal decisions and counts; numbers that many additions made, nearly."""
    assert records(two, "decisions") == records(one, "decisions")
    assert records(two, "evaluations") == records(one, "evaluations")
    for expected, actual in zip(records(one, "steps"), records(two, "steps"), strict=True):
        learned = actual.pop("learner")
        assert learned == pytest.approx(expected.pop("learner"), rel=1e-3, abs=1e-5)
        assert actual == expected


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("alone"), "alone", 1)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("together"), "together", 2)


def test_two_processes_give_the_run_of_one(alone: Path, together: Path) -> None:
    assert_alike(alone, together)


@pytest.mark.engines
def test_two_processes_with_sharded_weights_give_the_run_of_one(alone: Path, tmp_path: Path) -> None:
    if find_spec("deepspeed") is None:
        pytest.skip("DeepSpeed is not installed (extra deepspeed)")
    assert_alike(alone, run(tmp_path, "sharded", 2, "3"))


def test_a_lost_process_ends_the_run_and_resuming_completes_it(together: Path, tmp_path: Path) -> None:
    path, output = write_config(tmp_path, "broken", "null"), tmp_path / "broken.txt"
    launched, broken = start(2, "run", path, output), tmp_path / "broken"
    try:
        deadline = time.monotonic() + 120
        while not list((broken / "checkpoints").glob("step-*2")):  # past a checkpoint, and far from the end
            assert time.monotonic() < deadline and launched.poll() is None, output.read_text()[-3000:]
            time.sleep(0.02)
        os.kill(follower(launched.pid), signal.SIGKILL)
        assert launched.wait(timeout=30) != 0  # the stated time
    finally:
        if launched.poll() is None:
            os.killpg(launched.pid, signal.SIGKILL)
    assert "Signal 9 (SIGKILL)" in output.read_text() or "a training process has died" in output.read_text()
    assert len(records(broken, "steps")) < STEPS
    assert start(2, "resume", broken, tmp_path / "resumed.txt").wait(timeout=300) == 0
    assert records(broken, "decisions") == records(together, "decisions")
    assert records(broken, "steps") == records(together, "steps")


def follower(launcher: int) -> int:
    """The process with rank 1 among the launcher's children."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    [follower] = [int(pid) for pid in children if b"\0RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes()]
    return follower


def request(problem: str, num_rollouts: int = 4, origin: Origin = Origin.FRESH) -> Request:
    return Request(Problem(problem, "", ""), num_rollouts, origin=origin)


class Rollouts:
    """Rollouts of which one cannot be judged."""

    judge_seconds = 0.0

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        counted(Unjudged("time"))
        return [Group(one, np.zeros(0, np.int64), ()) for one in requests]


def test_what_no_process_could_judge_is_counted_by_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [request("a"), request("b")]
    shares = spread(requests, 2)
    theirs = ([Group(requests[i], np.zeros(0, np.int64), ()) for i in shares[1]], 2.0, {"died": 3, "time": 1})
    told: list[Any] = []

    def gather(own: Any, gathered: list[Any], **_: Any) -> None:
        told.append(own[2])
        gathered[:] = [own, theirs]

    monkeypatch.setattr(workers, "control_group", lambda: None)
    monkeypatch.setattr(workers.distributed, "get_rank", lambda *_: 0)
    monkeypatch.setattr(workers.distributed, "get_world_size", lambda *_: 2)
    monkeypatch.setattr(workers.distributed, "broadcast_object_list", lambda *_, **__: None)
    monkeypatch.setattr(workers.distributed, "gather_object", gather)
    take_counts()
    group = WorkerGroup(Rollouts(), cast(Any, None), lambda: None)
    assert [one.request for one in group.run(requests, Stream(0))] == requests
    assert told == [{"time": 1}] and group.judge_seconds == 2.0
    assert take_counts() == {"died": 3, "time": 2}


def test_requests_are_spread_by_rollouts() -> None:
    requests = [request("a"), request("b", 8), request("c"), request("d", 2)]
    assert spread(requests, 2) == [[1], [0, 2, 3]] or spread(requests, 2) == [[1, 3], [0, 2]]


def test_requests_for_one_problem_stay_together() -> None:
    requests = [request(name) for name in "abacab"]
    shares = spread(requests, 3)
    assert sorted(map(tuple, shares)) == [(0, 2, 4), (1, 5), (3,)]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 9)), max_size=20), st.integers(1, 4))
def test_every_request_has_one_process(drawn: list[tuple[str, int]], num_processes: int) -> None:
    shares = spread([request(name, num) for name, num in drawn], num_processes)
    assert len(shares) == num_processes
    assert sorted(i for share in shares for i in share) == list(range(len(drawn)))
