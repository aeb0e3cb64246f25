"""Digests of the weights and the log after short runs of five chains, to compare before and after a change.

    python tests/support/five_chains.py before.json              # writes them
    python tests/support/five_chains.py before.json              # afterwards: compares with them
    python tests/support/five_chains.py before.json --in files   # the same with arrays in files

A real learner trains a small model on scripted rollouts, of one turn and of several, in three ways: rollouts are
awaited, sampled ahead in lockstep, or in flight while the weights change. Weights are only equal on one machine.
"""

import argparse
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from learner_harness import OPTIONS, build_model, learner
from loop_harness import records, training
from stores import StoredRollouts
from virtual_pool import VirtualPool

from halfway.controllers.chains import from_yaml
from halfway.curriculum import Group, Request, Stream, Unit, UserError
from halfway.curriculum.environments.single_turn import SingleTurn
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.contracts import Rollouts
from halfway.trainers.loop.loop_options import Budget, FillOptions
from halfway.trainers.loop.training import Training
from halfway.trainers.rollouts.collector import Judging
from halfway.trainers.rollouts.file_store import FileStore
from halfway.trainers.rollouts.ray_pool import RayPool

CHAINS: dict[str, list[Any]] = {
    "plain": ["uniform"],
    "prefix_sampling": ["prefix_sampling", "uniform"],
    "pros": ["pros"],
    "replay": [{"replay": {"share": 0.5, "order": "rare"}}, "uniform"],
    "frontier_greso": ["frontier", "greso"],
}
WAYS: dict[str, dict[str, Any]] = {
    "waiting": {},
    "lockstep": {"staleness": 2},
    "in_flight": {"staleness": 2, "in_flight": True},
}
UNITS: tuple[Unit, ...] = ("tokens", "steps")
FILL = FillOptions(policy="refill", groups=4, request_groups=5, max_rounds=6)
VARIES = {"timing", "seconds", "judge_seconds", "t", "began", "ended", "group", "arrays"}
"""Seconds, and how a group is packed."""


Place = Callable[[Any], Any]
"""Puts the arrays of rollouts somewhere."""


def build(
    folder: Path, chain: str, way: str, unit: Unit, steps: int = 6, place: Place = lambda rollouts: rollouts
) -> Training:
    """A run that has not begun."""
    rollouts = place(SimulatedRollouts(unit=unit, length=12 if unit == "tokens" else 4))
    pool = VirtualPool(rollouts, rate=24.0)
    trained = learner(build_model(), OPTIONS)

    def sync() -> None:
        pool.spend(0.2)
        rollouts.sync(trained.policy_version)
        pool.change_weights(trained.policy_version)

    parts: dict[str, Any] = {"controller": from_yaml(CHAINS[chain]), "rollouts": rollouts, "sync": sync}
    parts |= {"pool": pool} if WAYS[way] else {}
    return training(folder, FILL, Budget(steps=steps), learner=trained, **parts, **WAYS[way])


def digests(folder: Path, run: Training) -> dict[str, str]:
    """Digests of a finished run: of the learner's weights, and of the log without times."""
    weights: Any = run.learner
    hashed = hashlib.sha256()
    for name, values in weights.policy.state_dict().items():
        hashed.update(name.encode() + values.numpy().tobytes())
    names = ["decisions", "steps", *(["events"] if run.staleness else [])]
    lines = [[{k: v for k, v in line.items() if k not in VARIES} for line in records(folder, name)] for name in names]
    log = hashlib.sha256(json.dumps(lines, sort_keys=True).encode())
    return {"weights": hashed.hexdigest()[:16], "log": log.hexdigest()[:16]}


def in_files(folder: Path) -> Place:
    return lambda rollouts: StoredRollouts(rollouts, FileStore(folder / "payloads"))


class Engine:
    """Stands for rollouts that it is given, after a pause in seconds."""

    def become(self, rollouts: SimulatedRollouts, pause: float = 0.0) -> None:
        self.rollouts, self.pause = rollouts, pause


