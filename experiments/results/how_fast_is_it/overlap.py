"""Measures how much of sampling and updating overlaps, with one core for each.

    python experiments/results/how_fast_is_it/overlap.py [--engine transformers] [--steps 20] [--width 64] [--repeats 3]

Trains a tiny policy with random weights for some steps, waiting and with rollouts.staleness=1, by turns, and prints a
table of medians. The overlap is (G + U - W) / min(G, U): G and U are the seconds of sampling and update when they
take turns on one core, W those of a step in which they do not and have one each. V are the seconds of a waiting step
on both cores, where what sends and judges need not share the sampler's. `--engine vllm_servers` needs vLLM.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from halfway.curriculum import Request, Stream
from halfway.experiments.scripts import script, script_parser
from halfway.trainers.contracts import Rollouts
from halfway.trainers.rollouts.in_flight import InlinePool

LEARNER, SAMPLER = 0, 1
"""Cores."""


def config(engine: str, model: str, staleness: int, steps: int) -> dict[str, Any]:
    """The run: 64 rollouts a step, all of which train."""
    servers = {"vllm_servers": {"count": 1, "kv_cache_gib": 0.1, "folder": tempfile.gettempdir()}}
    return {
        "name": "overlap",
        "problems": {"source": {"running_sums": {}}, "train": 64},
        "model": {"path": model},
        "controllers": ["uniform"],
        "fill": {"groups": 8, "zero_variance": "keep"},
        "rollouts": {
            "engine": servers if engine == "vllm_servers" else engine,
            "num_rollouts": 8,
            "max_response_tokens": 64,
            "staleness": staleness,
        },
        "learner": {"lr": 1e-5, "mismatch": "token_truncated"},
        "budget": {"steps": steps},
        "evaluation": {"points": 0},
        "tracking": {"mlflow": False},
        "threads": 1,
    }


def pin(process: int, core: int) -> None:
    """Give all threads of a process and of those that it has started a core."""
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(ProcessLookupError, FileNotFoundError):  # a thread that has ended meanwhile
            os.sched_setaffinity(int(task.name), {core})
            for child in (task / "children").read_text().split():
                pin(int(child), core)


class PinnedPool(InlinePool):
    """Samples on a core of its own, and what it starts there stays there."""

    def __init__(self, rollouts: Rollouts, core: int):
        super().__init__(rollouts)
        self._core = core

    def submit(self, requests: Sequence[Request], stream: Stream) -> None:
        """Start sampling, with the client bound to its own core."""
        os.sched_setaffinity(0, {self._core})
        super().submit(requests, stream)
        os.sched_setaffinity(0, {LEARNER})


def seconds(engine: str, staleness: int, client: int, steps: int, width: int) -> dict[str, float]:
    """Median seconds of the parts of a step, without the first two.

    Args:
        client: the core of what sends and judges while the learner waits.
        width: of the policy.
    """
    from halfway.experiments.config.run import parse_run_config
    from halfway.experiments.report.records import load_run_records
    from halfway.experiments.running.build import build_run
    from halfway.experiments.starting_models.warm_start import WarmStart, build_model, build_tokenizer

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as model:
        shape = WarmStart(hidden=width, heads=width // 32, layers=2)  # a size of heads that vLLM has
        build_model(shape).save_pretrained(model)
        build_tokenizer().save_pretrained(model)
        training = build_run(parse_run_config(config(engine, model, staleness, steps)), Path(folder))
        pin(os.getpid(), SAMPLER)
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), {LEARNER})
        if not staleness:
            training.pool = PinnedPool(training.rollouts, client)
        training.train()
        parts = [step.timing for step in load_run_records(Path(folder)).steps[2:]]
    names = ("rollout", "update", "drain", "sync")
    whole = {"step": statistics.median(sum(part.get(name, 0.0) for name in names[:3]) for part in parts)}
    return whole | {name: statistics.median(part.get(name, 0.0) for part in parts) for name in names}


@script
def main() -> int:
    """Print a row of the table for every pair of runs."""
    parser = script_parser(__doc__)
    parser.add_argument("--engine", default="transformers", choices=("transformers", "vllm_servers"))
    parser.add_argument("--steps", type=int, default=20, help="steps of each run, at least 4")
    parser.add_argument("--width", type=int, default=64, help="width of the policy, a multiple of 32")
    parser.add_argument("--repeats", type=int, default=3, help="number of pairs of runs, which alternate")
    arguments = parser.parse_args()
    print("| engine | G, s | U, s | W, s | overlap | V, s | speed-up V / W | ideal |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for _ in range(arguments.repeats):
        fixed = (arguments.steps, arguments.width)
        turns = seconds(arguments.engine, 0, SAMPLER, *fixed)
        ahead, waiting = (seconds(arguments.engine, staleness, LEARNER, *fixed)["step"] for staleness in (1, 0))
        generation, update = turns["rollout"], turns["update"]
        overlap = (generation + update - ahead) / min(generation, update)
        ideal = (generation + update) / max(generation, update)
        figures = (
            f"{generation:.2f} | {update:.2f} | {ahead:.2f} | {overlap:.2f} | {waiting:.2f} | {waiting / ahead:.2f}"
        )
        print(f"| {arguments.engine} | {figures} | {ideal:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
