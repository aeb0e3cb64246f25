"""Measures what the one planning process of a large run spends: with rollouts in Ray's object store, or in memory.

    python experiments/results/how_fast_is_it/planner.py [--steps 4] [--rows 8192x2000 65536x2000] [--place ray memory]

A row is a number of rollouts outstanding and their length in tokens; a batch is half of them. The loop, the session
with a chain of `frontier` and `greso` on 100,000 problems, the event log, the division of a batch among eight ranks and
the checkpoints are those of a run. There is no model: workers on two nodes of a Ray cluster, processes of this
machine, make up the rollouts, in groups of 16, half of them begun by older weights; one group in a hundred takes 0.2 s
longer.

Seconds are processor time of the planning process with its threads, without Ray's own processes; medians over the steps
after the first. "GPUs fed" is how many GPUs at 5,000 tokens/s generate what it handles. Needs Ray; the largest rows put
3 GB on the disk. `--keep` adds the rows to planner.json, from which `make reproduction` writes the table of the page.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from halfway.controllers.chains import from_yaml
from halfway.curriculum import Group, Problem, ProblemSet, Request, Rollout, Session, Stream
from halfway.curriculum.environments.single_turn import SingleTurn
from halfway.curriculum.session import ALWAYS_PROVIDED
from halfway.curriculum.stored import join
from halfway.curriculum.support.atomic import write_json
from halfway.experiments.report.text_tables import TextTable
from halfway.experiments.scripts import script, script_parser
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.learner.batch import make_batch
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.learner.microbatches import scatter
from halfway.trainers.learner.sharing import divide
from halfway.trainers.loop.checkpoint import Checkpoints
from halfway.trainers.loop.loop_options import Budget, CheckpointOptions, FillOptions
from halfway.trainers.loop.progress import Stopwatch
from halfway.trainers.loop.training import Training
from halfway.trainers.rollouts.collector import Judging
from halfway.trainers.rollouts.ray_pool import RayPool, Shares
from halfway.trainers.rollouts.sampling_process import ProcessPool

ROWS = ("8192x100", "8192x1000", "8192x5000", "8192x25000", "65536x100", "65536x2000")
GROUP_SIZE, PROBLEMS, RANKS = 16, 100_000, 8
MICROBATCH_TOKENS = 2**16
TOKENS_A_SECOND = 5_000
"""What a GPU generates."""
STORE_BYTES = 512 << 20
"""Memory of a node's object store; Ray moves what does not fit to the disk."""
STRAGGLERS, STRAGGLING_SECONDS = 0.01, 0.2
"""Share of the groups that take so much longer."""


class Engine:
    """Knows the version of the weights."""

    version = 0

    def become(self, version: int) -> None:
        self.version = version


@dataclass
class Made:
    """Takes the place of a collector in a worker: random tokens, every other turn begun by the weights before."""

    length: int
    engine: Engine = field(default_factory=Engine)
    environment: Any = field(default_factory=SingleTurn)
    judging: Judging = field(default_factory=Judging)
    judge_seconds: float = 0.0

    def run(self, requests: Sequence[Request], stream: Stream) -> list[Group]:
        version = self.engine.version
        groups = SimulatedRollouts(length=self.length, policy_version=version).run(requests, stream)
        half = self.length // 2
        spans = ((version - 1, half), (version, self.length - half))

        def made(number: int, rollout: Rollout, random: np.random.Generator) -> Rollout:
            logprobs_T, entropies_T = random.exponential(0.5, (2, self.length)).astype(np.float32)
            turn = replace(rollout.turns[0], logprobs_T=-logprobs_T, entropies_T=entropies_T)
            if version and number % 2:
                turn = replace(turn, policy_version=version - 1, spans=spans)
            return replace(rollout, turns=(turn,))

        found = []
        for group in groups:
            random = stream.at("values", group.request.ticket).generator()
            if random.random() < STRAGGLERS:
                time.sleep(STRAGGLING_SECONDS)
            found.append(replace(group, rollouts=tuple(made(i, one, random) for i, one in enumerate(group.rollouts))))
        return found


def maker(length: int) -> Any:
    """What makes the collector of a worker."""
    return partial(Made, length)


class Planning:
    """The planner's part of an update: each rank gets what it reads of the batch."""

    def __init__(self, send: Any):
        self.send, self.policy_version = send, 0

    def update(self, groups: Sequence[Group], stream: Stream, spent: float = 0.0) -> dict[str, float]:
        batch = make_batch(groups, LearnerOptions(), join)
        dealt = scatter(batch.sequences, MICROBATCH_TOKENS, RANKS)
        self.send(divide(batch, [{i for own, _ in parts for i in own} for parts in dealt]))
        self.policy_version += 1
        return {}

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


