"""YAML in, complete and checked configurations out; every refusal is one helpful line."""

from pathlib import Path
from typing import Any

import pytest
from messages import says
from paths import REPOSITORY

from halfway.curriculum import UserError
from halfway.curriculum.support import yaml_bases
from halfway.experiments.config import paths
from halfway.experiments.config.loading import (
    differences,
    load_comparison_config,
    load_config,
    load_run_config,
    save,
    to_plain,
)
from halfway.experiments.config.run import parse_run_config
from halfway.trainers.loop.loop_options import Budget

RUN = """
problems: {source: running_sums}
controllers: [prefix_sampling, uniform, greso]
budget: {steps: 4}
learner: {lr: 3e-4}
"""
SERVERS = "rollouts.engine.vllm_servers"
COMPARISON = """
base: run.yaml
budget: {rollouts: 1000}
seeds: [0, 1]
arms:
  plain: {controllers: [uniform]}
  all:
  fast: {learner: {lr: 1e-3}}
"""


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(RUN)
    return path


@pytest.fixture
def comparison_file(run_file: Path) -> Path:
    path = run_file.with_name("comparison-of-three.yaml")
    path.write_text(COMPARISON)
    return path


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load_config(path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_run_is_complete_and_typed(run_file: Path) -> None:
    config = load_run_config(run_file)
    assert (config.name, config.seed, config.learner.lr) == ("run", 0, 3e-4)
    assert config.budget == Budget(steps=4)
    assert config.folder == Path("runs/run")
    assert list(config.chain.members) == ["prefix_sampling", "uniform", "greso"]
    # Every option is written out, so that a later change of a default does not change a saved run.
    source = to_plain(config)["problems"]["source"]
    assert set(source) == {"running_sums"} and source["running_sums"]


@pytest.mark.parametrize("written", ["3e-4", "0.0003", "3.0e-04", ".0003"])
def test_numbers_in_scientific_notation_are_numbers(run_file: Path, written: str) -> None:
    assert load_run_config(run_file, [f"learner.lr={written}"]).learner.lr == 3e-4


def test_overrides_replace_values_and_keep_the_rest(run_file: Path) -> None:
    config = load_run_config(run_file, ["seed=7", "learner.betas=[0.8, 0.9]", "name=other"])
    assert (config.seed, config.learner.betas, config.name, config.learner.lr) == (7, (0.8, 0.9), "other", 3e-4)


def test_a_later_override_wins(run_file: Path) -> None:
    assert load_run_config(run_file, ["seed=1", "seed=2"]).seed == 2


def test_another_environment_or_source_replaces_the_one_below(run_file: Path) -> None:
    config = load_run_config(run_file, ["environment=ledger", "problems.source={ledger: {max_slack: 0}}"])
    source: Any = config.problems.source.part
    assert (config.environment.name, config.problems.source.name) == ("ledger", "ledger")
    assert config.environment.part.unit == "steps" and source.max_slack == 0
    assert load_run_config(run_file).environment.name == "single_turn"


def test_another_alternative_replaces_the_one_below(run_file: Path) -> None:
    assert load_run_config(run_file, ["budget.rollouts=500"]).budget == Budget(rollouts=500)


def test_another_box_replaces_the_usual_one(run_file: Path) -> None:
    """A mapping that chooses one of several kinds replaces its default, without a merge."""
    swerex = "environment={repository: {max_turns: 3, box: {swerex: {deployment: {type: docker}}}}}"
    other, usual = {"swerex": {"deployment": {"type": "docker"}}}, {"bubblewrap": {}}
    back = [swerex, "environment.repository.box={bubblewrap: {}}"]
    for overrides, box in (([swerex], other), (back, usual), (["environment=repository"], usual)):
        environment: Any = load_run_config(run_file, overrides).environment.part
        assert environment.box == box


def test_options_of_a_listed_controller_are_changed_by_label(run_file: Path) -> None:
    before, after = load_run_config(run_file), load_run_config(run_file, ["controllers.greso.target=0.4"])
    assert [name for name, _, _ in differences(before, after)] == ["controllers.greso.target"]


def test_a_label_of_its_own_lets_two_members_share_a_kind(run_file: Path) -> None:
    entry = "controllers=[uniform, {strict: {use: greso, target: 0.1}}, {lax: {use: greso, target: 0.5}}]"
    config = load_run_config(run_file, [entry, "controllers.lax.target=0.6"])
    assert list(config.chain.members) == ["uniform", "strict", "lax"]
    lax: Any = config.chain.members["lax"]
    assert lax.target == 0.6


@pytest.mark.parametrize(
    ("override", "field", "value", "remedy"),
    [
        ("learner.lrr=1", "learner.lrr", "lrr", "'lr'"),
        ("lerner.lr=1", "lerner", "lerner", "'learner'"),
        ("learner.lr=fast", "learner.lr", "'fast'", "a number"),
        ("learner.lr=", "learner.lr", "None", "a number"),
        ("learner.lr=-1", "learner.lr", "-1.0", "positive"),
        ("learner.betas=[0.9]", "learner.betas", "[0.9]", "list of 2"),
        ("learner.advantage=leave_one", "learner.advantage", "'leave_one'", "'leave_one_out'"),
        ("learner=3", "learner", "3", "mapping"),
        ("learner.betas=[0.9, 1]", "learner.betas", "(0.9, 1.0)", "below 1"),
        ("learner.betas=[-0.1, 0.9]", "learner.betas", "(-0.1, 0.9)", "below 1"),
        ("learner.eps=0", "learner.eps", "0.0", "positive"),
        ("learner.weight_decay=-0.1", "learner.weight_decay", "-0.1", "0 (= off) or more"),
        ("learner.lr=.inf", "learner.lr", "inf", "positive"),
        ("learner.total_updates=-1", "learner.total_updates", "-1", "0 (= unused)"),
        ("model.lora.targets=['']", "model.lora.targets", "('',)", "all-linear"),
        ("rollouts.engine.vllm.max_length=128", "rollouts.max_response_tokens", "128", "max_length=128"),
        (
            f"{SERVERS}.addresses=['a:70000']",
            f"{SERVERS}.addresses",
            "'a:70000'",
            "host:port",
        ),
        (
            f"{SERVERS}.addresses=['a:7', 'a:7']",
            f"{SERVERS}.addresses",
            "'a:7'",
            "once",
        ),
        (f"{SERVERS}.folder=''", f"{SERVERS}.folder", "''", "/dev/shm"),
        ("cluster.model.hidden_size=64", "cluster.model.num_hidden_layers", "0", "config.json"),
        ("problems.seed=-1", "problems.seed", "-1", "0 or more"),
        ("controllers.uniform.x=1", "controllers.uniform.x", "'x'", "there is none to choose here, so remove it"),
        ("seed=1.5", "seed", "1.5", "integer"),
        ("seed=-1", "seed", "-1", "0 or more"),
        ("threads=-2", "threads", "-2", "0"),
        ("name=../elsewhere", "name", "'../elsewhere'", "output"),
        ("name='a b'", "name", "'a b'", "letters"),
        ("model.dtype=float16", "model.dtype", "'float16'", "'bfloat16'"),
        ("model.dtype=bfloat16", "model.dtype", "'bfloat16'", "zero_stage=2"),
        ("rollouts.num_rollouts=1", "rollouts.num_rollouts", "1", "at least 2"),
        ("rollouts.engine=transformer", "rollouts.engine", "'transformer'", "'transformers'"),
        ("budget.rollouts=-5", "budget.rollouts", "-5", "positive"),
        ("budget={rollouts: 1, tokens: 2}", "budget", "'tokens': 2", "exactly one"),
        ("problems.source=running_sum", "problems.source", "'running_sum'", "'running_sums'"),
        ("problems.source=[running_sums]", "problems.source", "['running_sums']", "one name"),
        ("problems.train=0", "problems.train", "0", "at least 1"),
        ("environment=single_trun", "environment", "'single_trun'", "'single_turn'"),
        ("controllers=[]", "controllers", "[]", "[uniform]"),
        ("controllers=uniform", "controllers", "'uniform'", "list"),
        ("controllers=[unifrom]", "controllers", "'unifrom'", "'uniform'"),
        ("controllers=[{a: {use: gresso}}, uniform]", "controllers.a.use", "'gresso'", "'greso'"),
        ("controllers.gres.target=1", "controllers.gres", "'gres'", "'greso'"),
        ("controllers.greso.targt=1", "controllers.greso.targt", "'targt'", "'target'"),
        ("controllers.greso.target=much", "controllers.greso.target", "'much'", "a number"),
        ("controllers.greso.target=7", "controllers.greso", "7", ""),
        ("controllers=[uniform, prefix_sampling]", "controllers", "'prefix_sampling'", "list prefix_sampling before"),
        ("controllers=[greso, uniform]", "controllers", "'greso'", "list greso after"),
        ("controllers=[greso]", "controllers", "greso", "add uniform"),
        ("controllers=[prefix_sampling]", "controllers", "prefix_sampling", "add uniform"),
        ("controllers=[uniform, uniform]", "controllers", "'uniform'", "give it another name"),
        ("controllers=[uniform, {second: {use: uniform}}]", "controllers", "uniform and second", "keep only one"),
        (
            "controllers=[prefix_sampling, {again: {use: prefix_sampling}}, uniform]",
            "controllers",
            "prefix_sampling and again",
            "keep only one",
        ),
        ("controllers=[uniform, probe]", "controllers", "'probe'", "list probe before uniform"),
        ("controllers=[probe, {more: {use: probe}}, uniform]", "controllers", "probe and more", "keep only one"),
        ("controllers=[probe, uniform]", "problems.generated", "{}", "give a pool"),
        ("problems.generated=running_sums", "problems.generated", "running_sums", "list probe before"),
        ("problems.also_train=5", "problems.also_train", "5", "name a source in problems.also"),
        ("problems.also={running_sum: {}}", "problems.also", "'running_sum'", "'running_sums'"),
        ("problems.generated=pol", "problems.generated", "'pol'", "'pool'"),
        ("problems.generated={pool: {}}", "problems.generated.pool.path", "missing", "text"),
        ("name=${nowhere}", "name", "nowhere", "not found"),
        ("learner.lr", "override", "'learner.lr'", "learner.lr=3e-4"),
        ("controllers=[uniform", "override", "[uniform", "brackets"),
    ],
)
def test_refusals_name_field_value_and_remedy(
    run_file: Path, override: str, field: str, value: str, remedy: str
) -> None:
    message = refusal(run_file, override)
    assert message.startswith(field), message
    assert value in message and remedy in message, message


@pytest.mark.parametrize(
    ("overrides", "field", "value", "remedy"),
    [
        (["learner.critic.lr=1e-3"], "learner.critic", "{'lr': 0.001}", "use learner.advantage=gae"),
        (["learner.advantage=gae", "learner.divide_by_std=true"], "learner.divide_by_std", "True", "critic.whiten"),
        (["learner.advantage=gae", "learner.deepspeed.zero_stage=2"], "learner.deepspeed.zero_stage", "2", "give null"),
        (["learner.advantage=gae", "learner.critic.lr=0"], "learner.critic.lr", "0.0", "positive"),
        (["learner.advantage=gae", "learner.critic.gamma=0"], "learner.critic.gamma", "0.0", "above 0"),
        (["learner.advantage=gae", "learner.critic.gae_lambda=1.1"], "learner.critic.gae_lambda", "1.1", "0 to 1"),
        (["learner.advantage=gae", "learner.critic.value_clip=-1"], "learner.critic.value_clip", "-1.0", "off"),
        (["learner.advantage=gae", "learner.critic.value_coefficient=0"], "learner.critic", "0.0", "such as 0.5"),
        (["learner.advantage=gae", "learner.critic.warmup_steps=-1"], "learner.critic.warmup_steps", "-1", "updates"),
        (["learner.advantage=gae", "learner.critic.kind=share"], "learner.critic.kind", "'share'", "'shared'"),
        (["learner.advantage=gae", "learner.critic.gama=1"], "learner.critic.gama", "gama", "'gamma'"),
        (["fill.policy=refill", "fill.zero_variance=keep"], "fill.zero_variance", "'keep'", "fill.policy=once"),
    ],
)
def test_settings_that_contradict_the_critic_are_refused(
    run_file: Path, overrides: list[str], field: str, value: str, remedy: str
) -> None:
    message = refusal(run_file, *overrides)
    assert message.startswith(field), message
    assert value in message and remedy in message, message


@pytest.mark.parametrize("also", ["learner.deepspeed.zero_stage=0", "model.lora.rank=4", "model.dtype=float32"])
def test_bfloat16_weights_are_trained_where_float32_ones_take_the_steps(run_file: Path, also: str) -> None:
    load_run_config(run_file, ["model.dtype=bfloat16", also])


def test_a_controller_that_needs_values_is_refused_without_a_critic(run_file: Path) -> None:
    run_file.write_text(RUN.replace("[prefix_sampling, uniform, greso]", "[pros: {top_values: 0.1}]"))
    message = refusal(run_file)
    assert message.startswith("learner.advantage: cannot be 'leave_one_out'") and "controllers.pros needs" in message
    assert load_run_config(run_file, ["learner.advantage=gae"]).learner.advantage == "gae"


@pytest.mark.parametrize("missing", ["problems", "controllers", "budget"])
def test_a_missing_field_is_named(tmp_path: Path, missing: str) -> None:
    raw = {k: v for k, v in yaml_bases.parse(_write(tmp_path, RUN)).items() if k != missing}
    with pytest.raises(UserError, match=f"^{missing}: missing") as caught:
        parse_run_config({"name": "x", **raw})
    assert missing != "controllers" or str(caught.value).endswith("give a list of controllers, such as [uniform]")


def _write(folder: Path, text: str, name: str = "file.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("- a\n- b\n", "mapping"), ("", "mapping"), ("a: [1", "YAML"), ("a: 1\na: 2\n", "duplicate")],
)
def test_files_that_are_not_a_mapping_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    assert complaint in refusal(_write(tmp_path, text))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "absent.yaml")
    assert "folder" in refusal(tmp_path)


def test_base_files_are_merged_deeply_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    _write(tmp_path, RUN, "bottom.yaml")
    _write(tmp_path / "sub", "base: ../bottom.yaml\nlearner: {eps: 1e-6}\nbudget: {tokens: 9}\n", "middle.yaml")
    top = _write(tmp_path, "base: sub/middle.yaml\nseed: 3\ncontrollers: [uniform]\n", "top.yaml")
    config = load_run_config(top)
    assert (config.learner.lr, config.learner.eps, config.seed, config.name) == (3e-4, 1e-6, 3, "top")
    assert config.budget == Budget(tokens=9)
    assert list(config.chain.members) == ["uniform"]


def test_a_base_is_looked_for_where_a_model_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = _write(tmp_path / "deep", "base: experiments/recipes/lab/sums.yaml\nseed: 3\n")
    assert load_run_config(deep).problems.train == 256  # in the repository
    monkeypatch.chdir(tmp_path)
    _write(tmp_path / "experiments", RUN, "lab.yaml")
    assert load_run_config(_write(tmp_path / "deep", "base: experiments/lab.yaml\n")).learner.lr == 3e-4
    _write(tmp_path / "deep" / "experiments", RUN + "seed: 5\n", "lab.yaml")
    assert load_run_config(tmp_path / "deep" / "file.yaml").seed == 5  # beside the file that names it, first
    message = refusal(_write(tmp_path / "deep", "base: absent.yaml\n"))
    assert message.startswith(f"base: 'absent.yaml' is not a file in {tmp_path / 'deep'} nor in {tmp_path} nor in ")
    assert str(REPOSITORY) in message


def test_a_base_that_leads_back_to_itself_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, "base: b.yaml\n", "a.yaml")
    assert "names itself" in refusal(_write(tmp_path, "base: a.yaml\n", "b.yaml"))


