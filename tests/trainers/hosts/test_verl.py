"""A chain in verl's V1 trainer: its own configuration, data set, loader and replay buffer, and its own loss."""

import asyncio
import copy
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from messages import says

pytest.importorskip("verl")
pytest.importorskip("transfer_queue")

import torch
import verl_lab
from damage import damaged
from omegaconf import OmegaConf
from special_tokens import matrix, tokenizer_that
from verl_lab import BATCH, SIZE

from halfway.curriculum import UserError

GRESO = ["uniform", {"greso": {"frozen_epochs": 0}}]
PREFIXES = [{"prefix_sampling": {"max_share": 0.5}}, "uniform"]


STEPS = 20


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> verl_lab.Queue:
    import transfer_queue

    stand_in = verl_lab.Queue()
    for name in ("kv_list", "kv_put", "kv_batch_put", "kv_batch_get", "kv_clear"):
        monkeypatch.setattr(transfer_queue, name, getattr(stand_in, name))
    return stand_in


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "halfway" / "decisions.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("chain", "dapo"), [(GRESO, False), (GRESO, True), (PREFIXES, False)])
def test_every_group_is_observed_once_and_a_resumed_run_is_the_same(
    chain: list[Any], dapo: bool, queue: verl_lab.Queue, tmp_path: Path
) -> None:
    config = verl_lab.configuration(tmp_path, chain, dapo)
    whole = verl_lab.trainer(config)
    verl_lab.steps(whole, 1, STEPS // 2)
    torch.save(whole.train_dataloader.state_dict(), tmp_path / "data.pt")
    drawn = whole.agent_loop_manager.rng.bit_generator.state
    metrics = verl_lab.steps(whole, STEPS // 2 + 1, STEPS)
    assert "halfway/uniform/epoch" in metrics[-1]
    before = records(tmp_path)
    groups = [record for record in records(tmp_path) if record["outcome"] != "skipped"]
    assert len(groups) == len(whole.agent_loop_manager.uids) and {record["n"] for record in groups} == {SIZE}
    assert len(groups) >= STEPS * BATCH
    if dapo:
        assert sum(record["outcome"] == "trained" for record in groups) == STEPS * BATCH
        assert any(record["outcome"] == "zero_variance" for record in groups)
    if chain is PREFIXES:
        assert any(record["prefix_tokens"] for record in groups)
    again = verl_lab.trainer(config)
    again.agent_loop_manager.rng.bit_generator.state = drawn
    again.train_dataloader.load_state_dict(torch.load(tmp_path / "data.pt", weights_only=False))
    verl_lab.steps(again, STEPS // 2 + 1, STEPS)
    assert without_outcomes(records(tmp_path), dapo) == without_outcomes(before, dapo)


def without_outcomes(lines: list[dict[str, Any]], dapo: bool) -> list[dict[str, Any]]:
    """Under DAPO verl discards what is too much in the order of a set of random ids, so that two runs differ there."""
    return [line | {"outcome": "trained"} if dapo and line["outcome"] == "surplus" else line for line in lines]


ASYNCHRONOUS = [
    (GRESO, False, "colocate_async"),
    (GRESO, True, "colocate_async"),
    (PREFIXES, False, "colocate_async"),
    (GRESO, False, "separate_async"),
    (GRESO, True, "separate_async"),
]


@pytest.mark.parametrize(("chain", "dapo", "mode"), ASYNCHRONOUS)
def test_an_asynchronous_trainer_observes_every_group_once(
    chain: list[Any], dapo: bool, mode: str, queue: verl_lab.Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from verl.trainer.ppo.v1 import trainer_base

    numbered = itertools.count()
    monkeypatch.setattr(trainer_base, "uuid", SimpleNamespace(uuid4=lambda: f"{next(numbered):06d}"))
    config = verl_lab.configuration(tmp_path, chain, dapo, mode)
    config.data.gen_batch_size = 1
    if mode == "separate_async":
        config.trainer.v1.separate_async.parameter_sync_step = 2
    whole = verl_lab.trainer(config, queue)
    whole.on_train_begin()
    verl_lab.steps(whole, 1, STEPS // 2)
    torch.save(whole.train_dataloader.state_dict(), tmp_path / "data.pt")
    saved = copy.deepcopy((queue.tags, queue.fields))
    verl_lab.steps(whole, STEPS // 2 + 1, STEPS)
    check_asynchronous(whole, records(tmp_path), queue)
    # What was in flight is begun anew; what had come back is not observed a second time.
    queue.tags, queue.fields = saved
    again = verl_lab.trainer(config, queue)
    again.train_dataloader.load_state_dict(torch.load(tmp_path / "data.pt", weights_only=False))
    again.global_steps = STEPS // 2
    again._reissue_inflight_prompts()
    verl_lab.steps(again, STEPS // 2 + 1, STEPS)
    lines = [json.loads(line) for line in (tmp_path / "halfway" / "steps.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(STEPS * again.parameter_sync_step))
    check_asynchronous(again, records(tmp_path), queue)


def check_asynchronous(trainer: Any, lines: list[dict[str, Any]], queue: verl_lab.Queue) -> None:
    session = trainer.train_dataset.steering.hosting.session
    groups = [line for line in lines if line["outcome"] != "skipped"]
    assert len(groups) >= STEPS * BATCH
    assert all(group["n"] + sum(group["dropped"].values()) == SIZE for group in groups)
    assert {group["n"] for group in groups} == {SIZE}, "those that failed are in the pass rate"
    assert {tuple(group["dropped"]) for group in groups} == {()}
    flying = {ticket.id for ticket in session.tickets_in_flight()}
    waiting = {row["halfway_ticket"] for _, row in trainer.agent_loop_manager.waiting}
    drawn = {ticket.id for ticket in trainer.train_dataset.steering.drawn}
    assert flying == waiting | drawn and not list(session.in_hand()), "whatever was drawn is known to be somewhere"


def test_other_problems_are_refused(tmp_path: Path) -> None:
    saved = verl_lab.trainer(verl_lab.configuration(tmp_path, GRESO)).train_dataset.state_dict()
    other = verl_lab.trainer(verl_lab.configuration(tmp_path, GRESO, problems=verl_lab.PROBLEMS - 1))
    with pytest.raises(UserError, match=says("23 training problems", "saved session")):
        other.train_dataset.load_state_dict(saved)


def test_a_damaged_state_is_one_line(queue: verl_lab.Queue, tmp_path: Path) -> None:
    trainer = verl_lab.trainer(verl_lab.configuration(tmp_path, GRESO))
    verl_lab.steps(trainer, 1, 2)
    rows, before = trainer.train_dataset, records(tmp_path)
    for state in damaged(rows.state_dict()):
        with pytest.raises(UserError, match=says("verl 0.9", "checkpoint", "damaged", "another")):
            rows.load_state_dict(state)
    assert records(tmp_path) == before


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
    assert losses_BT.grad[0].tolist() == pytest.approx([0, 0, 0, 1 / 3, 1 / 3, 1 / 3]) and loss.item() == 1.0


@matrix
def test_a_prompt_has_the_special_tokens_that_its_template_writes(
    tiny_tokenizer: Any, ends: str, template: str
) -> None:
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap

    from halfway.trainers.hosts.verl.prefix_loop import START, PrefixAgentLoop

    tokenizer = tokenizer_that(tiny_tokenizer, ends, template)
    asked = [{"role": "user", "content": "2+3"}]
    expected = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=True)["input_ids"]
    rollout: dict[str, Any] = {"response_length": 6, "prompt_length": 100}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})

    async def sent() -> list[int]:
        given: Any = (DictConfigWrap(config), Server(), tokenizer, None, None, DictConfigWrap(OmegaConf.create({})))
        loop: Any = PrefixAgentLoop(*given)
        await loop.run({}, raw_prompt=asked, **{START: "[7, 8]"})
        tokens: list[int] = loop.server_manager.options["prompt_ids"]
        return tokens

    tokens = asyncio.run(sent())
    assert tokens == [*expected, 7, 8]
    assert tokens.count(tokenizer.bos_token_id) == (template == "writes BOS")


def test_prompts_that_are_text_are_refused(tmp_path: Path) -> None:
    from halfway.trainers.hosts.verl.steering import begin

    settings: dict[str, Any] = {"dataloader_num_workers": 0, "shuffle": False, "train_batch_size": 4}
    settings["halfway"] = {"chain": ["uniform"], "num_rollouts": 4, "folder": str(tmp_path)}
    rows = [{"question": str(i), "reward_model": {}} for i in range(4)]
    with pytest.raises(UserError, match=says("data.prompt_key", "question", "messages")):
        begin(OmegaConf.create(settings), rows, "question", frozenset({1}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dataloader_num_workers": 8}, "data.dataloader_num_workers: must be 0, not 8"),
        ({"shuffle": True}, "data.shuffle: must be false, not True"),
        ({"halfway": {"chain": ["pros"], "num_rollouts": 4, "folder": "."}}, "controllers.pros: needs the entropy of"),
        ({"halfway": None}, "data.halfway.chain: missing"),
        (
            {"halfway": {"chain": ["uniform"], "num_rollouts": 4, "folder": ".", "v1": False}},
            "trainer.use_v1: must be true, not False",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    from halfway.trainers.hosts.verl.steering import begin

    settings: dict[str, Any] = {"dataloader_num_workers": 0, "shuffle": False, "train_batch_size": 4}
    settings["halfway"] = {"chain": ["uniform"], "num_rollouts": 4, "folder": str(tmp_path)}
    rows = [{"prompt": [{"role": "user", "content": str(i)}], "reward_model": {}} for i in range(4)]
    with pytest.raises(UserError) as caught:
        begin(OmegaConf.create(settings | changes), rows, "prompt", frozenset({1}))
    assert words in str(caught.value) and "\n" not in str(caught.value)
