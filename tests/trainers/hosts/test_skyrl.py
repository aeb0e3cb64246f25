"""A chain around SkyRL's data set and generator.

SkyRL needs Python 3.12 and GPUs, so what a chain meets of it, its data set, loader and batches, is taken from its
published source text and run; the generator is played.
"""

import __future__

import ast
import asyncio
import copy
import json
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pages import example

SKYRL = Path(sys.prefix).parent / "skyrl"
if not SKYRL.exists():
    pytest.skip("SkyRL's source is not there; see `make hosts`", allow_module_level=True)

import datasets  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from paths import REPOSITORY  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

import halfway  # noqa: E402
from halfway.curriculum import UserError  # noqa: E402

GROUPS, SIZE, STEPS = 4, 8, 20


def parsed(file: str) -> ast.Module:
    return ast.parse((SKYRL / "skyrl" / "train" / file).read_text())


def taken(file: str, *names: str, **scope: Any) -> dict[str, Any]:
    """Definitions of a file of SkyRL's, run without the rest of it."""
    defined = [node for node in parsed(file).body if getattr(node, "name", None) in names]
    assert {node.name for node in defined} == set(names), f"SkyRL has moved something in {file}"  # type: ignore[attr-defined]
    module = ast.Module(defined, [])
    flags = __future__.annotations.compiler_flag
    exec(compile(module, file, "exec", flags=flags, dont_inherit=True), scope)
    return scope


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """SkyRL's metadata, for its version."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(SKYRL)])


def settings(folder: Path) -> Any:
    return SimpleNamespace(
        data=SimpleNamespace(dataloader=SimpleNamespace(num_workers=0, persistent_workers=False)),
        generator=SimpleNamespace(n_samples_per_prompt=SIZE, step_wise_trajectories=False),
        trainer=SimpleNamespace(ckpt_path=str(folder), seed=0, train_batch_size=GROUPS, eval_batch_size=2, epochs=50),
    )


def prompts_of(folder: Path, number: int = 24) -> Any:
    rows = [
        {"prompt": [{"role": "user", "content": f"{i}+1="}], "env_class": "sums", "place": i} for i in range(number)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_list(rows).to_parquet(str(folder / "train.parquet"))
    scope = taken(
        "dataset/dataset.py",
        "PromptDataset",
        "_prompt_not_too_long",
        os=os,
        datasets=datasets,
        logger=logging.getLogger("skyrl"),
    )
    tokenizer = SimpleNamespace(apply_chat_template=lambda *_, **__: {"input_ids": [1]})
    return scope["PromptDataset"](str(folder / "train.parquet"), tokenizer, 100, num_workers=1)


class Played:
    """In the place of SkyRL's generator: every problem has a pass rate."""

    def __init__(self, rng: np.random.Generator, reward: float = 1.0):
        self.rng, self.reward = rng, reward

    async def generate(self, input_batch: Any) -> Any:
        places = [extras["place"] for extras in input_batch["env_extras"]]
        passed = [self.reward * (self.rng.random() < place % 6 / 5) for place in places]
        return {
            "rewards": [[0.0, good] for good in passed],  # per token, as SkyRL allows
            "response_ids": [[5, 6]] * len(places),
            "loss_masks": [[1, 1]] * len(places),
            "stop_reasons": ["stop"] * len(places),
            "rollout_metrics": {"their/own": 1.0},
        }


def session(folder: Path, chain: list[Any] | None = None, number: int = 24, workers: int = 0, **changes: Any) -> Any:
    from halfway.trainers.hosts.skyrl import SessionPrompts

    cfg = settings(folder)
    vars(cfg.generator).update(changes)
    cfg.data.dataloader.num_workers = workers
    controller = halfway.from_yaml(chain or ["uniform", {"greso": {"frozen_epochs": 0}}])
    return SessionPrompts(prompts_of(folder / "data", number), controller, cfg)


def steps(prompts: Any, rng: np.random.Generator, folder: Path, first: int, save: int = 0) -> list[Any]:
    """What SkyRL's trainer does of a step without a model, by its own loader and batches."""
    made = taken("generators/base.py", "TrajectoryID", "BatchMetadata", dataclass=dataclass)
    made |= taken("generators/utils.py", "prepare_generator_input", copy=copy, **made)
    scope = {"torch": torch, "StatefulDataLoader": StatefulDataLoader, "logger": logging.getLogger("skyrl")}
    loader = taken("utils/trainer_utils.py", "build_dataloader", **scope)["build_dataloader"](settings(folder), prompts)
    if first > 1:
        loader.load_state_dict(torch.load(folder / "data.pt", weights_only=False))
    generator, outputs, step = prompts.observing(Played(rng)), [], first
    while step <= STEPS:
        for rows in loader:
            kept = rows[:-1] if step == 3 else rows  # cut so that it divides by the ranks
            given, uids = made["prepare_generator_input"](kept, SIZE, {}, "sums", "train", step)
            assert len(set(uids)) == len(kept)
            outputs.append(asyncio.run(generator.generate(given)))
            if step == save:
                torch.save(loader.state_dict(), folder / "data.pt")
                torch.save(rng.bit_generator.state, folder / "rng.pt")
            step += 1
            if step > STEPS:
                break
    return outputs


