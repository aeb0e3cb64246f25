"""The recipes: each file and arm is acceptable and says what it is; each method trains for two steps."""

import json
import re
import shlex
from functools import cache
from pathlib import Path
from shutil import copyfile

import pytest
import torch
from paths import REPOSITORY, TINY
from recipe_files import FILES, FOLDER, recipe_command
from sandboxes import needs_sandbox
from typer.testing import CliRunner

from halfway.controllers import CONTROLLERS
from halfway.curriculum import Stream
from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.components import plain
from halfway.experiments.cli import app
from halfway.experiments.config import yaml_files
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.loading import (
    differences,
    load_comparison_config,
    load_run_config,
    to_plain,
)
from halfway.experiments.config.run import RunConfig, parse_run_config
from halfway.experiments.propel.config import load_study
from halfway.experiments.running.build import build_problems
from halfway.experiments.running.memory_estimate import estimate
from halfway.experiments.running.runs import prepare, train
from halfway.trainers.propel.domains.induction import FunctionInduction, FunctionTask
from halfway.trainers.propel.domains.induction_rules import function_name

COMPARED_THERE = [FILES[f"cluster/{name}"] for name in ("gsm8k", "deepmath", "bigmath")]
CLUSTER = [path for name, path in FILES.items() if name.startswith("cluster/") and path not in COMPARED_THERE]
# Their models are made by commands of their own, from packages that the tests may lack.
PRETRAINED = ("smollm2", "smollm2_repositories", "compare/smollm2")
EVERY_METHOD = FILES["compare/every_method"]


comparison = cache(lambda name: load_comparison_config(FILES[name]))
study = cache(lambda name: load_study(FILES[f"propel/{name}"]))


@pytest.mark.parametrize("name", [name for name in FILES if recipe_command(name) in ("run", "launch")])
def test_a_run_is_acceptable(name: str) -> None:
    config = load_run_config(FILES[name])
    assert str(REPOSITORY) not in str(to_plain(config))
    if FILES[name] not in CLUSTER and name not in PRETRAINED:  # their data are not here
        build_problems(config)  # draws them, and shows them to the environment


