"""Options of engines, and where in a file an error is."""

from pathlib import Path
from typing import Any

import pytest
from messages import says
from paths import REPOSITORY
from typer.testing import CliRunner

from halfway.curriculum import UserError
from halfway.curriculum.support.errors import MOST
from halfway.experiments.cli import app
from halfway.experiments.config.loading import load_comparison_config, load_config, load_run_config, save
from halfway.experiments.propel.config import load_study
from halfway.trainers.engines.transformers.part import Transformers
from halfway.trainers.engines.vllm.part import Vllm
from halfway.trainers.engines.vllm_servers.part import VllmServers

RUN = REPOSITORY / "experiments" / "recipes" / "lab" / "sums.yaml"
STUDY = REPOSITORY / "experiments" / "recipes" / "propel" / "azr_3b.yaml"


def written(folder: Path, rollouts: str, **more: str) -> Path:
    """A run with these rollouts."""
    file = folder / "mine.yaml"
    file.write_text("\n".join([f"base: {RUN}", f"rollouts: {rollouts}", *(f"{k}: {v}" for k, v in more.items())]))
    return file


@pytest.mark.parametrize(
    ("rollouts", "overrides", "engine"),
    [
        ("{}", [], Transformers()),
        ("{engine: vllm}", [], Vllm()),
        ("{engine: {vllm: }}", [], Vllm()),
        ("{engine: {vllm: {dtype: bfloat16, kv_cache_gib: 4}}}", [], Vllm(dtype="bfloat16", kv_cache_gib=4.0)),
        ("{engine: vllm}", ["rollouts.engine.vllm.dtype=float32"], Vllm(dtype="float32")),
        (
            "{engine: {vllm: {kv_cache_gib: 4}}}",
            ["rollouts.engine.vllm.dtype=float32"],
            Vllm(dtype="float32", kv_cache_gib=4.0),
        ),
        ("{engine: {vllm: {kv_cache_gib: 4}}}", ["rollouts.engine.vllm_servers.count=2"], VllmServers(count=2)),
        ("{engine: {vllm: {kv_cache_gib: 4}}}", ["rollouts.engine=transformers"], Transformers()),
    ],
)
def test_an_engine_is_named_with_its_options(tmp_path: Path, rollouts: str, overrides: list[str], engine: Any) -> None:
    config = load_run_config(written(tmp_path, rollouts), overrides)
    assert config.rollouts.engine.part == engine
    save(config, tmp_path / "kept.yaml")
    assert load_run_config(tmp_path / "kept.yaml") == config


def test_arms_may_have_different_engines(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        f"base: {{base: {RUN}, rollouts: {{engine: {{vllm: {{block_size: 64}}}}}}}}\n"
        "arms: {eager: {}, compiled: {rollouts: {engine: {vllm: {eager: false}}}}, plain: {rollouts: {engine: "
        "transformers}}}\nseeds: [0]\n"
    )
    config = load_comparison_config(file, ["rollouts.engine.vllm.kv_cache_gib=2"])
    assert {arm: config.run(arm, 0).rollouts.engine.part for arm in config.arms} == {
        "eager": Vllm(block_size=64, kv_cache_gib=2.0),
        "compiled": Vllm(block_size=64, kv_cache_gib=2.0, eager=False),
        "plain": Transformers(),
    }


def test_options_beside_an_engine_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says("rollouts.vllm", "'vllm'", "engine")):
        load_config(written(tmp_path, "{engine: vllm, vllm: {dtype: bfloat16}}"))


