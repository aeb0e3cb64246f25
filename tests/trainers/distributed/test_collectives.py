"""Processes wait patiently for a busy one, and notice at once when it dies. Also a program of two processes."""

import os
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import pytest
from paths import IMPORTABLE
from torch import distributed

from halfway.curriculum import UserError
from halfway.trainers.distributed.collectives import lost_processes, wait_for_all
from halfway.trainers.distributed.workers import WorkerGroup

TRAINING_TIMEOUT = timedelta(seconds=1)
MEETING_TIMEOUT = timedelta(seconds=100)
"""How long one process may take longer than the other to start."""


@pytest.fixture(scope="module")
def two_processes() -> list[subprocess.CompletedProcess[str]]:
    """A leader that is late for one weight sync and dies in the next, and its follower."""
    environment = os.environ | {"PYTHONPATH": IMPORTABLE, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    from halfway.trainers.distributed.ports import free_port

    environment |= {"MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    started = [
        subprocess.Popen(
            [sys.executable, __file__],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment | {"RANK": str(rank)},
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in started]
    return [subprocess.CompletedProcess(p.args, p.returncode, o) for p, o in zip(started, outputs, strict=True)]


def test_a_slow_leader_is_waited_for_longer_than_training_would(
    two_processes: list[subprocess.CompletedProcess[str]],
) -> None:
    for process in two_processes:
        assert "synced once" in process.stdout, process.stdout


def test_a_leader_that_dies_is_noticed_at_once(two_processes: list[subprocess.CompletedProcess[str]]) -> None:
    leader, follower = two_processes
    assert leader.returncode == 1
    assert follower.returncode == 0 and "a training process has died" in follower.stdout, follower.stdout


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("[gloo/transport/tcp/pair.cc:525] Connection closed by peer", "a training process has died"),
        ("[gloo/transport/tcp/unbound_buffer.cc] Timed out waiting 5ms for recv", "has not answered in time"),
    ],
)
def test_a_lost_process_and_a_late_one_are_told_apart(message: str, said: str) -> None:
    with pytest.raises(UserError, match=said), lost_processes():
        raise RuntimeError(message)


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
