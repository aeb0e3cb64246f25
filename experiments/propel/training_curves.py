"""Figures from the first and last steps of a generator's training, from the records of its steps."""

import json
import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

from halfway.experiments.propel.config import PropelConfig

WINDOW = 4
"""Number of steps at either end of training over which figures are averaged."""

QUANTITIES = {
    "tokens per text": lambda step: step["learner"]["tokens"] / step["learner"]["sequences"],
    "reward": lambda step: step["learner"]["reward/mean"],
    "parsed": lambda step: step["learner"]["tasks/parsed"],
    "valid": lambda step: step["learner"]["tasks/valid"],
    "top topic": lambda step: step["learner"]["tasks/top_topic"],
}


def first_and_last_steps(config: PropelConfig, arm: str) -> dict[str, Any] | None:
    """The figures of an arm's first and last `WINDOW` steps over seeds, as in PROPEL's table 7 for software.

    Returns:
        mean, stderr and values of each quantity, under "first" and "last"; None for an arm that was not trained, or
        whose records predate some of the quantities.
    """
    ends: dict[str, list[dict[str, float]]] = {"first": [], "last": []}
    for seed in config.seeds:
        file = config.folder / f"seed-{seed}" / "arms" / arm / "steps.jsonl"
        steps = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        if not steps or "tasks/parsed" not in steps[0]["learner"]:
            continue
        for end, part in (("first", steps[:WINDOW]), ("last", steps[-WINDOW:])):
            ends[end].append({name: fmean(map(of, part)) for name, of in QUANTITIES.items()})
    if not ends["first"]:
        return None
    return {
        end: {name: over_all_seeds([found[name] for found in seeds]) for name in QUANTITIES}
        for end, seeds in ends.items()
    }


def over_all_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Mean, standard error (None for one seed), and the values themselves."""
    stderr = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"mean": fmean(values), "stderr": stderr, "values": list(values)}