def test_paths_are_found_beside_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    path = _write(tmp_path, RUN + "model: {path: policy}\n")
    assert load_run_config(path).model.path == str(tmp_path / "policy")
    above = _write(tmp_path / "sub", "base: ../file.yaml\n")
    assert load_run_config(above).model.path == str(tmp_path / "policy")


def test_a_pool_is_found_beside_the_file_that_names_it_and_another_replaces_it(tmp_path: Path) -> None:
    (tmp_path / "pool.parquet").touch()
    own = RUN.replace("{source: running_sums}", "{source: running_sums, generated: {pool: {path: pool.parquet}}}")
    path = _write(tmp_path, own, "own.yaml")
    config = load_run_config(path, ["controllers=[probe, uniform]"])
    pool: Any = paths.openable(config.problems.generated.part)
    assert pool.path == str(tmp_path / "pool.parquet")
    assert parse_run_config(to_plain(config)) == config
    other = load_run_config(path, ["controllers=[probe, uniform]", "problems.generated={running_sums: {max_lines: 9}}"])
    generated: Any = other.problems.generated.part
    assert other.problems.generated.name == "running_sums" and generated.max_lines == 9


def test_paths_inside_the_repository_are_kept_relative_to_it() -> None:
    assert paths.locate(str(REPOSITORY / "experiments" / "recipes" / "lab"), Path()) == "experiments/recipes/lab"
    assert paths.find("experiments/recipes/lab") == REPOSITORY / "experiments/recipes/lab"