@dataclass
class Scripted:
    """Simulated rollouts in the place of a collector."""

    engine: Engine = field(default_factory=Engine)
    environment: Any = field(default_factory=SingleTurn)
    judging: Judging = field(default_factory=Judging)
    judge_seconds: float = 0.0

    def run(self, *job: Any) -> list[Group]:
        time.sleep(self.engine.pause)
        return self.engine.rollouts.run(*job)


@dataclass
class RayRollouts(Rollouts):
    """Simulated rollouts in Ray actors. While both work on a call, the fourth or later, `kill` is called."""

    pool: RayPool
    rollouts: SimulatedRollouts
    kill: Callable[[], None] | None
    calls: int = 0

    def __post_init__(self) -> None:
        self.sync(self.rollouts.policy_version)

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        self.calls += 1
        if self.calls >= 4 and len(requests) > 1 and self.kill:
            before, kill, self.kill = self.pool.resampled, self.kill, None
            self.pool.on_engine("become", self.rollouts, 3.0)
            self.pool.submit(requests, stream)
            time.sleep(0.2)
            kill()
            self.pool.on_engine("become", self.rollouts)
            assert self.pool.resampled > before
        else:
            self.pool.submit(requests, stream)
        return self.pool.take([request.ticket for request in requests])

    def sync(self, version: int) -> None:
        self.rollouts.sync(version)
        self.pool.on_engine("become", self.rollouts)


@contextmanager
def in_ray() -> Iterator[Place]:
    """Ray on two nodes, which are processes of this machine.

    In every tenth run the second node is killed and replaced, and in the run after it an actor is killed. All arrays
    lie where they were sampled, so those on the node are lost.
    """
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": 80 << 20}
    settings = {"max_direct_call_object_size": 100, "health_check_period_ms": 500, "health_check_failure_threshold": 6}
    settings["worker_register_timeout_seconds"] = 300  # on a busy machine a process starts slowly
    head = {**node, "include_dashboard": False, "_system_config": settings}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        seconds = [cluster.add_node(**node)]
        paths = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
        ray.init(address=cluster.address, log_to_driver=False, runtime_env=paths)
        runs, pools = count(), list[RayPool]()

        def kill_node() -> None:
            os.kill(seconds[0].all_processes["raylet"][0].process.pid, signal.SIGKILL)
            cluster.remove_node(seconds.pop(), allow_graceful=False)
            seconds.append(cluster.add_node(**node))

        def kill_actor() -> None:
            ray.kill(pools[0].actors[0], no_restart=False)

        def place(rollouts: SimulatedRollouts) -> RayRollouts:
            run = next(runs) % 10
            if run == 0:  # what a node has lost is started on the other, and stays there; new actors are on both
                for pool in pools:
                    pool.close()
                pools[:] = [RayPool(Scripted)]  # type: ignore[arg-type]
            return RayRollouts(pools[0], rollouts, {0: kill_node, 1: kill_actor}.get(run))

        yield place
    finally:
        ray.shutdown()
        cluster.shutdown()


def finish(start: Callable[[], Training]) -> Training:
    """Train to the end. A run that stops since a node was lost is resumed."""
    run = start()
    try:
        run.train()
    except UserError as error:
        assert "a node was lost" in str(error)
        run = start()
        run.train()
    return run


def all_digests(folder: Path, place: Place = lambda rollouts: rollouts) -> dict[str, dict[str, str]]:
    found = {}
    for chain, way, unit in product(CHAINS, WAYS, UNITS):
        name = f"{chain} {way} {unit}"
        run = finish(partial(build, folder / name, chain, way, unit, place=place))
        found[name] = digests(folder / name, run)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--in", dest="place", choices=["memory", "files", "ray"], default="memory")
    options = parser.parse_args()
    path = options.path
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        places = {"memory": nullcontext(lambda it: it), "files": nullcontext(in_files(folder)), "ray": in_ray()}
        with places[options.place] as place:
            found = all_digests(folder, place)
    if path.exists():
        before = json.loads(path.read_text())
        differ = [name for name in before.keys() | found.keys() if before.get(name) != found.get(name)]
        print(f"{len(found) - len(differ)} of {len(found)} runs equal", *sorted(differ), sep="\n  ")
        sys.exit(bool(differ))
    path.write_text(json.dumps(found, indent=1) + "\n")