@pytest.mark.parametrize(
    ("rollouts", "said"),
    [
        (
            "{engine: [vllm]}",
            r"^rollouts\.engine: (?=.*\['vllm'\]).*{name: options}",
        ),
        ("{engine: {vllm: {}, transformers: {}}}", r"^rollouts\.engine: .*name"),
        ("{engine: {vllm: {cache: 1}}}", r"^rollouts\.engine\.vllm\.cache: .*'cache'"),
        ("{engine: {vllm: {kv_cache_gib: 0}}}", r"^rollouts\.engine\.vllm\.kv_cache_gib: .*0\.0"),
        ("{engine: {vllm_servers: {entropies: true}}}", r"^rollouts\.engine\.vllm_servers\.entropies: .*'entropies'"),
        ("{engine: {vllm_servers: {block_size: 8}}}", r"^rollouts\.engine\.vllm_servers\.block_size: .*8"),
        ("{workers: ray}", r"^rollouts\.workers: (?=.*'ray').*vllm_servers"),
        ("{workers: ray, payloads: files}", r"^rollouts\.payloads: .*'files'"),
        ("7", "^rollouts: must be a mapping of fields, not 7"),
    ],
)
def test_mistakes_in_an_engine_are_refused_in_one_line(tmp_path: Path, rollouts: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        load_config(written(tmp_path, rollouts))
    assert "\n" not in str(refused.value)


def test_every_model_of_a_study_has_an_engine_of_its_own() -> None:
    study = load_study(
        STUDY,
        ["solver.rollouts.engine={vllm_servers: {addresses: ['a:1']}}", "generator.rollouts.engine.vllm.block_size=64"],
    )
    engine: Any = study.generator.rollouts.engine.part
    assert (engine.block_size, engine.max_length) == (64, 4096)
    assert study.solver.rollouts.engine.name == "vllm_servers"
    first = next(iter(study.arms))
    changed = load_study(STUDY, [f"arms.{first}.generator.rollouts.engine=transformers"])
    assert changed.arm(first).generator.rollouts.engine.part == Transformers()
    assert changed.generator.rollouts.engine.name == "vllm"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("generator.rollouts.vllm.dtype=float32", r"^generator\.rollouts\.vllm: .*'vllm'"),
        ("solver.rollouts.engine=vlm", r"^solver\.rollouts\.engine: .*'vlm'.*'vllm'"),
        (
            "solver.rollouts.max_response_tokens=5000",
            r"^solver\.rollouts\.max_response_tokens: (?=.*5000).* max_length=4096",
        ),
        (
            "solver.rollouts.engine.vllm.eager=often",
            r"^solver\.rollouts\.engine\.vllm\.eager: .*'often'",
        ),
    ],
)
def test_mistakes_in_a_study_name_the_model(override: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_study(STUDY, [override])


LAB = f"""\
base: {REPOSITORY}/experiments/recipes/lab/sums.yaml
learner: {{lr: fast, epss: 3}}
controllers:
  - prefix_sampling: {{max_shar: .5}}
  - uniform
  - gresso
evaluation:
  points: many
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text(LAB)
    return tmp_path


def mistakes(*words: str) -> list[str]:
    """The mistakes that `halfway validate` names, without their remedies."""
    checked = CliRunner().invoke(app, ["validate", *words])
    assert checked.exit_code == 2, checked.output
    return [line.removeprefix("error: ").partition(";")[0] for line in checked.stderr.splitlines()]


OF_RUN = {
    "run.yaml:2: learner.epss: unknown name 'epss'",
    "run.yaml:2: learner.lr: must be a number, not 'fast'",
    "run.yaml:4: controllers.prefix_sampling.max_shar: unknown name 'max_shar'",
    "run.yaml:3: controllers: unknown name 'gresso'",
    "run.yaml:8: evaluation.points: must be an integer, not 'many'",
}


def test_every_mistake_has_its_line(folder: Path) -> None:
    found = mistakes("run.yaml")
    assert set(found) == OF_RUN and len(found) == len(OF_RUN)


def test_a_mistake_of_the_base_is_named_once_for_all_arms_and_one_of_an_arm_with_the_arm(folder: Path) -> None:
    Path("arms.yaml").write_text("base: run.yaml\nseeds: [0]\narms:\n  a: {fill: {groups: -1}}\n  b: {}\n")
    found = mistakes("arms.yaml")
    assert set(found) == OF_RUN | {"arms.yaml:4: arms.a: fill.groups: must be at least 1, not -1"}
    assert len(found) == len(OF_RUN) + 1


def test_a_missing_field_has_the_line_of_its_section_and_an_override_has_none(folder: Path) -> None:
    Path("short.yaml").write_text("seed: 1\nproblems:\n  train: 4\ncontrollers: [uniform]\nbudget: {steps: 1}\n")
    assert mistakes("short.yaml", "seed=-1", "learner.lrr=1") == [
        "short.yaml:2: problems.source: missing",
        "short.yaml: learner.lrr: unknown name 'lrr'",
    ]


def test_checks_of_a_whole_run_are_all_made(folder: Path) -> None:
    text = f"base: {REPOSITORY}/experiments/recipes/lab/sums.yaml\nmodel: {{dtype: bfloat16}}\n"
    Path("whole.yaml").write_text(f"{text}rollouts: {{staleness: 1}}\n")
    dtype, mismatch = mistakes("whole.yaml")
    assert dtype.startswith("whole.yaml:2: model.dtype: ") and ": learner.mismatch: " in mismatch


def test_a_file_full_of_mistakes_ends_soon(folder: Path) -> None:
    Path("many.yaml").write_text(LAB + "".join(f"field_{i}: 1\n" for i in range(4000)))
    assert len(mistakes("many.yaml")) <= MOST + len(OF_RUN)
