"""Several processes on one run: orders, waiting and broadcasting, taking turns on a device."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paths import IMPORTABLE, REPOSITORY
from preloaded import Preloaded
from torch import distributed

from halfway.curriculum import Group, Origin, Problem, Request, Stream, UserError
from halfway.curriculum.groups import spread
from halfway.curriculum.tasks.verifiers.helpers import Unjudged, count, take_counts
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.running.memory_estimate import rank_parts
from halfway.experiments.running.parts import sync_weights
from halfway.trainers.distributed import workers
from halfway.trainers.distributed.collectives import lost_processes, wait_for_all
from halfway.trainers.distributed.workers import WorkerGroup
from halfway.trainers.engines.contract import EngineSetup
from halfway.trainers.engines.vllm.part import Vllm
from halfway.trainers.engines.vllm_servers.part import VllmServers
from halfway.trainers.engines.vllm_servers.server_options import server_flags
from halfway.trainers.learner import learner
from halfway.trainers.learner.learner_options import LearnerOptions

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


def write_config(folder: Path, name: str, stage: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(f"output: {folder}\nname: {name}\nbudget: {{steps: {STEPS}}}\n" + SHARED + LEARNER % stage)
    return path


def run(preloaded: Preloaded, folder: Path, name: str, processes: int) -> Path:
    path = write_config(folder, name, "null")
    preloaded(REPOSITORY, folder / f"{name}.txt", "run", path, ranks=processes)
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
def alone(preloaded: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(preloaded, tmp_path_factory.mktemp("alone"), "alone", 1)


@pytest.fixture(scope="module")
def together(preloaded: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(preloaded, tmp_path_factory.mktemp("together"), "together", 2)


def test_two_processes_give_the_run_of_one(alone: Path, together: Path) -> None:
    assert_alike(alone, together)
    assert together.with_suffix(".txt").read_text().count("finished") == 1, "one of the two reports"


@pytest.mark.engines
def test_two_processes_with_sharded_weights_give_the_run_of_one(alone: Path, tmp_path: Path) -> None:
    if find_spec("deepspeed") is None:
        pytest.skip("DeepSpeed is not installed (extra deepspeed)")
    path, output = write_config(tmp_path, "sharded", "3"), tmp_path / "sharded.txt"
    environment = os.environ | {"PYTHONPATH": IMPORTABLE, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = [*launcher, "-m", "halfway.experiments.cli", "run", str(path)]
    with output.open("w") as file:
        done = subprocess.run(words, stdout=file, stderr=file, env=environment, cwd=REPOSITORY, timeout=300)
    assert done.returncode == 0, output.read_text()[-3000:]
    assert_alike(alone, tmp_path / "sharded")


@pytest.mark.parametrize("told", [False, True])
def test_a_lost_process_ends_the_run_and_resuming_completes_it(
    preloaded: Preloaded, together: Path, tmp_path: Path, told: bool
) -> None:
    """The other notices by itself, or by the signal that torch's launcher sends it."""
    path, output = write_config(tmp_path, "broken", "null"), tmp_path / "broken.txt"
    broken = tmp_path / "broken"
    leader, follower = preloaded.begin_ranks(REPOSITORY, output, "run", path)
    deadline = time.monotonic() + 120
    while not list((broken / "checkpoints").glob("step-*2")):  # past a checkpoint, and far from the end
        assert time.monotonic() < deadline, output.read_text()[-3000:]
        time.sleep(0.02)
    os.kill(follower, signal.SIGKILL)
    if told:
        os.kill(leader, signal.SIGTERM)
    killed, ended = time.monotonic(), preloaded.statuses([leader, follower])
    assert time.monotonic() - killed < 30  # the stated time
    assert ended[0] > 0 and ended[1] == -signal.SIGKILL, output.read_text()[-3000:]
    assert told or "a training process has died" in output.read_text()
    assert len(records(broken, "steps")) < STEPS
    if told:
        return
    preloaded(REPOSITORY, tmp_path / "resumed.txt", "resume", broken, ranks=2)
    assert records(broken, "decisions") == records(together, "decisions")
    assert records(broken, "steps") == records(together, "steps")


def request(problem: str, num_rollouts: int = 4, origin: Origin = Origin.FRESH) -> Request:
    return Request(Problem(problem, "", ""), num_rollouts, origin=origin)


class Rollouts:
    """Rollouts of which one cannot be judged."""

    judge_seconds = 0.0

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        count(Unjudged("time"))
        return [Group(one, np.zeros(0, np.int64), ()) for one in requests]


def test_the_leader_counts_answers_that_no_process_could_judge(monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(workers.distributed, "scatter_object_list", lambda *_, **__: None)
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


TRAINING_TIMEOUT = timedelta(seconds=1)
MEETING_TIMEOUT = timedelta(seconds=100)
"""How long one process may take longer than the other to start."""


@pytest.fixture(scope="module")
def two_processes(preloaded: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str]]:
    """A leader that is late for one weight sync and dies in the next, and its follower: status and output."""
    return preloaded.run_ranks(tmp_path_factory.mktemp("ranks"), __file__)


