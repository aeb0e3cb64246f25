"""A chain in verl's V1 trainer: its own configuration, data set, loader and replay buffer, and its own loss."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl")
pytest.importorskip("transfer_queue")

import verl_lab
from verl_lab import BATCH, SIZE

from halfway.curriculum import UserError

GRESO = ["uniform", {"greso": {"frozen_epochs": 0}}]
PREFIXES = [{"prefix_sampling": {"max_share": 0.5}}, "uniform"]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> None:
    import transfer_queue

    stand_in = verl_lab.Queue()
    for name in ("kv_list", "kv_put", "kv_batch_put", "kv_batch_get", "kv_clear"):
        monkeypatch.setattr(transfer_queue, name, getattr(stand_in, name))


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "halfway" / "decisions.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("chain", "dapo"), [(GRESO, False), (GRESO, True), (PREFIXES, False)])
def test_every_group_is_observed_once_and_a_resumed_run_is_the_same(
    chain: list[Any], dapo: bool, queue: None, tmp_path: Path
) -> None:
    config = verl_lab.configuration(tmp_path, chain, dapo)
    whole = verl_lab.trainer(config)
    verl_lab.steps(whole, 1, 3)
    saved, drawn = whole.train_dataloader.state_dict(), whole.agent_loop_manager.rng.bit_generator.state
    metrics = verl_lab.steps(whole, 4, 6)
    assert "halfway/uniform/epoch" in metrics[-1]
    before = records(tmp_path)
    groups = [record for record in records(tmp_path) if record["outcome"] != "skipped"]
    assert len(groups) == len(whole.agent_loop_manager.uids) and {record["n"] for record in groups} == {SIZE}
    assert len(groups) >= 6 * BATCH
    if dapo:
        assert sum(record["outcome"] == "trained" for record in groups) == 6 * BATCH
        assert any(record["outcome"] == "degenerate" for record in groups)
    if chain is PREFIXES:
        assert any(record["prefix_tokens"] for record in groups)
    again = verl_lab.trainer(config)
    again.agent_loop_manager.rng.bit_generator.state = drawn
    again.train_dataloader.load_state_dict(saved)
    verl_lab.steps(again, 4, 6)
    assert without_outcomes(records(tmp_path), dapo) == without_outcomes(before, dapo)


def without_outcomes(lines: list[dict[str, Any]], dapo: bool) -> list[dict[str, Any]]:
    """Under DAPO verl discards what is too much in the order of a set of random ids, so that two runs differ there."""
    return [line | {"outcome": "trained"} if dapo and line["outcome"] == "surplus" else line for line in lines]


class Server:
    async def generate(self, **options: Any) -> Any:
        self.options = options
        return SimpleNamespace(token_ids=[11, 12, 13, 14], log_probs=[-1.0] * 4, extra_fields={})


def test_replayed_tokens_are_outside_verls_loss() -> None:
    import torch
    from verl.trainer.ppo.core_algos import agg_loss

    from halfway.trainers.hosts.verl.prefix_loop import START, PrefixAgentLoop

    async def initial(messages: Any) -> list[int]:
        return [1, 2]

    loop: Any = PrefixAgentLoop.__new__(PrefixAgentLoop)
    loop.server_manager, loop.rollout_config = Server(), SimpleNamespace(response_length=6)
    loop.ct_build_initial_tokens = initial
    done = asyncio.run(loop.run({}, raw_prompt=[{"role": "user", "content": "?"}], **{START: "[7, 8, 9]"}))
    assert loop.server_manager.options["prompt_ids"] == [1, 2, 7, 8, 9]
    assert done.response_ids == [7, 8, 9, 11, 12, 13] and done.response_mask == [0, 0, 0, 1, 1, 1]
    losses_BT = torch.ones(1, 6, requires_grad=True)
    loss = agg_loss(losses_BT, torch.tensor([done.response_mask]), "token-mean")
    loss.backward()
    assert losses_BT.grad is not None
    assert losses_BT.grad[0].tolist() == pytest.approx([0, 0, 0, 1 / 3, 1 / 3, 1 / 3]) and loss.item() == 1.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dataloader_num_workers": 8}, "data.dataloader_num_workers: 8 is not acceptable; give 0"),
        ({"shuffle": True}, "data.shuffle: True is not acceptable; give false"),
        ({"halfway": {"chain": ["pros"], "num_rollouts": 4, "folder": "."}}, "controllers.pros needs the entropy of"),
        ({"halfway": None}, "data.halfway.chain: missing"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    from halfway.trainers.hosts.verl.steering import begin

    settings: dict[str, Any] = {"dataloader_num_workers": 0, "shuffle": False, "train_batch_size": 4}
    settings["halfway"] = {"chain": ["uniform"], "num_rollouts": 4, "folder": str(tmp_path)}
    rows = [{"prompt": [{"role": "user", "content": str(i)}], "reward_model": {}} for i in range(4)]
    with pytest.raises(UserError) as caught:
        begin(OmegaConf.create(settings | changes), rows, "prompt", frozenset({1}))
    assert words in str(caught.value) and "\n" not in str(caught.value)