@pytest.mark.parametrize("name", [name for name in FILES if recipe_command(name) == "compare"])
def test_every_arm_of_a_comparison_is_acceptable(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for instance in yaml_files.read(FILES[name]).get("instances", ()):
        Path(instance["model"]["path"]).mkdir(parents=True)  # made by a command that the file names, and so are pools
        if generated := instance["problems"].get("generated"):
            pool = Path(generated["pool"]["path"])
            pool.parent.mkdir(parents=True)
            copyfile(FOLDER / "pools" / "operators.parquet", pool)
    config = comparison(name)  # checks every arm
    if FILES[name] in COMPARED_THERE:  # their data are not here
        return
    own = {str(changes.fields.get("problems")): arm for arm, changes in config.arms.items()}
    for arm in own.values():
        build_problems(config.run(arm, config.seeds[0]))


@pytest.mark.parametrize("name", [name.partition("/")[2] for name in FILES if recipe_command(name) == "propel all"])
def test_every_arm_of_a_study_is_acceptable(name: str) -> None:
    assert study(name).name == name and all(study(name).arm(arm) for arm in study(name).arms)


def test_the_arms_that_a_study_suggests_are_acceptable() -> None:
    """The overrides in its comment, of which the first command has the ablations and the last the transfer."""
    comment = FILES["propel/sums"].read_text().partition("domain:")[0]
    overrides = [quoted or word for quoted, word in re.findall(r"'(arms\.[^']+)'| (arms\.[\w.]+=\S+)", comment)]
    more = load_study(FILES["propel/sums"], overrides)
    assert set(more.arms) == {*study("sums").arms, "soft", "probe_only", "kl_0", "other"}
    assert (more.arm("other").training.steps, more.arm("soft").reward.kind) == (0, "soft")


@pytest.mark.parametrize("name", ["greso", "ppo", "prefix_sampling", "pros"])
def test_a_method_is_the_arm_of_the_same_name_in_its_comparison(name: str) -> None:
    run = load_run_config(FILES[f"methods/{name}"])
    arm = comparison(f"compare/{name}").run(name, run.seed)
    assert {field.split(".")[0] for field, _, _ in differences(run, arm)} <= {"name", "budget", "checkpoint"}


def test_the_chain_of_four_is_an_arm_of_its_comparison() -> None:
    run = load_run_config(FILES["methods/all_four"])
    arm = comparison("compare/all_four").run("all_four", run.seed)
    assert {field for field, _, _ in differences(run, arm)} <= {"name", "evaluation.points", "tracking.mlflow"}


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
    domain = study(name).domain.part
    assert isinstance(domain, FunctionInduction)
    return domain


def test_generators_for_induction_get_sixteen_prompts() -> None:
    for name in ("azr_3b", "azr_7b"):
        domain, draws = seeded(name), study(name).training.prompts
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
    for arm in study(name).arms:
        training = study(name).arm(arm).training
        learner = training.learner
        assert (learner.schedule, learner.normalization, learner.clip_low, learner.clip_high) == (
            *("linear", "token", 0.2, 0.2),
        )
        assert learner.total_updates == training.steps * learner.num_minibatches * learner.num_epochs


@pytest.mark.parametrize("file", CLUSTER, ids=lambda file: file.stem)
def test_a_recipe_for_a_cluster_loads_fits_and_would_be_launched(file: Path) -> None:
    """All checks without its machines; its first line says that it has not run on them."""
    assert "not yet run on a GPU" in file.read_text().splitlines()[0]
    checked = CliRunner().invoke(app, ["validate", str(file)])
    assert checked.exit_code == 0 and f"ok: {file}" in checked.output, checked.output
    assert re.search(r"of \d+ GiB of a device", checked.output) and "of its memory" in checked.output
    assert "the model was not checked" in checked.output and "the problems were not checked" in checked.output
    config = load_run_config(file)
    cluster, options = config.cluster, plain(config.rollouts.engine.part)
    needs = list(estimate(config))
    assert cluster.gpus and needs and all(0 < need.gib < need.limit_gib for need in needs)
    hosts = [f"host{number}" for number in range(cluster.train_nodes + cluster.rollout_nodes)]
    printed = CliRunner().invoke(app, ["launch", str(file), "seed=3", "--nodes", ",".join(hosts), "--dry-run"])
    assert printed.exit_code == 0, printed.output
    *serving, training = [line.partition(": ") for line in printed.output.splitlines()]
    servers = cluster.rollout_nodes * (cluster.devices_per_node // options.get("tensor_parallel", 1))
    assert [kind for kind, _, _ in serving] == [
        f"{servers} x server on {','.join(hosts[cluster.train_nodes :])}"
    ] * bool(servers)
    assert all(f"--model={config.model.path}" in shlex.split(line) for _, _, line in serving)
    assert training[0] == f"{cluster.train_nodes} x training host on {','.join(hosts[: cluster.train_nodes])}"
    words = shlex.split(training[2])
    assert load_run_config(file, words[words.index(str(file)) + 1 :]).seed == 3


@pytest.mark.parametrize("file", COMPARED_THERE, ids=lambda file: file.stem)
def test_every_arm_of_a_comparison_for_a_cluster_fits_and_would_be_launched(file: Path, tmp_path: Path) -> None:
    text = file.read_text()
    assert "not yet run on a GPU" in text.splitlines()[0] and "\n# Needs: " in text and "\n# Seeds: " in text
    checked = CliRunner().invoke(app, ["validate", str(file)])
    assert checked.exit_code == 0 and "of 80 GiB of a device" in checked.output, checked.output
    config = load_comparison_config(file)
    assert list(config.arms) == ["grpo", "all_four", "frontier_refill", "replay_frontier_epochs"]
    for arm in config.arms:
        run = config.run(arm, config.seeds[0])
        needs = list(estimate(run))
        assert needs and all(0 < need.gib < need.limit_gib for need in needs)
        prepare(run, tmp_path / arm)
        hosts = ",".join(f"host{number}" for number in range(run.cluster.train_nodes + run.cluster.rollout_nodes))
        words = ["launch", str(tmp_path / arm / "config.yaml"), "--nodes", hosts, "--dry-run"]
        printed = CliRunner().invoke(app, words)
        assert printed.exit_code == 0, printed.output
        assert printed.output.splitlines()[-1].startswith(f"{run.cluster.train_nodes} x training host on host0")


@pytest.mark.parametrize("arm", ["grpo", "frontier_refill", "replay_frontier_epochs"])
def test_an_arm_of_a_comparison_for_a_cluster_trains_a_small_model(arm: str, tmp_path: Path) -> None:
    lab, run = to_plain(load_run_config(FILES["lab/sums"])), load_comparison_config(FILES["cluster/gsm8k"], TINY)
    raw = to_plain(run.run(arm, 0))
    raw |= {"problems": lab["problems"] | {"train": 8}, "model": lab["model"], "environment": lab["environment"]}
    raw["rollouts"] |= {"engine": "transformers", "sync_tolerance": 0.0}
    raw["learner"] |= {"deepspeed": {}, "minibatch_groups": 0}
    assert_trains_for_two_steps(parse_run_config(raw | {"cluster": {}}), tmp_path)


@pytest.mark.parametrize("file", CLUSTER, ids=lambda file: file.stem)
def test_the_settings_of_a_recipe_for_a_cluster_train_a_small_model(file: Path, tmp_path: Path) -> None:
    """Learner, controllers and fill as they are; model, task and engine of the lab, without DeepSpeed."""
    lab = load_run_config(FILES["lab/sums"])
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
    chains["mixture"] = ["mixture", "replay", "uniform"]
    return chains


@pytest.mark.parametrize("members", [pytest.param(m, id=name) for name, m in needs_rollouts_only().items()])
@pytest.mark.parametrize("name", ["one_gpu", "swe_14b"])  # the others are laid over these two
def test_a_recipe_for_a_cluster_takes_another_controller_by_override(name: str, members: list[str]) -> None:
    config = load_run_config(FILES[f"cluster/{name}"], [f"controllers=[{', '.join(members)}]"])
    assert list(config.chain.members) == members


def test_those_controllers_are_nearly_all() -> None:
    expected = "mopps cdas pros retire knapsack pilot rounds signal downsample vcrl replay greso prefix_sampling"
    assert set(expected.split()) <= set(needs_rollouts_only())


@pytest.fixture(scope="session")
def every_method() -> ComparisonConfig:
    return load_comparison_config(EVERY_METHOD, TINY)


def test_the_file_of_every_method_has_every_controller(every_method: ComparisonConfig) -> None:
    entries = [entry for arm in every_method.arms.values() for entry in arm.fields.get("controllers", [])]
    assert {yaml_bases.label_of(entry) for entry in entries} == set(CONTROLLERS.names())


@pytest.mark.parametrize("arm", yaml_files.read(EVERY_METHOD)["arms"])
def test_a_method_trains_for_two_steps(arm: str, every_method: ComparisonConfig, tmp_path: Path) -> None:
    assert_trains_for_two_steps(every_method.run(arm, every_method.seeds[0]), tmp_path)


@pytest.mark.parametrize(
    ("name", "chain"),
    [("methods/all_four", []), ("methods/ppo", ["pros"]), ("lab/ledger", ["prefix_sampling", "uniform"])],
)
def test_a_chain_on_another_learner_or_task_trains_for_two_steps(name: str, chain: list[str], tmp_path: Path) -> None:
    overrides = [f"controllers=[{', '.join(chain)}]"] if chain else []
    assert_trains_for_two_steps(load_run_config(FILES[name], [*TINY, *overrides]), tmp_path)


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
    labels = set(config.chain.members)
    assert {member for record in decisions for member, _ in record["decisions"]} <= labels
    assert len((folder / "evaluations.jsonl").read_text().splitlines()) == 2