def test_a_slow_leader_is_waited_for_longer_than_training_would(two_processes: list[tuple[int, str]]) -> None:
    for _, output in two_processes:
        assert "synced once" in output, output


def test_a_leader_that_dies_is_noticed_at_once(two_processes: list[tuple[int, str]]) -> None:
    (leader, _), (follower, output) = two_processes
    assert leader == 1
    assert follower == 0 and "a training process has died" in output, output


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("[gloo/transport/tcp/pair.cc:525] Connection closed by peer", "died"),
        ("[gloo/transport/tcp/unbound_buffer.cc] Timed out waiting 5ms for recv", "time"),
    ],
)
def test_lost_and_late_processes_have_different_messages(message: str, said: str) -> None:
    with pytest.raises(UserError, match=said), lost_processes():
        raise RuntimeError(message)


def test_a_process_that_dies_while_learners_are_built_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: Any) -> None:
        raise RuntimeError("[gloo/transport/tcp/pair.cc:537] Read error: Connection reset by peer")

    monkeypatch.setattr(learner, "PlainBackend", lose)
    with pytest.raises(UserError, match="a training process has died"):
        learner.build_backend(torch.nn.Linear(1, 1), LearnerOptions(), None)


class LateThenDead:
    """A sync for which the leader is later than the training group's patience; in the second one the leader dies."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if distributed.get_rank() == 0:
            time.sleep(2 * TRAINING_TIMEOUT.total_seconds())
            if self.calls == 2:
                os._exit(1)
        wait_for_all()
        print("synced once", flush=True)


def main() -> None:
    rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
    store = distributed.TCPStore("127.0.0.1", port, 2, is_master=rank == 0, timeout=MEETING_TIMEOUT)
    distributed.init_process_group("gloo", timeout=TRAINING_TIMEOUT, store=store, rank=rank, world_size=2)
    nothing: Any = None
    group = WorkerGroup(nothing, nothing, LateThenDead())
    if group.rank == 0:
        time.sleep(2 * TRAINING_TIMEOUT.total_seconds())
        group.sync()
        group.sync()
    start = time.monotonic()
    try:
        group.serve()
    except UserError as error:
        print(error, flush=True)
        assert time.monotonic() - start < 20 * TRAINING_TIMEOUT.total_seconds()
        os._exit(0)  # gloo's own threads sometimes abort a process that ends after its peer has died


if __name__ == "__main__":
    main()


def test_the_engine_in_this_process_needs_no_free_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def llm(path: str, **options: Any) -> Any:
        asked.update(options)
        raise ValueError("enough seen")

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=llm))  # type: ignore[arg-type]
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "ERROR")
    policy: Any = SimpleNamespace(dtype=torch.float32)
    with pytest.raises(UserError, match="enough seen"):
        Vllm(kv_cache_gib=2).build(EngineSetup(policy, "model", [1], 0))
    # vLLM refuses to start where less than this share of the device is free, whatever the cache's size.
    assert 0 < asked["gpu_memory_utilization"] <= 0.01
    assert asked["kv_cache_memory_bytes"] == 2 * 2**30


@pytest.mark.parametrize("chunked", [True, False])
def test_a_server_needs_no_free_device(chunked: bool) -> None:
    flags = dict(
        flag.split("=", 1)
        for flag in server_flags("bfloat16", VllmServers(kv_cache_gib=2), 512, chunked)
        if "=" in flag
    )
    assert 0 < float(flags["--gpu-memory-utilization"]) <= 0.01
    assert int(flags["--kv-cache-memory-bytes"]) == 2 * 2**30


@pytest.mark.parametrize(("sequences", "tokens"), [(2048, None), (4096, "8192"), (10_000, "10000")])
def test_a_server_for_thousands_of_sequences_reads_as_many_tokens_in_a_step(sequences: int, tokens: str | None) -> None:
    flags = dict(flag.partition("=")[::2] for flag in server_flags("bfloat16", VllmServers(), sequences, True))
    assert flags["--max-num-seqs"] == str(sequences) and flags.get("--max-num-batched-tokens") == tokens


def test_a_sync_gives_device_memory_back_before_the_engine_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: heard.append("given back"))
    engine: Any = SimpleNamespace(sync=lambda policy, version: heard.append(f"sync {version}"))
    learner: Any = SimpleNamespace(policy=None, policy_version=7)
    sync_weights(engine, learner, None, True)
    assert heard == ["given back", "sync 7"]


@pytest.mark.parametrize(
    ("engine", "copied"),
    [
        ("transformers", True),
        ("{vllm: {entropies: false}}", False),
        ("{vllm: {entropies: true}}", True),
        ("vllm_servers", False),
    ],
)
def test_only_engines_that_use_the_module_cost_a_copy(engine: str, copied: bool) -> None:
    recipe = REPOSITORY / "experiments" / "recipes" / "cluster" / "one_node.yaml"
    config = load_run_config(recipe, [f"rollouts.engine={engine}"])
    assert config.rollouts.engine.part.uses_module == copied
    shape = config.shape
    _, parts = rank_parts(config, shape)
    assert parts["copy to sample from"] == pytest.approx(14.2 if copied else 0, abs=0.1)
