"""The runs that are killed: a few steps of the lab's policy, with chains whose state outlives a commit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from controller_harness import coin

from halfway.curriculum.tasks.verifiers.verify import VERIFIERS
from halfway.trainers.engines import ENGINES
from halfway.trainers.engines.contract import EngineSetup
from halfway.trainers.engines.part import SplitEngine
from halfway.trainers.engines.transformers.part import Transformers
from kills.judging import judged_coin
from kills.server import MODEL, the_server


@dataclass(frozen=True)
class Continuing(Transformers):
    """Sampling in another process, with weights that change under rollouts."""

    @property
    def samples_across_syncs(self) -> bool:
        return True

    def split(self, setup: EngineSetup) -> SplitEngine:
        from halfway.trainers.engines.transformers.engine import ElsewhereEngine
        from kills.engine import ContinuingEngine

        return SplitEngine(ContinuingEngine(setup), partial(ElsewhereEngine, setup.policy, setup.policy_version))


@dataclass(frozen=True)
class Alone(Transformers):
    """Sampling in Ray's actors."""

    @property
    def samples_across_syncs(self) -> bool:
        return True

    def split(self, setup: EngineSetup) -> SplitEngine:
        from kills.engine import AloneEngine, SendingEngine

        return SplitEngine(AloneEngine(setup), partial(SendingEngine, setup.policy, setup.policy_version))


# Here, so that a sampler that is spawned, and imports the command's module anew, has them too.
VERIFIERS.add("coin", coin)
VERIFIERS.add("judged_coin", judged_coin)
ENGINES.add("continuing", Continuing)
ENGINES.add("alone", Alone)


@dataclass(frozen=True)
class Setup:
    """One way to train.

    Attributes:
        rollouts, learner: fields of the configuration.
        ranks: processes that train together.
        exact: whether every undisturbed run has the same bits.
        served: whether a vLLM server samples, which the run does not start.
        on_ray: whether actors on two nodes of Ray, which the run does not start either, sample or ask, and judge.
    """

    rollouts: Mapping[str, Any]
    learner: Mapping[str, Any]
    ranks: int = 1
    exact: bool = True
    served: bool = False
    on_ray: bool = False

    @property
    def patience(self) -> float:
        """Seconds for a launch, which may have to wait for a server that starts."""
        return 1800.0 if self.served else 600.0 if self.on_ray else 180.0


MASKED = {"mismatch": "token_masked"}
SETUPS = {
    "waiting": Setup({}, {}),
    "lockstep": Setup({"staleness": 1}, MASKED),
    "in flight": Setup(
        {"staleness": 2, "in_flight": True, "engine": {"continuing": {}}, "sync_tolerance": 0.0}, MASKED, exact=False
    ),
    "two ranks": Setup({}, {"num_minibatches": 2}, ranks=2),
}
FLYING = {"staleness": 2, "in_flight": True}
SERVED = {
    "vLLM server": Setup(FLYING, MASKED, exact=False, served=True),
    "vLLM server, Ray": Setup({**FLYING, "workers": "ray"}, MASKED, exact=False, served=True, on_ray=True),
}
"""They need vLLM, and Ray."""
ON_RAY = {
    "lockstep, Ray": Setup(
        {"staleness": 1, "workers": "ray", "engine": {"alone": {}}, "sync_tolerance": 0.0}, MASKED, on_ray=True
    )
}
"""They need Ray."""


@dataclass(frozen=True)
class Recipe:
    """What is decided, how it is judged, and how often it is saved."""

    controllers: tuple[Any, ...]
    verifier: str
    every: int


RECIPES = {
    "prefixes, judged apart": Recipe(
        ({"prefix_sampling": {"max_age": 3}}, "uniform", {"greso": {"frozen_epochs": 0, "p_hard": 0.1}}),
        "judged_coin",
        1,
    ),
    "replay and groups that wait": Recipe(
        (
            {"replay": {"share": 0.34, "capacity": 5}},
            {"frontier": {"features": ["probed_rate"]}},
            {"ngu": {"size": 2}},
        ),
        "coin",
        1,
    ),
    "pilots that wait": Recipe(
        ({"prefix_sampling": {}}, "uniform", {"pilot": {"kind": "commit", "initial": 2}}), "coin", 2
    ),
}
STEPS = 6


def write(folder: Path, setup: Setup, recipe: Recipe) -> Path:
    """Write a run's problems and its configuration, which is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    # By the coin's answers a third of the problems is hopeless, a third hard, and a third passes half of the time.
    kinds = [(start, answer) for start in range(4) for answer in ("never", "4", "2")]
    rows = [
        {"prompt": f"^{start}/{i % 6}a2b=", "answer": answer, "probed_rate": (i % 5 + 1) / 6}
        for i, (start, answer) in enumerate(kinds)
    ]
    (folder / "problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source = {
        "path": str(folder / "problems.jsonl"),
        "verifier": recipe.verifier,
        "check_answers": False,
        "feature_columns": ["probed_rate"],
    }
    config: dict[str, Any] = {
        "name": "run",
        "output": str(folder),
        "problems": {"source": {"file": source}, "train": 10},
        "model": {"path": "experiments/starting_models/sums"},
        "controllers": list(recipe.controllers),
        "fill": {"policy": "refill", "groups": 3, "max_rounds": 3},
        "rollouts": {"num_rollouts": 4, "temperature": 1.5, "max_response_tokens": 12, **setup.rollouts},
        "learner": {"lr": 1e-3, **setup.learner},
        "budget": {"steps": STEPS},
        "evaluation": {"points": 3, "samples": 2, "problems": 2},
        "checkpoint": {"every": recipe.every},
        "tracking": {"mlflow": False},
        "threads": 1,
    }
    if setup.served:
        server = {"addresses": [the_server().address], "folder": str(folder), "seconds": 30.0}
        config["model"] = {"path": MODEL}
        config["rollouts"] |= {"engine": {"vllm_servers": server}}
    path = folder / "run.yaml"
    path.write_text(json.dumps(config))
    return path
