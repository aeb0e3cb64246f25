"""Runs verl's own configuration, data set, loader and buffer, with stand-ins for its queue, workers and learner."""

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from paths import REPOSITORY

os.environ.setdefault("HF_HUB_OFFLINE", "1")

SIZE, BATCH, PROBLEMS = 4, 4, 24


class Queue:
    """The part of TransferQueue that the buffer and the trainer use, in this process: tags and fields by key."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, dict[str, Any]]] = {}
        self.fields: dict[str, Any] = {}
        self.polled: Callable[[], None] = lambda: None

    def kv_list(self, partition_id: str | None = None) -> dict[str, Any]:
        self.polled()
        return {name: {key: dict(tag) for key, tag in items.items()} for name, items in self.tags.items()}

    def kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        self.tags.setdefault(partition_id, {}).setdefault(key, {}).update(tag)

    def kv_batch_put(self, keys: list[str], partition_id: str, tags: list[Any], fields: Any = None) -> None:
        for i, (key, tag) in enumerate(zip(keys, tags, strict=True)):
            self.kv_put(key, partition_id, tag)
            if fields is not None:
                self.fields[key] = fields[i]

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str] | None = None) -> Any:
        if select_fields is None:
            import torch

            return torch.stack([self.fields[key] for key in keys])
        return {name: [self.fields[key][name] for key in keys] for name in select_fields}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            self.tags.get(partition_id, {}).pop(key, None)
            self.fields.pop(key, None)


def page_overrides() -> list[str]:
    """The settings in the page's command, without the chain."""
    page = (REPOSITORY / "docs" / "hosts" / "verl.md").read_text()
    [command] = re.findall(r"python -m verl\.trainer\.main_ppo \.\.\. \\\n(.*?)\n\n", page, re.DOTALL)
    given = command.replace("\\\n", " ").split()
    assert [each for each in given if each.startswith("data.halfway.chain=")] == ["data.halfway.chain=chain.yaml"]
    return [each for each in given if "chain.yaml" not in each]


