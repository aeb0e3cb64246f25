"""The controllers of a recipe as a chain, for other trainers: the same as at home, without OmegaConf."""

import subprocess
import sys
from pathlib import Path

import pytest
from paths import IMPORTABLE, REPOSITORY

import halfway
from halfway.curriculum import UserError
from halfway.curriculum.support import yaml_bases
from halfway.experiments.config.loading import load_run_config

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
            "controllers.greso.floor: 'high' is not acceptable; give a number",
        ),
        (
            "controllers: [uniform, {greso: {flor: 1}}]",
            "controllers.greso.flor: unknown name 'flor'; did you mean 'floor'?",
        ),
        ("controllers: [uniform, {greso: {floor: 7}}]", "controllers.greso.floor: 7.0 is not acceptable"),
        ("controllers: [gresso]", "unknown name 'gresso'; did you mean 'greso'?"),
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