@contextmanager
def on_ray(length: int) -> Iterator[tuple[Any, Any, Any]]:
    """Pool, how to send shares, and how to change the weights."""
    import ray
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"num_cpus": 2, "object_store_memory": STORE_BYTES}
    cluster: Any = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False)
        pool = RayPool(maker(length), at_once=2)
        shares: Any = ray.remote(num_cpus=0)(Shares)
        ranks = shares.remote()
        yield pool, lambda parts: ray.get(ranks.put.remote(parts)), lambda v: pool.on_engine("become", v)
        pool.close()
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def in_memory(length: int) -> Iterator[tuple[Any, Any, Any]]:
    """The same with one worker, and all arrays in this process, which pickles the shares as it would for gloo."""
    pool = ProcessPool(maker(length), at_once=2)
    yield pool, ForkingPickler.dumps, lambda version: pool.on_engine("become", version)
    pool.close()


def measure(rollouts: int, length: int, place: str, steps: int) -> dict[str, Any]:
    """One row, in this process."""
    groups = rollouts // GROUP_SIZE // 2
    problems = ProblemSet(
        [Problem(f"p{i}", "", "", features={"difficulty": i / PROBLEMS * 4 - 2}) for i in range(PROBLEMS)]
    )
    spent: list[float] = []
    with (
        tempfile.TemporaryDirectory() as name,
        (on_ray if place == "ray" else in_memory)(length) as (rolls, send, sync),
    ):
        pool: Any = rolls
        folder = Path(name)
        learner: Any = Planning(send)
        controller = from_yaml([{"frontier": {"features": ["difficulty"]}}, "greso"])
        session = Session(problems, controller, GROUP_SIZE, provides=ALWAYS_PROVIDED, seed=0)
        run = Training(
            folder=folder,
            session=session,
            rollouts=pool,
            learner=learner,
            sync=lambda: sync(learner.policy_version),
            fill=FillOptions(groups=groups),
            budget=Budget(steps=steps),
            seed=0,
            checkpoints=Checkpoints(folder / "checkpoints", CheckpointOptions(every=10**6)),
            pool=pool,
            staleness=1,
            in_flight=True,
        )
        for _ in range(steps):
            begun = time.process_time()
            run.step(Stopwatch())
            spent.append(time.process_time() - begun)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        run.await_groups(list(run.waiting))
        begun, began = time.process_time(), time.monotonic()
        run.checkpoints.write(steps, run.state_now(), learner.save)
        saved, waited = time.process_time() - begun, time.monotonic() - began
        size = sum(path.stat().st_size for path in run.checkpoints.path(steps).iterdir())
    batch = statistics.median(spent[1:])
    return {
        "rollouts": rollouts,
        "length": length,
        "place": place,
        "batch_seconds": batch,
        "rollout_ms": 1e3 * batch / groups / GROUP_SIZE,
        "checkpoint_seconds": waited,
        "checkpoint_processor_seconds": saved,
        "checkpoint_bytes": size,
        "peak_gib": peak,
        "gpus": length / TOKENS_A_SECOND / (batch / groups / GROUP_SIZE),
    }


def rounded(value: float) -> int:
    """The value to two digits."""
    return int(float(f"{value:.2g}"))


COLUMNS = ("rollouts outstanding", "ms a rollout", "s a batch", "checkpoint, s", "GB", "memory, GiB", "GPUs fed")


def table(rows: Sequence[dict[str, Any]]) -> TextTable:
    """The measurements as a table."""
    lines = tuple(
        (
            f"{row['rollouts']:,} of {row['length']:,} tokens, {'Ray' if row['place'] == 'ray' else 'in memory'}",
            f"{row['rollout_ms']:.3f}",
            f"{row['batch_seconds']:.2f}",
            f"{row['checkpoint_seconds']:.1f}",
            f"{row['checkpoint_bytes'] / 1e9:.2f}",
            f"{row['peak_gib']:.2f}",
            f"{rounded(row['gpus']):,}",
        )
        for row in rows
    )
    return TextTable("What one planning process carries", COLUMNS, lines)


@script
def main() -> int:
    """Measure each row in a process of its own, and print the table."""
    parser = script_parser(__doc__)
    parser.add_argument("--rows", nargs="+", default=ROWS, metavar="ROLLOUTSxTOKENS")
    parser.add_argument("--place", nargs="+", default=["ray", "memory"], choices=["ray", "memory"])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--here", action="store_true", help="print the one row as JSON")
    options = parser.parse_args()
    file = Path(__file__).with_suffix(".json")
    known = json.loads(file.read_text()) if options.keep and file.exists() else []
    found = {(row["rollouts"], row["length"], row["place"]): row for row in known}
    for row, place in product(options.rows, options.place):
        rollouts, length = map(int, row.split("x"))
        if options.here:
            print(json.dumps(measure(rollouts, length, place, options.steps)))
            continue
        alone = [sys.executable, __file__, "--here", "--rows", row, "--place", place, f"--steps={options.steps}"]
        done = subprocess.run(alone, stdout=subprocess.PIPE, text=True, check=True)
        found[rollouts, length, place] = json.loads(done.stdout.splitlines()[-1])
        if options.keep:
            write_json(file, [found[key] for key in sorted(found)])
    if found:
        Console().print(table([found[key] for key in sorted(found)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
