"""Measures what a run costs beside its own steps, in a fresh Python and in a warm worker of `halfway compare`.

    python -m halfway.experiments.benchmarks.start_up [--recipe experiments/recipes/lab/sums.yaml] [--runs 7]

Runs of one step alternate between the two; their seconds count from the request to the end, without the step itself.
The worker's first run, which waits for its imports, has a separate row.
"""

import json
import tempfile
import time
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from halfway.experiments.comparing.processes import OwnProcess, RunProcess, WarmWorker, Workforce
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.paths import find
from halfway.experiments.config.run import RunConfig
from halfway.experiments.running.runs import prepare
from halfway.experiments.scripts import script, script_parser

OVERRIDES = ("budget.steps=1", "evaluation.points=0", "tracking.mlflow=false", "threads=1")
POLL_SECONDS = 0.005


@script
def main() -> None:
    """Run all rows and print the table."""
    parser = script_parser(__doc__)
    parser.add_argument("--recipe", type=Path, default=find("experiments/recipes/lab/sums.yaml"))
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    config = load_run_config(arguments.recipe, OVERRIDES)
    with tempfile.TemporaryDirectory() as folder:
        seconds = measured(config, Path(folder), arguments.runs)
    table = Table("a run in", "runs", "seconds, median", "least", "most", title=f"start-up, {config.name}")
    for name, values in seconds.items():
        numbers = (f"{value:.2f}" for value in (median(values), min(values), max(values)))
        table.add_row(name, str(len(values)), *numbers)
    Console(width=100).print(table)


def measured(config: RunConfig, folder: Path, runs: int) -> dict[str, list[float]]:
    """The seconds of every run apart from its step, by the way in which it was started."""
    workforce = Workforce(parallel=1)
    place, begin = prepared(config, folder / "first"), time.perf_counter()
    worker = workforce.start(config, place)
    assert isinstance(worker, WarmWorker), "this recipe's runs need a process of their own"
    first = seconds_of(worker, place, begin)
    own, warm = [], []
    for i in range(runs):
        place, begin = prepared(config, folder / f"own-{i}"), time.perf_counter()
        own.append(seconds_of(OwnProcess(place, worker.environment), place, begin))
        place, begin = prepared(config, folder / f"warm-{i}"), time.perf_counter()
        worker.train(config, place)
        warm.append(seconds_of(worker, place, begin))
    workforce.release(worker)
    workforce.close()
    return {"a process of its own": own, "a warm worker": warm, "a worker just started": [first]}


def prepared(config: RunConfig, folder: Path) -> Path:
    """Prepare a new run directory, and return it."""
    prepare(config, folder)
    return folder


def seconds_of(process: RunProcess, folder: Path, begin: float) -> float:
    """Seconds from `begin` to the end of the run, without its step."""
    while (status := process.poll()) is None:
        time.sleep(POLL_SECONDS)
    end = time.perf_counter()
    assert status == 0, (folder / "log.txt").read_text()
    [step] = (folder / "steps.jsonl").read_text().splitlines()
    return end - begin - float(json.loads(step)["seconds"])


if __name__ == "__main__":
    main()
