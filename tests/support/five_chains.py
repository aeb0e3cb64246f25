"""Digests of the weights and the log after short runs of five chains, to compare before and after a change.

    python tests/support/five_chains.py before.json     # writes them
    python tests/support/five_chains.py before.json     # afterwards: compares with them

A real learner trains a small model on scripted rollouts, of one turn and of several, in three ways: rollouts are
awaited, sampled ahead in lockstep, or in flight while the weights change. Weights are only equal on one machine.
"""

import hashlib
import json
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from learner_harness import OPTIONS, build_model, learner
from loop_harness import records, training
from virtual_pool import VirtualPool

from halfway.controllers.chains import from_yaml
from halfway.curriculum import Unit
from halfway.testing.simulator import SimulatedRollouts
from halfway.trainers.loop.loop_options import Budget, FillOptions
from halfway.trainers.loop.training import Training

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


def build(folder: Path, chain: str, way: str, unit: Unit, steps: int = 6) -> Training:
    """A run that has not begun."""
    rollouts = SimulatedRollouts(unit=unit, length=12 if unit == "tokens" else 4)
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


def all_digests(folder: Path) -> dict[str, dict[str, str]]:
    found = {}
    for chain, way, unit in product(CHAINS, WAYS, UNITS):
        name = f"{chain} {way} {unit}"
        run = build(folder / name, chain, way, unit)
        run.train()
        found[name] = digests(folder / name, run)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    path = Path(sys.argv[1])
    with TemporaryDirectory() as temporary:
        found = all_digests(Path(temporary))
    if path.exists():
        before = json.loads(path.read_text())
        differ = [name for name in before.keys() | found.keys() if before.get(name) != found.get(name)]
        print(f"{len(found) - len(differ)} of {len(found)} runs equal", *sorted(differ), sep="\n  ")
        sys.exit(bool(differ))
    path.write_text(json.dumps(found, indent=1) + "\n")
