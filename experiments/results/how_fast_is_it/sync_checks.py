"""Measures what the checks of weight syncs cost, as a share of a step, by profile of run.

    python experiments/results/how_fast_is_it/sync_checks.py [--steps 40] [--servers]

A run checks its first five syncs and every tenth after them, unless the engine samples from the learner's own module,
which needs no check. With `--servers`, weights go to a vLLM server, which needs vLLM. Seconds of the processor, of this
process and all below it, whatever else they do during a check; the share is of all steps from the sixth on, as in a
long run. Exits with 1 if it is above 2 %.
"""

import statistics
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from halfway.experiments.config.loading import load_run_config
from halfway.experiments.report.text_tables import TextTable
from halfway.experiments.running.build import build_run
from halfway.experiments.running.parts import CHECKED_EVERY, CHECKED_SYNCS
from halfway.experiments.scripts import script, script_parser
from halfway.trainers.engines.sync_check import SyncCheck

PROFILES = {
    "waiting, the learner's module": [],
    "waiting ahead (staleness 1)": ["rollouts.staleness=1", "learner.mismatch=token_masked"],
    "every sync checked": ["rollouts.staleness=1", "learner.mismatch=token_masked", "rollouts.sync_tolerance=1e-3"],
}
SERVERS = {
    "a vLLM server (staleness 1)": [
        "model.path=experiments/starting_models/sums_wide",
        "rollouts.engine={vllm_servers: {}}",
        "rollouts.staleness=1",
        "learner.mismatch=token_masked",
    ]
}
RECIPE, SERVERS_RECIPE = "experiments/recipes/lab/skills_hard.yaml", "experiments/recipes/lab/sums.yaml"
MOST = 0.02


def used() -> float:
    """Seconds of the processor so far, of this process and all that live below it."""
    psutil: Any = import_module("psutil")  # accelerate brings it
    own = psutil.Process()
    return float(sum(sum(each.cpu_times()[:2]) for each in (own, *own.children(recursive=True))))


def measured(recipe: str, steps: int, changes: list[str]) -> tuple[list[float], list[float]]:
    """Seconds of each check, and of each step, from the sixth step on."""
    checks, began = list[float](), list[float]()
    kind: Any = SyncCheck
    original = kind.__call__

    def timed(check: SyncCheck) -> float:
        start = used()
        gap: float = original(check)
        checks.append(used() - start)
        return gap

    config = load_run_config(
        Path(recipe), [f"budget={{steps: {steps}}}", "evaluation.points=0", "tracking.mlflow=false", *changes]
    )
    with tempfile.TemporaryDirectory() as folder:
        training: Any = build_run(config, Path(folder))
        step = training.step

        def noted(clock: Any) -> None:
            if len(began) == CHECKED_SYNCS:
                checks.clear()
            began.append(used())
            step(clock)

        training.step = noted
        try:
            kind.__call__ = timed
            training.train()
        finally:
            kind.__call__ = original
    ends = [*began[1:], used()]
    return checks, [end - start for start, end in zip(began, ends, strict=True)][CHECKED_SYNCS:]


@script
def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = script_parser(__doc__)
    parser.add_argument("--steps", type=int, default=40, help="steps of a run (40)")
    parser.add_argument("--servers", action="store_true", help="send the weights to a vLLM server")
    chosen = parser.parse_args(words)
    rows: list[tuple[str, ...]] = []
    worst = 0.0
    recipe, profiles = (SERVERS_RECIPE, SERVERS) if chosen.servers else (RECIPE, PROFILES)
    for name, changes in profiles.items():
        checks, each = measured(recipe, chosen.steps, changes)
        share = sum(checks) / sum(each)
        if not any("tolerance" in change for change in changes):
            worst = max(worst, share)
        one = f"{1e3 * statistics.median(checks):.1f}" if checks else "-"
        rows.append((name, str(len(checks)), one, f"{1e3 * statistics.median(each):.0f}", f"{share:.1%}"))
    heads = ("", "checks", "a check (ms)", "a step (ms)", "of all steps")
    Console().print(TextTable("What checks of weight syncs cost", heads, tuple(rows)).rich())
    print(f"by default, every {CHECKED_EVERY}th sync is checked")
    sys.exit(worst > MOST)


if __name__ == "__main__":
    main()
