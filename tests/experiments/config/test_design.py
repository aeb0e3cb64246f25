"""What a comparison fixes in advance: sweeps, contrasts, targets and costs, and every refusal in one line."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from messages import says
from paths import REPOSITORY
from typer.testing import CliRunner

from halfway.curriculum import UserError
from halfway.experiments.cli import app
from halfway.experiments.config.comparison import ComparisonConfig, absent_contrasts, with_arms
from halfway.experiments.config.design import Costs, Setting, contrast_pairs, settings_of
from halfway.experiments.config.loading import differences, load_comparison_config, save
from halfway.trainers.loop.loop_options import Budget

CONTEST = """
base:
  problems: {source: running_sums, train: 8}
  controllers: [uniform]
  cluster: {devices_per_node: 2}
budget: {rollouts: 1000}
seeds: [0, 1]
arms:
  grpo: {}
  greso: {controllers: [uniform, greso]}
  refill:
    fill: {policy: refill}
    tune: {grid: {fill.request_factor: [1, 1.5], learner.lr: [1e-3]}}
tune: {grid: {learner.lr: [1.5e-4, 3e-4]}, seeds: [100, 101]}
contrasts: {baseline: grpo}
targets: [0.4, 0.5]
costs: {rho: [0.25, 1]}
"""


@pytest.fixture
def contest_file(tmp_path: Path) -> Path:
    path = tmp_path / "contest.yaml"
    path.write_text(CONTEST)
    return path


@pytest.fixture
def contest(contest_file: Path) -> ComparisonConfig:
    return load_comparison_config(contest_file)


def test_a_grid_gives_every_combination() -> None:
    settings = settings_of({"learner.lr": [1e-4, 3e-4], "fill.groups": [8, 16]})
    assert [setting.values for setting in settings] == [
        {"learner.lr": lr, "fill.groups": groups} for lr in (1e-4, 3e-4) for groups in (8, 16)
    ]
    assert settings[1].name == "learner.lr-0.0001_fill.groups-16"
    assert settings[1].changes == {"learner": {"lr": 1e-4}, "fill": {"groups": 16}}
    assert settings_of({}) == []


def test_fields_of_one_part_are_set_together() -> None:
    setting = Setting({"learner.lr": 1e-3, "learner.betas": [0.8, 0.9]})
    assert setting.changes == {"learner": {"lr": 1e-3, "betas": [0.8, 0.9]}}
    assert setting.name == "learner.lr-0.001_learner.betas--0.8-0.9-"


def test_arms_share_a_grid_and_add_to_it(contest: ComparisonConfig) -> None:
    assert contest.grid("greso") == {"learner.lr": [1.5e-4, 3e-4]}
    assert contest.grid("refill") == {"learner.lr": [1e-3], "fill.request_factor": [1, 1.5]}
    assert [setting.name for setting in contest.settings("refill")] == [
        "learner.lr-0.001_fill.request_factor-1",
        "learner.lr-0.001_fill.request_factor-1.5",
    ]


def test_runs_of_a_sweep_have_folders_of_their_own_and_the_settings_values(contest: ComparisonConfig) -> None:
    setting = contest.settings("refill")[1]
    run = contest.tuning_run("refill", setting, 100)
    assert run.name == "contest/tuning/refill/learner.lr-0.001_fill.request_factor-1.5/seed-100"
    assert (run.seed, run.learner.lr, run.fill.request_factor, run.fill.policy) == (100, 1e-3, 1.5, "refill")
    assert run.budget == Budget(rollouts=1000)
    shorter = replace(contest, tune=replace(contest.tune, share=0.3335))
    assert shorter.tuning_run("refill", setting, 100).budget == Budget(rollouts=334)
    assert shorter.run("refill", 0).budget == Budget(rollouts=1000)


def test_the_chosen_values_reach_the_runs_of_that_arm_alone(contest: ComparisonConfig) -> None:
    chosen = {"grpo": Setting({"learner.lr": 3e-4})}
    rates = {(arm, run.seed): run.learner.lr for arm, run in contest.runs(chosen)}
    assert rates[("grpo", 1)] == 3e-4 and rates[("greso", 1)] == 1e-6 == rates[("refill", 0)]
    assert contest.run("grpo", 0).name == contest.run("grpo", 0, chosen["grpo"]).name == "contest/grpo/seed-0"


def test_the_plan_is_kept_with_the_comparison(contest: ComparisonConfig, tmp_path: Path) -> None:
    save(contest, tmp_path / "saved" / "comparison.yaml")
    again = load_comparison_config(tmp_path / "saved" / "comparison.yaml")
    assert again == contest and differences(again, contest) == []
    assert (again.targets, again.costs) == ((0.4, 0.5), Costs((0.25, 1)))
    assert contrast_pairs(again.contrasts, again.arms) == [("greso", "grpo"), ("refill", "grpo")]


def test_overrides_reach_the_plan(contest_file: Path) -> None:
    changes = ["tune.grid.learner.lr=[1, 2]", "arms.refill.tune.grid.fill.groups=[8]", "targets=[0.6]"]
    changed = load_comparison_config(contest_file, [*changes, "contrasts=[[greso, refill]]", "costs={rho: [3]}"])
    assert changed.grid("grpo") == {"learner.lr": [1, 2]}
    assert changed.grid("refill") == {"learner.lr": [1e-3], "fill.request_factor": [1, 1.5], "fill.groups": [8]}
    assert (changed.targets, contrast_pairs(changed.contrasts, changed.arms)) == ((0.6,), [("greso", "refill")])
    assert changed.costs == Costs((3,))


def test_pairs_come_in_the_order_of_the_file() -> None:
    assert contrast_pairs([["c", "a"], ["b", "a"]], "abc") == [("c", "a"), ("b", "a")]
    assert contrast_pairs({"baseline": "b"}, "abc") == [("a", "b"), ("c", "b")]
    assert contrast_pairs(None, "abc") == contrast_pairs([], "abc") == []


@pytest.mark.parametrize(
    ("override", "field", "remedy"),
    [
        ("contrasts={baseline: grop}", "contrasts.baseline", "did you mean 'grpo'"),
        ("contrasts=[[greso, gpro]]", "contrasts", "did you mean 'grpo'"),
        ("contrasts=[[greso, grpo], [grpo, greso]]", "contrasts: cannot be ['grpo', 'greso']", "listed twice"),
        ("contrasts=[[grpo, grpo]]", "contrasts: cannot be ['grpo', 'grpo']", "two different arms"),
        ("contrasts=[grpo]", "contrasts", "a list of pairs"),
        ("contrasts={base: grpo}", "contrasts", "{baseline: ARM}"),
        ("targets=[0.4, 1.0]", "targets: ", "between 0 and 1, such as [0.4, 0.5], not 1.0"),
        ("targets=[0]", "targets: ", "between 0 and 1, such as [0.4, 0.5], not 0.0"),
        ("targets=[0.4, 0.4]", "targets", "once"),
        ("targets=0.4", "targets", "a list"),
        ("costs.rho=[-1]", "costs.rho: ", "0 or more, not -1.0"),
        ("costs.rho=[cheap]", "costs.rho", "each a number"),
        ("costs.rho=[1, 1]", "costs.rho", "once"),
        ("costs.rate=[1]", "costs.rate", "unknown name"),
        ("costs.judge_second=-1", "costs.judge_second: ", "0 or more, not -1.0"),
        ("tune.seeds=[1, 100]", "tune.seeds: cannot be [1, 100]", "the comparison has [1] too"),
        ("tune.seeds=[]", "tune.seeds", "at least one"),
        ("tune.seeds=[100, 100]", "tune.seeds", "different integers"),
        ("tune.share=0", "tune.share", "above 0"),
        ("tune.grid.learner.lr=0.1", "tune.grid.learner.lr", "a list of values"),
        ("tune.grid.learner.lr=[]", "tune.grid.learner.lr", "a list of values"),
        ("tune.grid.learner.lr=[1, 1]", "tune.grid.learner.lr", "once"),
        ("tune.grid.learner.lr=[1, -1]", "arms.grpo: learner.lr: ", "positive number such as 1e-6, not -1.0"),
        ("tune.grid.lerner.lr=[1]", "arms.grpo: lerner", "'learner'"),
        ("tune.grid.seed=[1]", "tune.grid.seed", "whole comparison"),
        ("tune.grid.controllers.greso.target=[0.5]", "arms.grpo: controllers.greso", "unknown name"),
        ("arms.greso.tune.seeds=[5]", "arms.greso.tune", "{grid: ...}"),
        ("arms.greso.tune.grid.learner.lr=[-1]", "arms.greso: learner.lr", "positive"),
        ("evaluation.points=0", "evaluation.points", "at least 1"),
        ("arms={tuning: {}}", "arms: cannot be 'tuning'", "rename the arm"),
    ],
)
def test_refusals(contest_file: Path, override: str, field: str, remedy: str) -> None:
    if override.startswith("arms="):
        contest_file.write_text(CONTEST.replace("greso:", "tuning:"))
        override = "targets=[0.5]"
    with pytest.raises(UserError) as caught:
        load_comparison_config(contest_file, [override])
    message = str(caught.value)
    assert message.startswith(field) and remedy in message and "\n" not in message, message


def test_seeds_from_the_command_line_are_not_those_of_the_sweep(contest: ComparisonConfig) -> None:
    with pytest.raises(UserError, match=says("tune.seeds", "[100, 101]", "[101]")):
        replace(contest, seeds=(5, 101))


def test_seeds_without_a_grid_are_a_mistake(contest_file: Path) -> None:
    text = CONTEST.replace("{grid: {learner.lr: [1.5e-4, 3e-4]}, seeds", "{seeds")
    contest_file.write_text(text.replace("    tune: {grid: {fill.request_factor: [1, 1.5], learner.lr: [1e-3]}}\n", ""))
    with pytest.raises(UserError, match=says("tune.grid", "tune")):
        load_comparison_config(contest_file)


@pytest.mark.parametrize(("points", "warned"), [(11, True), (12, False)])
def test_validate_warns_of_few_evaluations(contest_file: Path, points: int, warned: bool) -> None:
    shown = CliRunner().invoke(app, ["validate", str(contest_file), f"evaluation.points={points}"])
    assert shown.exit_code == 0, shown.output
    assert ("warning: evaluation.points: 11 are few for `targets`" in shown.output) is warned


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        (["arms.greso.fill.groups=16"], "groups per optimizer step: 16 (greso), 32 (grpo); the same learner.minibatch"),
        (["learner.num_minibatches=2", "arms.greso.learner.num_minibatches=4"], "step: 8 (greso), 16 (grpo);"),
        (["arms.greso.fill.groups=16", "learner.minibatch_groups=8"], ""),
        (["arms.greso.fill={policy: refill, request_factor: 1.5}"], "first request: 32 (refill), 48 (greso); the same"),
        (["arms.greso.fill={policy: refill, request_factor: 1.5}", "arms.refill.fill.request_factor=1.5"], ""),
        # What the sweep chooses is not in the file.
        (["arms.greso.fill.groups=16", "tune.grid={fill.groups: [8, 16]}"], ""),
        (["arms.greso.fill.request_factor=1.5"], ""),  # asks for its batch, since it does not refill
    ],
)
def test_validate_warns_of_conditions_that_are_not_equal(contest_file: Path, changes: list[str], warning: str) -> None:
    shown = CliRunner().invoke(app, ["validate", str(contest_file), "targets=[]", *changes])
    assert shown.exit_code == 0, shown.output
    warnings = [line for line in shown.output.splitlines() if "warning" in line]
    assert (len(warnings) == 1 and warning in warnings[0]) if warning else warnings == [], shown.output


def load(path: Path, *overrides: str) -> ComparisonConfig:
    return load_comparison_config(path, overrides)


def test_a_seed_where_seeds_belong_is_refused(contest_file: Path) -> None:
    with pytest.raises(UserError, match=r"^seed: (?=.*3).*seeds: \[3\]"):
        load(contest_file, "seed=3")
    contest_file.write_text(f"{CONTEST}seed: 5\n")
    with pytest.raises(UserError, match=r"^seed: (?=.*5).*seeds: \[5\]"):
        load(contest_file)


def test_a_second_limit_of_the_budget_is_refused(contest_file: Path) -> None:
    with pytest.raises(UserError, match=r"^budget\.steps: .*budget\.rollouts.*one limit"):
        load(contest_file, "budget.rollouts=64", "budget.steps=2")
    assert load(contest_file, "budget.rollouts=64", "budget.rollouts=32").budget.rollouts == 32


def test_tune_null_takes_a_sweep_out(contest_file: Path) -> None:
    assert list(load(contest_file).tuning_runs())
    above = contest_file.with_name("above.yaml")
    above.write_text("base: contest.yaml\ntune: null\n")
    for without in (load(above), load(contest_file, "tune=null")):
        assert without.tune.seeds == () and not any(map(without.settings, without.arms))


def test_references_are_resolved_in_each_run(contest_file: Path) -> None:
    contest_file.with_name("run.yaml").write_text(
        "problems: {source: running_sums, train: 8}\ncontrollers: [uniform]\nfill: {groups: 8}\nbudget: {steps: 2}\n"
        "output: out-${fill.groups}\nlearner: {minibatch_groups: '${fill.groups}'}\n"
    )
    contest_file.write_text(
        "base: run.yaml\nseeds: [0]\nbudget: {steps: 2}\narms: {a: {}, b: {fill: {groups: 4}}, "
        "c: {rollouts: {num_rollouts: '${fill.groups}'}}}\n"
    )
    config = load(contest_file)
    assert [config.run(arm, 0).learner.minibatch_groups for arm in "abc"] == [8, 4, 8]
    assert config.folder == Path("out-8/contest") and config.run("c", 0).rollouts.num_rollouts == 8
    saved = contest_file.with_name("saved.yaml")
    save(config, saved)
    assert differences(config, load(saved)) == []


def test_every_instance_is_checked_whatever_the_seeds(contest_file: Path) -> None:
    contest_file.write_text(f"{CONTEST}instances: [{{problems: {{seed: 1}}}}, {{}}, {{sed: 1}}]\n")
    with pytest.raises(UserError, match="sed: unknown name"):
        load(contest_file)


def test_names_are_text(contest_file: Path) -> None:
    contest_file.write_text(
        CONTEST.replace("  grpo: {}", "  off: {}\n  010: {}").replace("baseline: grpo", "baseline: greso")
    )
    assert list(load(contest_file).arms) == ["off", "010", "greso", "refill"]
    contest_file.write_text(contest_file.read_text().replace("baseline: greso", "baseline: off"))
    with pytest.raises(UserError, match=r"^contrasts\.baseline: cannot be False; .*quotes"):
        load(contest_file)


def test_a_file_of_any_name_gives_an_acceptable_one(contest_file: Path) -> None:
    path = contest_file.rename(contest_file.with_name("my (1) contest.yaml"))
    assert load(path).name == "my-1-contest"


def test_contrasts_of_absent_arms_are_listed_and_left_out(contest_file: Path) -> None:
    config = load(contest_file)
    assert absent_contrasts(config, ["greso", "refill"]) == [("greso", "grpo"), ("refill", "grpo")]
    assert with_arms(config, ["greso", "refill"]).contrasts is None
    assert absent_contrasts(config, ["grpo", "greso"]) == []
    assert with_arms(config, ["grpo", "greso"]).contrasts == {"baseline": "grpo"}


def test_an_own_arm_takes_seven_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (REPOSITORY / "docs" / "tutorials" / "first_comparison.md").read_text()
    [text] = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "every_method" in block]
    assert len(text.splitlines()) == 7
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(text)
    config = load(tmp_path / "mine.yaml")
    assert len(config.arms) > 30 and not list(config.tuning_runs())
    some = with_arms(config, ["grpo", "greso", "mine"])
    assert some.size == "3 arms x 4 seeds = 12 runs" and some.contrasts == {"baseline": "grpo"}
