"""Every YAML file of the repository trains: two steps of a run, two steps of each arm of a comparison."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from paths import REPOSITORY
from sandboxes import needs_sandbox
from tiny_recipes import TINY
from typer.testing import CliRunner

from halfway.controllers import CONTROLLERS
from halfway.curriculum.streams import Stream
from halfway.experiments.cli import app
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.loading import load_config, load_run_config, to_plain
from halfway.experiments.config.run import RunConfig, parse_run_config
from halfway.experiments.propel.config import is_study, load_study
from halfway.experiments.propel.config import to_plain as study_to_plain
from halfway.experiments.running.memory import estimate
from halfway.experiments.running.runs import prepare, train
from halfway.trainers.propel.domains.induction import FunctionInduction, FunctionTask
from halfway.trainers.propel.domains.induction_rules import function_name

# A table of results, and copies of configurations beside their results, are not recipes.
NO_RECIPE = {"reproduction.yaml", ".pre-commit-config.yaml", "smollm2.yaml", "smollm2_repositories.yaml"}
# The cluster recipes' models, data and machines are not here: see the tests with CLUSTER. What stands under hosts are
# settings of other trainers.
NO_RECIPES_IN = {"cluster", "hosts", "results", "runs", "build", "dist"}

CLUSTER = sorted((REPOSITORY / "experiments" / "recipes" / "cluster").glob("*.yaml"))


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
        if is_study(path):  # tests/experiments/propel/test_propel_study.py does one from end to end
            continue
        config, name = load_config(path, TINY), str(path.relative_to(REPOSITORY))
        if isinstance(config, ComparisonConfig):
            yield from ((f"{name}:{arm}", config.run(arm, config.seeds[0])) for arm in config.arms)
        else:
            yield name, config


RUNS = dict(runs())


def test_all_recipes_were_found() -> None:
    names = {name.partition(":")[0] for name in RUNS}
    assert {
        "experiments/recipes/quickstart.yaml",
        "experiments/recipes/lab/grpo.yaml",
        "experiments/recipes/lab/ledger.yaml",
    } <= names
    assert any(name.startswith("experiments/recipes/lab/compare.yaml:") for name in RUNS)


def test_every_study_is_acceptable() -> None:
    studies = [load_study(path) for path in recipes() if is_study(path)]
    assert {"sums", "azr_3b", "induction"} <= {study.name for study in studies}
    shared = [study for study in studies if study.name == "sums"]
    # The ablations and the transfer add arms to the study whose folder they use, and change nothing else.
    assert len(shared) == 3 and len({str({**study_to_plain(study), "arms": ""}) for study in shared}) == 1
    assert all(study.arm(arm) for study in studies for arm in study.arms)


# One line for each argument name of the seed functions: ten inputs, of different results.
SEED_INPUTS = {
    "a": [str(i * i) for i in range(10)],
    "a, b": [f"{i}, {12 - i}" for i in range(10)],
    "n": [str(7 * i + 1) for i in range(10)],
    "text": [repr(f"Word{'s' * i} and {i} more") for i in range(10)],
    "text, shift": [f"'abc xyz', {i}" for i in range(10)],
    "numbers": [str([i, 3, i, -2, 7 - i]) for i in range(10)],
    "numbers, k": [f"[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], {i}" for i in range(10)],
    "rows": [str([[i, 1], [2, i]]) for i in range(10)],
    "pairs": [str([("a", i), ("b", 3), ("a", 5)]) for i in range(10)],
}


def seeded(name: str) -> FunctionInduction:
    domain = load_study(REPOSITORY / "experiments" / "recipes" / "propel" / f"{name}.yaml").build_domain()
    assert isinstance(domain, FunctionInduction)
    return domain


def test_generators_for_induction_get_sixteen_prompts() -> None:
    for name in ("azr_3b", "azr_7b"):
        domain, draws = (
            seeded(name),
            load_study(REPOSITORY / f"experiments/recipes/propel/{name}.yaml").training.prompts,
        )
        assert len({domain.prompt(Stream(0).at(i)) for i in range(draws)}) == 16 == len(domain.seed_functions)


@needs_sandbox
def test_every_seed_function_makes_a_valid_task() -> None:
    domain = seeded("azr_3b")
    tasks = []
    for code in domain.seed_functions:
        name = function_name(code)
        parameters = code.partition(f"def {name}(")[2].partition(")")[0]
        inputs = "\n".join(f"```input\n{one}\n```" for one in SEED_INPUTS[parameters])
        task = domain.parse(f"```python\n{code}\n```\n{inputs}\n```message\nA hint.\n```")
        assert isinstance(task, FunctionTask), (code, task)
        tasks.append(task)
    for task, checked in zip(tasks, domain.check(tasks), strict=True):
        assert isinstance(checked, FunctionTask), (task.code, checked)
        assert len({result.key for result in checked.results}) > 1, (task.code, checked.results)


@pytest.mark.parametrize("name", ["azr_3b", "azr_7b", "maths"])
def test_the_schedule_of_a_study_from_the_paper_ends_with_its_training(name: str) -> None:
    study = load_study(REPOSITORY / "experiments" / "recipes" / "propel" / f"{name}.yaml")
    for arm in study.arms:
        training = study.arm(arm).training
        learner = training.learner
        assert (learner.schedule, learner.normalization, learner.clip_low, learner.clip_high) == (
            *("linear", "token", 0.2, 0.2),
        )
        assert learner.total_updates == training.steps * learner.num_minibatches * learner.num_epochs


def test_the_recipes_for_clusters_were_found() -> None:
    assert {"one_gpu", "one_node", "two_pools", "swe_14b", "swe_32b"} <= {file.stem for file in CLUSTER}


@pytest.mark.parametrize("file", CLUSTER, ids=lambda file: file.stem)
def test_a_recipe_for_a_cluster_loads_fits_and_would_be_launched(file: Path) -> None:
    """What can be checked without its machines; its first line says that this is all so far."""
    assert "not yet run on a GPU" in file.read_text().splitlines()[0]
    checked = CliRunner().invoke(app, ["validate", str(file)])
    assert checked.exit_code == 0 and f"ok: {file}" in checked.output, checked.output
    config = load_run_config(file)
    cluster, [options] = config.cluster, config.rollouts.engine.values()
    needs = list(estimate(config))
    assert cluster.gpus and needs and all(0 < need.gib < need.limit_gib for need in needs)
    hosts = [f"host{number}" for number in range(cluster.train_nodes + cluster.rollout_nodes)]
    printed = CliRunner().invoke(app, ["launch", str(file), "seed=3", "--nodes", ",".join(hosts), "--dry-run"])
    assert printed.exit_code == 0, printed.output
    words = [shlex.split(line.partition(": ")[2]) for line in printed.output.splitlines()]
    serving, training = words[: -cluster.train_nodes], words[-cluster.train_nodes :]
    assert len(serving) == cluster.rollout_nodes * (cluster.devices_per_node // options.get("tensor_parallel", 1))
    assert all(f"--model={config.model.path}" in one for one in serving)
    for one in training:
        assert load_run_config(file, one[one.index(str(file)) + 1 :]).seed == 3


@pytest.mark.parametrize("file", CLUSTER, ids=lambda file: file.stem)
def test_the_settings_of_a_recipe_for_a_cluster_train_a_small_model(file: Path, tmp_path: Path) -> None:
    """Learner, controllers and fill as they are; model, task and engine of the lab, without DeepSpeed."""
    lab = load_run_config(REPOSITORY / "experiments" / "recipes" / "lab" / "grpo.yaml")
    raw = to_plain(load_run_config(file, [each for each in TINY if not each.startswith("fill.m")]))
    raw |= {"problems": to_plain(lab)["problems"] | {"train": 8}, "model": to_plain(lab)["model"], "cluster": {}}
    raw |= {"environment": to_plain(lab)["environment"]}
    raw["rollouts"] |= {"engine": "transformers", "sync_tolerance": 0.0}
    raw["learner"] |= {"deepspeed": {}}
    assert_trains_for_two_steps(parse_run_config(raw), tmp_path)


def needs_rollouts_only() -> dict[str, list[str]]:
    """Controllers that read nothing of a problem but its rollouts, each in a chain in which it has work to do."""
    from_data = {"solutions", "generated"}
    chains = {}
    for name in CONTROLLERS.names():
        controller = CONTROLLERS.get(name)()
        reads = any(need in from_data or need.startswith("feature:") for need in controller.needs)
        if not reads and "generated" not in controller.claims:
            chooses, first = "problems" in controller.claims, name in ("prefix_sampling", "replay")
            chains[name] = [name] if chooses else [name, "uniform"] if first else ["uniform", name]
    return chains


@pytest.mark.parametrize("members", [pytest.param(m, id=name) for name, m in needs_rollouts_only().items()])
@pytest.mark.parametrize("file", CLUSTER, ids=lambda file: file.stem)
def test_a_recipe_for_a_cluster_takes_another_controller_by_override(file: Path, members: list[str]) -> None:
    checked = CliRunner().invoke(app, ["validate", str(file), f"controllers=[{', '.join(members)}]"])
    assert checked.exit_code == 0 and f"ok: {file}" in checked.output, checked.output


def test_those_controllers_are_nearly_all() -> None:
    expected = (
        "mopps cdas pros retire knapsack pilot conformal rounds signal downsample vcrl replay greso prefix_sampling"
    )
    assert set(expected.split()) <= set(needs_rollouts_only())


def marked(name: str) -> Any:
    """A run that needs the sandbox is skipped where there is none."""
    return pytest.param(name)


@pytest.mark.parametrize("name", map(marked, RUNS))
def test_a_recipe_trains_for_two_steps(name: str, tmp_path: Path) -> None:
    assert_trains_for_two_steps(RUNS[name], tmp_path)


def assert_trains_for_two_steps(config: RunConfig, folder: Path) -> None:
    prepare(config, folder)
    try:
        train(config, folder, [])
    finally:
        torch.use_deterministic_algorithms(False)  # a run sets it for the whole process
    assert json.loads((folder / "status.json").read_text())["state"] == "finished"
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    decisions = [json.loads(line) for line in (folder / "decisions.jsonl").read_text().splitlines()]
    stored = sum(record["origin"] == "stored" for record in decisions)  # these groups fill a slot without a rollout
    assert [step["step"] for step in steps] == [0, 1] and steps[-1]["rollouts"] >= (2 * 3 - stored) * 4
    labels = {label for label, _ in config.members()}
    assert {member for record in decisions for member, _ in record["decisions"]} <= labels
    assert len((folder / "evaluations.jsonl").read_text().splitlines()) == 2
