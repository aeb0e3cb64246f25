"""verl's own configuration, data set, loader and buffer; in the place of GPUs and its queue on Ray, stand-ins."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from paths import REPOSITORY

os.environ.setdefault("HF_HUB_OFFLINE", "1")

SIZE, BATCH, PROBLEMS = 4, 4, 24


class Queue:
    """What the buffer and the trainer ask of TransferQueue, in this process: tags and fields by key."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, dict[str, Any]]] = {}
        self.fields: dict[str, dict[str, Any]] = {}

    def kv_list(self, partition_id: str | None = None) -> dict[str, Any]:
        return {name: {key: dict(tag) for key, tag in items.items()} for name, items in self.tags.items()}

    def kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        self.tags.setdefault(partition_id, {}).setdefault(key, {}).update(tag)

    def kv_batch_put(self, keys: list[str], partition_id: str, tags: list[Any], fields: Any = None) -> None:
        for i, (key, tag) in enumerate(zip(keys, tags, strict=True)):
            self.kv_put(key, partition_id, tag)
            if fields is not None:
                self.fields[key] = fields[i]

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, list[Any]]:
        return {name: [self.fields[key][name] for key in keys] for name in select_fields}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            self.tags.get(partition_id, {}).pop(key, None)
            self.fields.pop(key, None)


def configuration(folder: Path, chain: Sequence[Any], dapo: bool = False) -> Any:
    """What `main_ppo` would be given: verl's defaults, Halfway's file of settings, and a few overrides."""
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
        for i in range(PROBLEMS)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_list(rows).to_parquet(str(folder / "train.parquet"))
    datasets.Dataset.from_list(rows[:4]).to_parquet(str(folder / "val.parquet"))
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(
            "ppo_trainer",
            overrides=[
                "hydra.searchpath=[pkg://halfway.trainers.hosts.verl.config]",
                "+halfway=session",
                "data.halfway.chain=[uniform]",
                f"data.train_files={folder}/train.parquet",
                f"data.val_files={folder}/val.parquet",
                f"data.train_batch_size={BATCH}",
                "data.filter_overlong_prompts=False",
                f"actor_rollout_ref.rollout.n={SIZE}",
                f"algorithm.filter_groups.enable={dapo}",
                "algorithm.filter_groups.metric=reward",
                "trainer.total_training_steps=20",
                "trainer.v1.trainer_mode=sync",
                f"trainer.default_local_dir={folder}",
            ],
            return_hydra_config=False,
        )
    with open_dict(config):
        config.data.halfway.chain = OmegaConf.create(list(chain))
    return config


class Drawn:
    """In the place of agent loops: every problem has a pass rate. Writes what verl's workers write."""

    def __init__(self, trainer: Any):
        self.trainer, self.rng, self.uids = trainer, np.random.default_rng(1), []

    def generate_sequences(self, batch: Any) -> None:
        import transfer_queue as tq
        from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

        columns = {name: [getattr(value, "data", value) for value in batch[name]] for name in ("index", *OURS)}
        for i, uid in enumerate(batch["uid"]):
            start = json.loads(columns["halfway_start"][i])
            keys, fields, tags = [], [], []
            for session in range(SIZE):
                own = [5] * int(self.rng.integers(4, 9)) + [self.trainer.tokenizer.eos_token_id]
                passed = self.rng.random() < (columns["index"][i] % 6) / 5
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
                field |= {name: values[i] for name, values in columns.items()}
                keys.append(f"{uid}_{session}_0")
                fields.append(field)
                tags.append({"status": "success", "global_steps": self.trainer.global_steps})
            tq.kv_batch_put(keys=keys, fields=fields, tags=tags, partition_id="train")
            tq.kv_put(key=uid, partition_id="train", tag={"status": "finished"})
            self.uids.append(uid)


OURS = ("halfway_ticket", "halfway_start")


def trainer(config: Any) -> Any:
    """verl's synchronous trainer without workers: its own buffer, loader and steps."""
    from transformers import AutoTokenizer
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    made = PPOTrainerSync.__new__(PPOTrainerSync)
    made.config, made.trainer_mode, made.parameter_sync_step, made.global_steps = config, "sync", 1, 1
    made.tokenizer = AutoTokenizer.from_pretrained(REPOSITORY / "experiments" / "lab" / "base")
    made.processor = None
    made.replay_buffer = made._build_replay_buffer()
    made.replay_buffer.poll_interval = 0.02
    made._init_dataloader()
    made.agent_loop_manager = Drawn(made)
    return made


def steps(made: Any, first: int, last: int) -> list[dict[str, Any]]:
    """What `fit` does of a step without a model. Returns the metrics of each."""
    import transfer_queue as tq

    found = []
    for step in range(first, last + 1):
        made.global_steps = step
        made.prepare_step()
        batch, metrics = made.replay_buffer.sample(global_steps=step, partition_id="train", batch_size=BATCH)
        tq.kv_clear(keys=batch.keys, partition_id="train")
        assert len(batch.keys) == BATCH * SIZE
        found.append(metrics)
    return found