def one_step(prompts: Any, generator: Any) -> Any:
    rows = [prompts[i] for i in range(GROUPS)]
    given = {"batch_metadata": SimpleNamespace(training_phase="train", global_step=1)}
    given |= {"env_extras": [extras for _, _, extras, _ in rows for _ in range(SIZE)]}
    given |= {"trajectory_ids": [SimpleNamespace(instance_id=uid) for *_, uid in rows for _ in range(SIZE)]}
    return asyncio.run(prompts.observing(generator).generate(given))


def test_every_group_is_observed_once_and_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    outputs = steps(session(tmp_path), rng, tmp_path, 1, save=STEPS // 2)
    assert {"their/own", "halfway/uniform/epoch"} <= outputs[-1]["rollout_metrics"].keys()
    log = tmp_path / "halfway" / "decisions.jsonl"
    before = log.read_bytes()
    groups = [line for line in map(json.loads, before.splitlines()) if line["outcome"] != "skipped"]
    assert len(groups) == STEPS * GROUPS
    assert [group["dropped"] for group in groups if group["n"] != SIZE] == [{"cut off": SIZE}]
    assert any(line["outcome"] == "skipped" for line in map(json.loads, before.splitlines()))
    rng.bit_generator.state = torch.load(tmp_path / "rng.pt", weights_only=False)
    steps(session(tmp_path), rng, tmp_path, STEPS // 2 + 1)
    assert log.read_bytes() == before


def test_the_pages_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Experiment:
        cfg = settings(tmp_path)

        def get_train_dataset(self) -> Any:
            return prompts_of(tmp_path / "data")

        def get_generator(self, cfg: Any, tokenizer: Any, inference_engine_client: Any) -> Any:
            return Played(np.random.default_rng(0))

    stand_in = SimpleNamespace(BasePPOExp=Experiment)
    monkeypatch.setitem(sys.modules, "skyrl.train.entrypoints.main_base", stand_in)  # type: ignore[arg-type]
    monkeypatch.chdir(REPOSITORY)
    scope: dict[str, Any] = {}
    exec(compile(example("skyrl.md"), "skyrl.md", "exec"), scope)
    experiment = scope["Experiment"]()
    prompts = experiment.get_train_dataset()
    assert prompts[0][3] == "0.0.0" and prompts[0][3] == "0.0.1", "indices are ignored"
    assert experiment.get_generator(None, None, None).prompts is prompts


def test_evaluation_is_no_evidence(tmp_path: Path) -> None:
    prompts = session(tmp_path)
    given = {"batch_metadata": SimpleNamespace(training_phase="eval"), "env_extras": [{"place": 1}]}
    assert asyncio.run(prompts.observing(Played(np.random.default_rng(0))).generate(given))["rewards"]
    assert prompts.fetching.hosting.session.step == 0


def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"controllers\.prefix_sampling needs .*, which SkyRL 0\.4"):
        session(tmp_path, ["prefix_sampling", "uniform"])
    with pytest.raises(UserError, match=r"generator\.step_wise_trajectories: True is not acceptable; give false"):
        session(tmp_path, step_wise_trajectories=True)
    with pytest.raises(UserError, match=r"data\.dataloader\.num_workers: 8 is not acceptable; give 0"):
        session(tmp_path, workers=8)
    saved = session(tmp_path).state_dict()
    with pytest.raises(UserError, match="23 training problems, and the saved session had others"):
        session(tmp_path, number=23).load_state_dict(saved)
    with pytest.raises(UserError, match=r"reward: 'total reward' gave 0.5, where a success is 0 or 1; set threshold="):
        one_step(session(tmp_path), Played(np.random.default_rng(0), 0.5))

    class Slow(Played):
        async def generate(self, input_batch: Any) -> Any:
            await asyncio.sleep(0)
            return await super().generate(input_batch)

    async def side_by_side(generator: Any, given: Any) -> None:
        await asyncio.gather(generator.generate(given), generator.generate(given))

    given = {"batch_metadata": SimpleNamespace(training_phase="train", global_step=1)}
    given |= {"env_extras": [], "trajectory_ids": []}
    with pytest.raises(UserError, match="trainer: generates groups side by side"):
        asyncio.run(side_by_side(session(tmp_path).observing(Slow(np.random.default_rng(0))), given))


def methods(file: str, name: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    [found] = [node for node in parsed(file).body if isinstance(node, ast.ClassDef) and node.name == name]
    return {node.name: node for node in found.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_skyrl_still_calls_what_the_chain_stands_around() -> None:
    experiment = methods("entrypoints/main_base.py", "BasePPOExp")
    assert [argument.arg for argument in experiment["get_train_dataset"].args.args] == ["self"]
    assert experiment["get_generator"].args.args[0].arg == "self"
    trainer = methods("trainer.py", "RayPPOTrainer")
    assert "self.generator.generate(input_batch)" in ast.unparse(trainer["generate"])
    assert "self.train_dataloader.state_dict()" in ast.unparse(trainer["save_checkpoints"])
    assert "self.train_dataloader.load_state_dict(" in ast.unparse(trainer["load_checkpoints"])
    known = (SKYRL / "skyrl" / "train" / "config" / "config.py").read_text()
    names = ("num_workers", "n_samples_per_prompt", "step_wise_trajectories", "ckpt_path", "seed", "train_batch_size")
    assert all(f"\n    {name}: " in known for name in names)
