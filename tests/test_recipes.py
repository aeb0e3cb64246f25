"""Every YAML file of the repository trains: two steps of a run, two steps of each arm of a comparison."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from experiments.config import ComparisonConfig, RunConfig, load
from experiments.layers import REPOSITORY
from experiments.propel.config import is_study, load_study, to_plain
from experiments.runs import prepare, train

# A table of results, and copies of configurations beside the results they led to, are no recipes.
NO_RECIPE = {"reproduction.yaml", ".pre-commit-config.yaml", "smollm2.yaml"}
# Those for clusters are validated in test_hardware.py; their models and data are not here.
NO_RECIPES_IN = {"cluster", "results", "runs", "build", "dist"}

TINY = [
    "problems.train=8",
    "rollouts.num_rollouts=4",
    "rollouts.max_response_tokens=48",
    "fill.groups=3",
    "fill.request_groups=4",
    "fill.min_request=1",
    "fill.max_rounds=2",
    "evaluation.points=1",
    "evaluation.problems=2",
    "evaluation.samples=1",
    "budget.steps=2",
    "tracking.mlflow=false",
    "threads=1",
]


def recipes() -> list[Path]:
    found = [path for ending in ("yaml", "yml") for path in REPOSITORY.rglob(f"*.{ending}")]
    places = [(path, path.relative_to(REPOSITORY).parts) for path in found]
    return sorted(
        path
        for path, parts in places
        if path.name not in NO_RECIPE and not any(p in NO_RECIPES_IN or p.startswith(".") for p in parts)
    )


def runs() -> Iterator[tuple[str, RunConfig]]:
    """Each recipe's run, or the runs of its arms with the first seed, at the size of a test."""
    for path in recipes():
        if is_study(path):  # tests/test_propel_study.py does one from end to end
            continue
        config, name = load(path, TINY), str(path.relative_to(REPOSITORY))
        if isinstance(config, ComparisonConfig):
            yield from ((f"{name}:{arm}", config.run(arm, config.seeds[0])) for arm in config.arms)
        else:
            yield name, config


RUNS = dict(runs())


def test_all_recipes_were_found() -> None:
    names = {name.partition(":")[0] for name in RUNS}
    assert {"experiments/quickstart.yaml", "experiments/lab/grpo.yaml", "experiments/lab/ledger.yaml"} <= names
    assert any(name.startswith("experiments/lab/compare.yaml:") for name in RUNS)


def test_every_study_is_acceptable() -> None:
    studies = [load_study(path) for path in recipes() if is_study(path)]
    assert {"sums", "azr_3b", "induction"} <= {study.name for study in studies}
    shared = [study for study in studies if study.name == "sums"]
    # The ablations and the transfer add arms to the study whose folder they use, and change nothing else.
    assert len(shared) == 3 and len({str({**to_plain(study), "arms": ""}) for study in shared}) == 1
    assert all(study.arm(arm) for study in studies for arm in study.arms)


@pytest.mark.parametrize("name", RUNS)
def test_a_recipe_trains_for_two_steps(name: str, tmp_path: Path) -> None:
    config = RUNS[name]
    prepare(config, tmp_path)
    try:
        train(tmp_path, [])
    finally:
        torch.use_deterministic_algorithms(False)  # a run sets it for the whole process
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "finished"
    steps = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [0, 1] and steps[-1]["rollouts"] >= 2 * 3 * 4
    decisions = [json.loads(line) for line in (tmp_path / "decisions.jsonl").read_text().splitlines()]
    labels = {label for label, _ in config.members()}
    assert {member for record in decisions for member, _ in record["decisions"]} <= labels
    assert len((tmp_path / "evaluations.jsonl").read_text().splitlines()) == 2
