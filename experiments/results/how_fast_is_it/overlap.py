"""Measures how much of sampling and updating overlaps, with one core for each.

    python experiments/results/how_fast_is_it/overlap.py [--engine transformers] [--steps 20] [--width 64] [--repeats 3]

Trains a tiny policy with random weights for some steps, waiting and with rollouts.staleness=1, by turns, and prints a
table of medians. The overlap is (G + U - W) / min(G, U): G and U are the seconds of sampling and update when they
take turns, W those of a step in which they do not. `--engine vllm_servers` needs vLLM, whose server then has the second
core.
"""

import os
import statistics
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from halfway.experiments.scripts import script, script_parser

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
        "fill": {"groups": 8, "degenerate": "keep"},
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


def seconds(engine: str, staleness: int, steps: int, width: int) -> dict[str, float]:
    """Median seconds of the parts of a step, without the first two.

    Args:
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
    parser.add_argument("--steps", type=int, default=20, help="of each run, at least 4")
    parser.add_argument("--width", type=int, default=64, help="of the policy, a multiple of 32")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of runs, by turns")
    arguments = parser.parse_args()
    print("| engine | G, s | U, s | G + U | W, s | overlap | speed-up | ideal |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for _ in range(arguments.repeats):
        fixed = (arguments.steps, arguments.width)
        waiting, ahead = (seconds(arguments.engine, staleness, *fixed) for staleness in (0, 1))
        generation, update, step = waiting["rollout"], waiting["update"], ahead["step"]
        overlap = (generation + update - step) / min(generation, update)
        figures = f"{generation:.2f} | {update:.2f} | {waiting['step']:.2f} | {step:.2f} | {overlap:.2f}"
        ideal = (generation + update) / max(generation, update)
        print(f"| {arguments.engine} | {figures} | {waiting['step'] / step:.2f} | {ideal:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
