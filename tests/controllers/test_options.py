"""Options of controllers, and chains read from a file."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paths import IMPORTABLE, REPOSITORY

import halfway
from halfway.controllers import CONTROLLERS
from halfway.controllers.beliefs.calibration import Calibration
from halfway.controllers.beliefs.forest_beliefs import DiscountedBeta, PassRateBelief
from halfway.controllers.beliefs.hierarchical_bayes import HierarchicalBayes
from halfway.controllers.beliefs.shared_skills import SkillModel
from halfway.controllers.chains import members
from halfway.curriculum import UserError
from halfway.curriculum.support import yaml_bases
from halfway.experiments.config.loading import load_run_config

BAD: dict[str, dict[str, Any]] = {
    "bandit": {
        "alpha": 0.0,
        "temperature": 0.0,
        "window": 0,
        "bonus": -1.0,
        "decay": 1.1,
        "reversion": -1.0,
        "floor": 1.0,
    },
    "bots": {"rho": 1.5, "inertia": 1.0},
    "downsample": {"keep": 1.5},
    "frontier": {"features": (), "candidates": 0, "exploration": 1.5, "sharpness": -1.0},
    "greso": {"p_easy": 1.5, "floor": 0.0, "bounds": (0.9, 0.1)},
    "hints": {"target": 0.0, "low": 0.7, "shares": (), "forget": 1.0, "tries": 0, "gain": 0.0, "width": -1},
    "knapsack": {"least": 1, "alpha": 0.0, "certainty": 0.0},
    "lilo": {"share": 0.0},
    "maxrl": {"cap": 0.5},
    "mixture": {"rho": -1.0, "floor": 0.0, "sharpness": 0.0, "memory": 1.0, "prior": 0.0},
    "mopps": {"candidates": 0},
    "pilot": {"initial": 1, "more": -1},
    "prefix_sampling": {"remaining_ratio": 0.5, "prefix_cap": 3, "initial_ratio": 0.99, "bounds": (0.0, 1.0)}
    | {"deadzone": (0.6, 0.4), "max_share": 0.0, "max_age": 0},
    "probe": {"share": 0.0, "target": 1.0, "band": (0.9, 0.1), "tries": 0, "noise": -1.0, "impossible": 1.0},
    "pros": {
        "target": (0.6, 0.4),
        "exploration": 1.5,
        "per_tree": 0,
        "tree_children": 0,
        "total_children": -1,
        "leak_tokens": -1,
    },
    "replay": {"share": 1.0, "capacity": 0, "tokens": 0},
    "retire": {"above": 0.0, "returns": 0},
    "rounds": {"rounds": 1, "keep": 1, "size": -1},
    "servo": {
        "pass_rate": 0.0,
        "gain": 0.0,
        "width": -1.0,
        "bounds": (5.0, 5.0),
        "start": 101.0,
        "steps": 0,
        "levels": 1,
        "floor": 1.0,
    },
    "signal": {"alpha": 0.0, "virtual": 0},
    "vcrl": {"late": 1.5, "early": -0.5, "early_steps": -1},
}
# A second value of an option, and options that others make bad: the last of each is the one that is refused.
FURTHER: list[tuple[str, dict[str, Any]]] = [
    ("downsample", {"keep": 0.0}),
    *(("hints", {"target": 1.0}), ("hints", {"shares": (0.5, 1.0)})),
    ("knapsack", {"most": 8, "least": 9}),
    ("lilo", {"share": 1.5}),
    ("pilot", {"kind": "hora", "more": 3}),
    *(("pilot", {"band": (0.1, 0.5)}), ("pilot", {"commits": 4}), ("pilot", {"kind": "hora", "patience": 2})),
    ("prefix_sampling", {"variant": "categories", "prefix_cap": 0}),
    ("prefix_sampling", {"variant": "categories", "initial_ratio": 0.5}),
    ("prefix_sampling", {"variant": "categories", "update_unit": "step"}),
    ("prefix_sampling", {"variant": "categories", "cooldown_steps": 2}),
    *(("probe", {"band": (-0.1, 1.0)}), ("probe", {"noise": math.inf})),
    ("servo", {"pass_rate": 1.0}),
]
ALL = [*((name, {field: value}) for name, options in BAD.items() for field, value in options.items()), *FURTHER]


@pytest.mark.parametrize(("name", "options"), ALL, ids=str)
def test_a_bad_option_is_refused_in_one_line(name: str, options: dict[str, Any]) -> None:
    field, value = list(options.items())[-1]
    with pytest.raises(UserError) as caught:
        CONTROLLERS.get(name)(**options)
    message = str(caught.value)
    assert message.startswith(f"{name}.{field}: ") and "\n" not in message, message
    assert "must be " in message or "; " in message, message
    assert repr(value) in message or repr(list(value)) in message, message


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        ({"mixture": {"worth": "gold"}}, "gold"),
        ({"mixture": {"credit": {"stored": -0.5}}}, r"credit\.stored: .*-0\.5"),
        ({"mopps": {"law": {"target": 1.5}}}, r"law\.target"),
        ({"mopps": {"belief": {"bayes": {"tau": 2.0}}}}, r"belief\.bayes"),
        ({"bots": {"belief": {"kind": "last_rate"}}}, r"^.*bots\.belief\.kind: .*'last_rate'.*set rho: 0"),
        ({"pros": {"prior": "probed", "belief": {"kind": "beta"}}}, r"pros\.prior: (?=.*'probed').*belief"),
        ({"pros": {"prior": "probed", "belief": {"kind": "last_rate"}}}, r"pros\.prior: .*'probed'"),
        (
            {"pros": {"prior": "probed", "belief": {"bayes": {"estimate": "mean_rate"}}}},
            r"pros\.belief\.bayes\.estimate: (?=.*'mean_rate').*mean_logit",
        ),
        ({"pros": {"calibration": {"drift": 0.5}}}, r"pros\.calibration: .*prior=probed"),
    ],
)
def test_bad_options_of_a_chain_are_refused(chain: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        members([chain])


@pytest.mark.parametrize(
    ("part", "options", "words"),
    [
        (Calibration, {"drift": -1}, r"^calibration\.drift: .*-1"),
        (Calibration, {"drift": 1e300}, r"^calibration\.drift: (?=.*1e\+300).*20"),
        (Calibration, {"doubt": math.inf}, r"^calibration\.doubt: .*20.*inf"),
        (SkillModel, {"spread": 1e9}, r"^model\.spread: (?=.*1000000000\.0).*0\.01.*20"),
        (SkillModel, {"spread": 1e-300}, r"^model\.spread: .*0\.01.*20.*1e-300"),
        (SkillModel, {"drift": math.inf}, r"^model\.drift: .*0.*1.*inf"),
        (SkillModel, {"residual": 1e300}, r"^model\.residual: (?=.*1e\+300).*20"),
        (DiscountedBeta, {"prior": (1.0, math.inf)}, r"^belief\.beta\.prior: .*\(1\.0, inf\)"),
        (PassRateBelief, {"forgetting": 1.1}, r"belief\.forgetting"),
        (PassRateBelief, {"kind": "beta", "bayes": HierarchicalBayes(tau=2.0)}, r"belief\.bayes.*kind=hierarchical"),
        (PassRateBelief, {"beta": DiscountedBeta(draw=True)}, r"belief\.beta.*kind=beta"),
    ],
)
def test_bad_options_of_a_belief_are_refused(part: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        part(**options)


RECIPES = sorted((REPOSITORY / "experiments" / "recipes" / "methods").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.stem))
def test_a_recipe_gives_the_chain_that_a_run_has(path: Path) -> None:
    assert halfway.from_yaml(path).members == load_run_config(path).chain.members


def test_the_recipes_are_there() -> None:
    assert {"all_four", "greso", "prefix_sampling", "pros"} <= {path.stem for path in RECIPES}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "controllers: [uniform, {greso: {floor: high}}]",
            "controllers.greso.floor: must be a number, not 'high'",
        ),
        (
            "controllers: [uniform, {greso: {flor: 1}}]",
            "controllers.greso.flor: unknown name 'flor'; did you mean 'floor'?",
        ),
        (
            "controllers: [uniform, {greso: {floor: 7}}]",
            "controllers.greso.floor: must be a number above 0 and at most 1, not 7.0",
        ),
        ("controllers: [gresso]", "unknown name 'gresso'; did you mean 'greso'?"),
        ("controllers: [dare]", "controllers: 'dare' was removed: it showed no gain over dynamic sampling"),
        (
            "controllers: [uniform, {greso: {evidence: belief}}]",
            "controllers.greso.evidence: 'belief' was removed: a belief skipped no better than streaks; leave",
        ),
        (
            "controllers: [uniform, {prefix_sampling: {chain_prefixes: true}}]",
            "controllers.prefix_sampling.chain_prefixes: True was removed: prefixes of prefixes learned less; leave",
        ),
        ("controllers: [greso]", "none of greso chooses problems"),
        ("budget: {steps: 3}", "has no controllers; add a list"),
        ("arms: {a: {}}", "has arms, so it is a comparison"),
        ("controllers: [uniform", "is not readable as YAML"),
        ("controllers: [uniform]\ncontrollers: [pros]", "found duplicate key controllers"),
    ],
)
def test_mistakes_are_one_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "chain.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        halfway.from_yaml(path)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_numbers_are_those_of_yaml_1_2(tmp_path: Path) -> None:
    path = tmp_path / "numbers.yaml"
    path.write_text("a: [3e-4, 1., .5, -2, 1e3, .inf, '3e-4', 2026-11-22, yes, null, 1_000]")
    values = yaml_bases.parse(path)["a"]
    assert values == [3e-4, 1.0, 0.5, -2, 1000.0, float("inf"), "3e-4", "2026-11-22", True, None, 1000]
    assert [type(value) for value in values[:4]] == [float, float, float, int]


def test_neither_omegaconf_nor_torch_is_needed(tmp_path: Path) -> None:
    hidden = ["omegaconf", "torch", "transformers", "accelerate", "mlflow", "scipy", "matplotlib"]
    code = f"""
import sys
sys.modules.update(dict.fromkeys({hidden}))
import halfway, halfway.trainers.hosts.hosting, halfway.trainers.hosts.rows, halfway.trainers.hosts.outcomes
print(list(halfway.from_yaml("{REPOSITORY}/experiments/recipes/methods/greso.yaml").members))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": IMPORTABLE}, check=False
    )
    assert done.stdout.strip() == "['uniform', 'greso']", done.stderr


def test_the_value_that_is_left_of_a_removed_option_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "chain.yaml"
    path.write_text("controllers: [uniform, {greso: {evidence: streak, belief: {kind: beta}, floor: 0.02}}]")
    assert dict(halfway.from_yaml(path).members)["greso"] == CONTROLLERS.get("greso")(floor=0.02)
