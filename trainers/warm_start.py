"""Supervised warm start of the lab's policies: a tiny transformer learns a task from its flawed teacher.

    python -m trainers.warm_start running_sums experiments/lab/base
    python -m trainers.warm_start ledger experiments/lab/ledger_base
    python -m trainers.warm_start sums_generator experiments/lab/sums_generator

make the committed starting checkpoints again, plain Hugging Face folders of model and tokenizer.
"""

import math
import os
import random
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from curriculum.domains.sums import BEGIN
from curriculum.lab import ledger, sums, sums_writer

PAD, END = "_", "$"
VOCABULARY = PAD + END + "^@0123456789+-=/>:?|!" + sums.LABELS
IGNORED = -100  # the label that torch's cross-entropy leaves out


@dataclass(frozen=True)
class WarmStart:
    """A recipe: task, model size, optimization.

    Attributes:
        steps, lr: AdamW with a linear warm-up of 30 steps and a cosine to 5 % of the peak.
        batch_tokens: about how many tokens a batch has.
        first_steps: the first steps train on sheets of four lines only, from which copying is learned soonest.
        min_lines, max_lines: lines of the later sheets, uniform over batches.
        hidden, layers, heads: of the Qwen3 architecture, key-value heads half as many.
    """

    task: Literal["running_sums", "ledger", "sums_generator"] = "running_sums"
    steps: int = 800
    batch_tokens: int = 3000
    lr: float = 3e-3
    seed: int = 0
    first_steps: int = 100
    min_lines: int = 4
    max_lines: int = 12
    hidden: int = 96
    layers: int = 3
    heads: int = 4


RECIPES = {
    "running_sums": WarmStart("running_sums"),
    "ledger": WarmStart("ledger", steps=500),
    "sums_generator": WarmStart("sums_generator", steps=350, layers=4),
}

# A part of a demonstration: its text, and whether the policy wrote it (and so learns it).
Part = tuple[str, bool]


def build_tokenizer() -> Any:
    """A character-level tokenizer; "$" ends a turn."""
    import transformers
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({character: i for i, character in enumerate(VOCABULARY)}))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast: Any = transformers.PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)


def build_model(recipe: WarmStart) -> Any:
    """A randomly initialised model; torch's global generator decides the weights."""
    import transformers

    model: Any = transformers.Qwen3ForCausalLM
    return model(
        transformers.Qwen3Config(
            vocab_size=len(VOCABULARY),
            hidden_size=recipe.hidden,
            intermediate_size=3 * recipe.hidden,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.heads // 2,
            head_dim=recipe.hidden // recipe.heads,
            max_position_embeddings=256,
            tie_word_embeddings=True,
            pad_token_id=VOCABULARY.index(PAD),
            bos_token_id=None,
            eos_token_id=VOCABULARY.index(END),
        )
    )


def sums_demonstration(lines: int, rng: random.Random) -> list[Part]:
    sheet = sums.make_sheet(sums.SumsOptions(lines, lines), rng)
    return [(sums.render(sheet), False), (sums.demonstrate(sheet, sums.SumsTeacher(), rng) + END, True)]


def ledger_demonstration(rng: random.Random) -> list[Part]:
    account = ledger.make_account(ledger.LedgerOptions(), rng)
    parts: list[Part] = [(ledger.render(account), False)]
    for command, observation in ledger.demonstrate(account, ledger.LedgerTeacher(), rng):
        parts += [(command + END, True), (observation, False)]
    return parts


def sheet_demonstration(rng: random.Random) -> list[Part]:
    """A sheet as the author of the lab's task generator writes it."""
    return [(BEGIN, False), (sums_writer.write_sheet(sums_writer.SheetAuthor(), rng) + END, True)]


def draw_batch(step: int, recipe: WarmStart, rng: random.Random) -> list[list[Part]]:
    """The demonstrations of one step; sheets of one length, so that little is padding."""
    if recipe.task == "ledger":
        return [ledger_demonstration(rng) for _ in range(recipe.batch_tokens // 30)]
    if recipe.task == "sums_generator":
        return [sheet_demonstration(rng) for _ in range(recipe.batch_tokens // 26)]
    lines = 4 if step < recipe.first_steps else rng.randint(recipe.min_lines, recipe.max_lines)
    return [sums_demonstration(lines, rng) for _ in range(recipe.batch_tokens // (7 * lines + 6))]


def collate(demonstrations: Sequence[list[Part]]) -> tuple[Any, Any]:
    """Token ids and labels, both (B, T), padded on the right; labels only where the policy wrote."""
    import torch

    length = max(sum(len(text) for text, _ in parts) for parts in demonstrations)
    tokens_BT = torch.full((len(demonstrations), length), VOCABULARY.index(PAD))
    labels_BT = torch.full((len(demonstrations), length), IGNORED)
    for row, parts in enumerate(demonstrations):
        start = 0
        for text, own in parts:
            ids = torch.tensor([VOCABULARY.index(character) for character in text], dtype=torch.long)
            tokens_BT[row, start : start + len(text)] = ids
            if own:
                labels_BT[row, start : start + len(text)] = ids
            start += len(text)
    return tokens_BT, labels_BT


def train(recipe: WarmStart) -> Any:
    """Train a model from scratch; equal recipes give equal models on equal machines."""
    import torch
    from rich.progress import track

    torch.manual_seed(recipe.seed)
    rng = random.Random(recipe.seed)
    model = build_model(recipe)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(_lr_factor, steps=recipe.steps))
    for step in track(range(recipe.steps), description="warm start"):
        tokens_BT, labels_BT = collate(draw_batch(step, recipe, rng))
        loss = model(input_ids=tokens_BT, labels=labels_BT).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def _lr_factor(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / 30) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def warm_start(output: Path, recipe: WarmStart) -> None:
    """Train and write the checkpoint folder, replacing an earlier one only when the new one is complete."""
    model = train(recipe)
    partial = output.with_name(f".{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    build_tokenizer().save_pretrained(partial)
    shutil.rmtree(output, ignore_errors=True)
    os.replace(partial, output)


if __name__ == "__main__":
    warm_start(Path(sys.argv[2]), RECIPES[sys.argv[1]])
