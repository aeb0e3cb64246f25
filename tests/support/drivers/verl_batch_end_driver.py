"""Runs twenty steps of an older verl's trainer without workers, then the last ten again from the checkpoint.

    python verl_batch_end_driver.py FOLDER

Configuration, data set, loader and batches are verl's own. Writes FOLDER/whole.jsonl, the decisions of the
uninterrupted run; FOLDER/halfway is left as the resumed run wrote it.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import verl_lab
from paths import REPOSITORY
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import AutoTokenizer
from verl import DataProto
from verl.utils.dataset.rl_dataset import collate_fn
from verl_lab import BATCH, SIZE

try:
    from verl.trainer.ppo.utils import create_rl_dataset, create_rl_sampler
except ImportError:  # before 0.8
    from verl.trainer.main_ppo import create_rl_dataset, create_rl_sampler

CHAIN = ["uniform", {"greso": {"frozen_epochs": 0}}]
STEPS, SAVED = 20, 10


def trained(batch_dict: dict[str, Any], rng: np.random.Generator) -> Any:
    """A loader's batch as verl's trainer hands it back: one row per rollout, reordered, with scores."""
    batch = DataProto.from_single_dict(batch_dict).repeat(repeat_times=SIZE, interleave=True)
    indices = [info["index"] for info in batch.non_tensor_batch["extra_info"]]
    passed = rng.random(len(indices)) < np.array(indices) % 6 / 5
    lengths = rng.integers(4, 9, len(indices))
    mask_BT = torch.arange(9)[None] < torch.tensor(lengths)[:, None]
    scores_BT = torch.zeros(len(indices), 9)
    scores_BT[torch.arange(len(indices)), torch.tensor(lengths) - 1] = torch.tensor(passed, dtype=torch.float32)
    fields = {"responses": torch.full((len(indices), 9), 5), "response_mask": mask_BT.long()}
    batch = batch.union(DataProto.from_single_dict(fields | {"token_level_scores": scores_BT}))
    batch.reorder(torch.tensor(rng.permutation(len(indices))))
    return batch


def steps(config: Any, folder: Path, first: int, rng: np.random.Generator) -> None:
    tokenizer = AutoTokenizer.from_pretrained(REPOSITORY / "experiments" / "starting_models" / "sums")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    dataset = create_rl_dataset(config.data.train_files, config.data, tokenizer, None)
    loader = StatefulDataLoader(
        dataset=dataset,
        batch_size=config.data.get("gen_batch_size", config.data.train_batch_size) or BATCH,
        num_workers=config.data.dataloader_num_workers,
        drop_last=True,
        collate_fn=collate_fn,
        sampler=create_rl_sampler(config.data, dataset),
    )
    if first > 1:
        loader.load_state_dict(torch.load(folder / "data.pt", weights_only=False))
    step = first
    while step <= STEPS:
        for batch_dict in loader:
            batch = trained(batch_dict, rng)
            if first == 1 and step == SAVED:
                torch.save(loader.state_dict(), folder / "data.pt")
                torch.save(rng.bit_generator.state, folder / "rng.pt")
            if step == STEPS:  # verl's last step ends before the batch is handed over
                return
            dataset.on_batch_end(batch=batch)
            step += 1


def main(given: str) -> None:
    folder = Path(given)
    overrides = [each.replace("+halfway=session", "+halfway=batch_end") for each in verl_lab.page_overrides()]
    config = verl_lab.composed(folder, CHAIN, overrides)
    rng = np.random.default_rng(1)
    steps(config, folder, 1, rng)
    shutil.copy(folder / "halfway" / "decisions.jsonl", folder / "whole.jsonl")
    rng.bit_generator.state = torch.load(folder / "rng.pt", weights_only=False)
    steps(config, folder, SAVED + 1, rng)


if __name__ == "__main__":
    main(sys.argv[1])