def configuration(
    folder: Path, chain: Sequence[Any], dapo: bool = False, mode: str = "sync", problems: int = PROBLEMS
) -> Any:
    """The configuration that `main_ppo` would be given: verl's defaults, the page's settings, and a few overrides.

    The files of problems are written into the folder.
    """
    import datasets
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf, open_dict

    rows = [
        {
            "prompt": [{"role": "user", "content": f"problem {i}"}],
            "data_source": "lab",
            "reward_model": {"style": "rule", "ground_truth": str(i)},
            "extra_info": {"index": i},
        }
        for i in range(problems)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_list(rows).to_parquet(str(folder / "train.parquet"))
    datasets.Dataset.from_list(rows[:4]).to_parquet(str(folder / "val.parquet"))
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(
            "ppo_trainer",
            overrides=[
                *page_overrides(),
                f"algorithm.filter_groups.enable={dapo}",
                "algorithm.filter_groups.metric=reward",
                f"trainer.v1.trainer_mode={mode}",
                "data.halfway.chain=[uniform]",
                f"data.train_files={folder}/train.parquet",
                f"data.val_files={folder}/val.parquet",
                f"data.train_batch_size={BATCH}",
                "data.filter_overlong_prompts=False",
                f"actor_rollout_ref.rollout.n={SIZE}",
                f"trainer.default_local_dir={folder}",
            ],
            return_hydra_config=False,
        )
    with open_dict(config):
        config.data.halfway.chain = OmegaConf.create(list(chain))
    return config


class Drawn:
    """A stand-in for agent loops: draws outcomes by a pass rate of each problem, and writes them as workers would."""

    def __init__(self, trainer: Any):
        self.trainer, self.rng, self.uids = trainer, np.random.default_rng(1), []

    def generate_sequences(self, batch: Any) -> None:
        columns = {name: [getattr(value, "data", value) for value in batch[name]] for name in ("index", *OURS)}
        for i, uid in enumerate(batch["uid"]):
            self.finish(uid, {name: values[i] for name, values in columns.items()})

    def finish(self, uid: str, row: dict[str, Any], size: int = SIZE, status: str = "finished") -> None:
        """Put `size` trajectories of a prompt into the queue, and then the prompt's status."""
        import transfer_queue as tq
        from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

        start = json.loads(row["halfway_start"])
        keys, fields, tags = [], [], []
        for session in range(size):
            own = [5] * int(self.rng.integers(4, 9)) + [self.trainer.tokenizer.eos_token_id]
            passed = self.rng.random() < (row["index"] % 6) / 5
            output = AgentLoopOutput(
                prompt_ids=[6, 7],
                response_ids=start + own,
                response_mask=[0] * len(start) + [1] * len(own),
                reward_score=float(passed),
                metrics={},
                extra_fields={"reward_extra_info": {"acc": float(passed)}},
            )
            field = output.as_dict()
            field |= {"uid": uid, "loss_mask": field["response_mask"]}
            field |= row
            keys.append(f"{uid}_{session}_0")
            fields.append(field)
            tags.append({"status": "success", "global_steps": self.trainer.global_steps})
        if keys:
            tq.kv_batch_put(keys=keys, fields=fields, tags=tags, partition_id="train")
        tq.kv_put(key=uid, partition_id="train", tag={"status": status})
        self.uids.append(uid)


class Slow(Drawn):
    """Agent loops that finish one random prompt per poll of the queue; some lose half of their rollouts or all."""

    def __init__(self, trainer: Any, queue: Queue):
        super().__init__(trainer)
        self.waiting: list[tuple[str, dict[str, Any]]] = []
        queue.polled = self.polled

    def generate_sequences(self, batch: Any) -> None:
        columns = {name: [getattr(value, "data", value) for value in batch[name]] for name in ("index", *OURS)}
        for i, uid in enumerate(batch["uid"]):
            self.waiting.append((uid, {name: values[i] for name, values in columns.items()}))

    def polled(self) -> None:
        if not self.waiting:
            return
        uid, row = self.waiting.pop(int(self.rng.integers(len(self.waiting))))
        size = int(self.rng.choice([SIZE] * 8 + [SIZE // 2, 0]))
        self.finish(uid, row, size, "finished" if size == SIZE else "failure")


OURS = ("halfway_ticket", "halfway_start")


def trainer(config: Any, queue: Queue | None = None) -> Any:
    """verl's trainer without workers, in the mode of its configuration, with its own buffer, loader and steps.

    Args:
        queue: needed in asynchronous modes.
    """
    from transformers import AutoTokenizer
    from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
    from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    mode = config.trainer.v1.trainer_mode
    kinds = {
        "sync": PPOTrainerSync,
        "colocate_async": PPOTrainerColocateAsync,
        "separate_async": PPOTrainerSeparateAsync,
    }
    kind: Any = kinds[mode]
    made = kind.__new__(kind)
    made.config, made.trainer_mode, made.global_steps = config, mode, 1
    made.parameter_sync_step = config.trainer.v1.get(mode, {}).get("parameter_sync_step", 1)
    if mode == "separate_async":
        lend(made)
    made._restored_tq_prompt_count = 0
    made.tokenizer = AutoTokenizer.from_pretrained(REPOSITORY / "experiments" / "starting_models" / "sums")
    made.processor = None
    made.replay_buffer = made._build_replay_buffer()
    made.replay_buffer.poll_interval = 0.001
    made._init_dataloader()
    made.agent_loop_manager = Drawn(made) if queue is None else Slow(made, queue)
    return made


def lend(made: Any) -> None:
    """Let a trainer lend its GPUs to rollouts until half a batch is there, as a step begins with switching enabled."""
    from verl.trainer.ppo.v1.trainer_separate_async import HybridEngineMode

    made.current_mode, made._step_threshold, made.timing_raw = HybridEngineMode.ROLLOUT, BATCH // 2, {}
    made._timed_switch_to_trainer = lambda: None


def steps(made: Any, first: int, last: int) -> list[dict[str, Any]]:
    """Run the part of `fit`'s steps that needs no model. Returns the metrics of each batch, maybe several per step."""
    import transfer_queue as tq

    found = []
    for step in range(first, last + 1):
        made.global_steps = step
        made.prepare_step()
        for _ in range(made.parameter_sync_step):
            size = BATCH // made.parameter_sync_step
            batch, metrics = made.replay_buffer.sample(global_steps=step, partition_id="train", batch_size=size)
            tq.kv_clear(keys=batch.keys, partition_id="train")
            assert len(batch.keys) == size * SIZE
            found.append(metrics)
    return found
