"""How a configuration names an engine and its options."""

from pathlib import Path
from typing import Any

import pytest
from paths import REPOSITORY

from halfway.curriculum import UserError
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
    with pytest.raises(UserError, match=r"^rollouts\.vllm: unknown name 'vllm'; choose one of engine, "):
        load_config(written(tmp_path, "{engine: vllm, vllm: {dtype: bfloat16}}"))


@pytest.mark.parametrize(
    ("rollouts", "said"),
    [
        (
            "{engine: [vllm]}",
            r"^rollouts\.engine: \['vllm'\] is not acceptable; give one name, or one {name: options}$",
        ),
        ("{engine: {vllm: {}, transformers: {}}}", r"^rollouts\.engine: .* is not acceptable; give one name"),
        ("{engine: {vllm: {cache: 1}}}", r"^rollouts\.engine\.vllm\.cache: unknown name 'cache'; "),
        ("{engine: {vllm: {kv_cache_gib: 0}}}", r"^rollouts\.engine\.vllm\.kv_cache_gib: 0\.0 is not acceptable"),
        ("{engine: {vllm_servers: {entropies: true}}}", r"^rollouts\.engine\.vllm_servers\.entropies: unknown name"),
        ("{engine: {vllm_servers: {block_size: 8}}}", r"^rollouts\.engine\.vllm_servers\.block_size: 8 is not"),
        ("7", r"^rollouts: 7 is not acceptable"),
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
        ("generator.rollouts.vllm.dtype=float32", r"^generator\.rollouts\.vllm: unknown name 'vllm'; "),
        ("solver.rollouts.engine=vlm", r"^solver\.rollouts\.engine: unknown name 'vlm'; did you mean 'vllm'\?$"),
        (
            "solver.rollouts.max_response_tokens=5000",
            r"^solver\.rollouts\.max_response_tokens: 5000 .* max_length=4096",
        ),
        (
            "solver.rollouts.engine.vllm.eager=often",
            r"^solver\.rollouts\.engine\.vllm\.eager: 'often' is not acceptable",
        ),
    ],
)
def test_mistakes_in_a_study_name_the_model(override: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_study(STUDY, [override])