def test_a_name_on_a_hub_is_left_alone(run_file: Path) -> None:
    assert load_run_config(run_file, ["model.path=some-owner/some-model"]).model.path == "some-owner/some-model"


def test_a_saved_run_loads_as_an_equal_one(run_file: Path, tmp_path: Path) -> None:
    config = load_run_config(run_file)
    save(config, tmp_path / "deep" / "config.yaml")
    assert load_run_config(tmp_path / "deep" / "config.yaml") == config
    assert differences(config, load_run_config(tmp_path / "deep" / "config.yaml")) == []


def test_a_saved_run_names_every_component_with_its_options(run_file: Path) -> None:
    """Run folders hold this form, which is compared when a run is resumed."""
    written = to_plain(load_run_config(run_file, ["controllers=[uniform, {mine: {use: greso}}]"]))
    assert list(written)[:5] == ["name", "controllers", "problems", "environment", "budget"]
    first, second = written["controllers"]
    assert first == {"uniform": {}} and next(iter(second["mine"])) == "use" and second["mine"]["target"] == 0.25
    assert (written["environment"], written["rollouts"]["engine"]) == ({"single_turn": {}}, {"transformers": {}})
    assert written["problems"]["source"]["running_sums"]["max_lines"] == 12
    assert (written["problems"]["also"], written["problems"]["generated"], written["budget"]) == ({}, {}, {"steps": 4})


def test_differences_name_the_field_and_both_values(run_file: Path) -> None:
    left, right = load_run_config(run_file), load_run_config(run_file, ["learner.lr=1", "budget.tokens=3"])
    assert differences(left, right) == [
        ("budget.steps", 4, None),
        ("learner.lr", 3e-4, 1.0),
        ("budget.tokens", None, 3),
    ]


def test_interpolation_reads_another_field(run_file: Path) -> None:
    config = load_run_config(
        run_file, ["learner.normalization=constant", "learner.normalization_length=${budget.steps}"]
    )
    assert config.learner.normalization_length == 4


def test_arms_share_everything_but_what_they_change(comparison_file: Path) -> None:
    config = load_comparison_config(comparison_file)
    assert (config.name, config.seeds, list(config.arms)) == ("comparison-of-three", (0, 1), ["plain", "all", "fast"])
    runs = list(config.runs())
    assert [(arm, run.seed) for arm, run in runs] == [(a, s) for s in (0, 1) for a in ("plain", "all", "fast")]
    assert {run.budget for _, run in runs} == {Budget(rollouts=1000)}
    assert [run.learner.lr for _, run in runs[:3]] == [3e-4, 3e-4, 1e-3]
    assert config.run("fast", 5).folder == Path("runs/comparison-of-three/fast/seed-5")
    assert list(config.run("plain", 0).chain.members) == ["uniform"]


def test_seeds_take_turns_in_the_instances_of_a_comparison(comparison_file: Path) -> None:
    instances = "instances=[{problems: {seed: 5}}, {problems: {seed: 6}, learner: {lr: 0.5}}]"
    config = load_comparison_config(comparison_file, [instances, "seeds=[0, 1, 3]", "tune={}"])
    runs = {(arm, run.seed): run for arm, run in config.runs()}
    for arm in config.arms:
        drawn = [runs[arm, seed].problems.seed for seed in (0, 1, 3)]
        assert drawn == [5, 6, 6] and runs[arm, 3].seed == 3 and runs[arm, 3].name.endswith(f"{arm}/seed-3")
        own = config.arms[arm].fields.get("learner", {}).get("lr", 0.5)  # what an arm changes comes after its instance
        assert runs[arm, 1].learner.lr == own
    with pytest.raises(UserError, match=says("instances.0.budget", "one budget")):
        load_comparison_config(comparison_file, ["instances=[{budget: {steps: 3}}]"])


def test_a_change_of_a_comparison_reaches_every_arm_or_one(comparison_file: Path) -> None:
    config = load_comparison_config(comparison_file, ["learner.eps=1e-6", "arms.all.learner.lr=1", "output=elsewhere"])
    runs = {arm: config.run(arm, 0) for arm in config.arms}
    assert {run.learner.eps for run in runs.values()} == {1e-6}
    assert [run.learner.lr for run in runs.values()] == [3e-4, 1.0, 1e-3]
    assert config.folder == Path("elsewhere/comparison-of-three")


def test_the_base_of_a_comparison_may_be_written_inline_and_lend_its_budget(run_file: Path) -> None:
    path = run_file.with_name("inline.yaml")
    path.write_text("base: {base: run.yaml, seed: 9, learner: {eps: 1e-5}}\nseeds: [4]\narms: {only: {}}\n")
    config = load_comparison_config(path)
    run = config.run("only", 4)
    assert (run.budget, run.learner.eps, run.learner.lr, run.seed) == (Budget(steps=4), 1e-5, 3e-4, 4)


def test_a_comparison_laid_over_another_adds_arms_and_changes_what_its_runs_share(comparison_file: Path) -> None:
    path = comparison_file.with_name("over.yaml")
    path.write_text(f"base: {comparison_file.name}\nlearner: {{eps: 1e-6}}\nseeds: [8]\narms: {{more: {{}}}}\n")
    earlier, config = load_comparison_config(comparison_file), load_comparison_config(path)
    assert list(config.arms) == [*earlier.arms, "more"] and (config.name, config.seeds) == ("over", (8,))
    assert {config.run(arm, 8).learner.eps for arm in config.arms} == {1e-6}
    path.write_text(f"base: {comparison_file.name}\nlearners: {{eps: 1e-6}}\n")
    with pytest.raises(UserError, match="learners"):
        load_comparison_config(path)


@pytest.mark.parametrize(
    ("override", "field", "remedy"),
    [
        ("arms.plain.budget.steps=3", "arms.plain.budget", "all arms share one budget"),
        ("arms.plain.seed=3", "arms.plain.seed", "give the `seeds` of the whole comparison"),
        ("seed=3", "seed", "give seeds: [3]"),
        ("seed=[3, 4]", "seed", "give seeds: [3, 4]"),
        ("arms.plain.evaluation.samples=3", "arms.plain.evaluation", "all arms share one evaluation"),
        ("arms.plane.learner.lr=3", "arms.plane", "'plain'"),
        ("arms.plain=5", "arms.plain", "fields"),
        ("seeds=[0, 0]", "seeds", "different integers"),
        ("seeds=[]", "seeds", "different integers"),
        ("seeds=3", "seeds", "list"),
        ("budget.stps=3", "budget.stps", "'steps'"),
        ("lerner.lr=3", "arms.plain: lerner", "'learner'"),
        ("arms.fast.learner.lr=slow", "arms.fast: learner.lr", "a number"),
    ],
)
def test_refusals_of_comparisons(comparison_file: Path, override: str, field: str, remedy: str) -> None:
    message = refusal(comparison_file, override)
    assert message.startswith(field) and remedy in message, message


def test_a_comparison_needs_a_base(tmp_path: Path) -> None:
    assert refusal(_write(tmp_path, "arms: {a: {}}\nseeds: [0]\nbudget: {steps: 1}\n")).startswith("base: missing")


def test_runs_and_comparisons_are_distinguished(run_file: Path, comparison_file: Path) -> None:
    with pytest.raises(UserError, match="halfway run"):
        load_comparison_config(run_file)
    with pytest.raises(UserError, match="halfway compare"):
        load_run_config(comparison_file)


def test_a_saved_comparison_loads_as_an_equal_one(comparison_file: Path, tmp_path: Path) -> None:
    config = load_comparison_config(comparison_file, ["learner.eps=1e-6"])
    save(config, tmp_path / "saved" / "comparison.yaml")
    again = load_comparison_config(tmp_path / "saved" / "comparison.yaml")
    assert differences(config, again) == []
    assert list(again.runs()) == list(config.runs())
