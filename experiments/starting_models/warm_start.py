"""Warms up the lab's policies by supervised training: a tiny transformer learns a task from its flawed teacher.

    python -m halfway.experiments.starting_models.warm_start running_sums experiments/starting_models/sums
    python -m halfway.experiments.starting_models.warm_start operator_sheets runs/instances/skills-1 --instance 1

The other recipes of starting policies are `operator_sheets` (folder `skills`), `ledger`, `sums_generator` and
`operators_generator`. They make the committed checkpoints again: Hugging Face folders with model and tokenizer.
`small_sums_generator` is for the transfer in `recipes/propel/sums.yaml`, and `long_sums` for sheets of up to twenty
lines; they are not committed. Other instances start from other random weights, with other demonstrations, and operator
sheets have another table of operators.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from halfway.curriculum import UserError
from halfway.curriculum.support.atomic import replacing_folder
from halfway.curriculum.tasks.lab import ledger, operators, sums
from halfway.experiments.scripts import script, script_parser
from halfway.experiments.starting_models.authors import write_operators, write_sums
from halfway.trainers.propel.domains.sheets import Operators, Sums

Task = Literal[
    "running_sums",
    "long_sums",
    "operator_sheets",
    "ledger",
    "sums_generator",
    "operators_generator",
]

PAD, END = "_", "$"
VOCABULARY = (*(PAD + END + "^@0123456789+-=/>:?|!" + sums.LABELS),)
"""The tokens of running sums and the ledger, one character each, in the order of their ids."""

OPERATORS = (*(PAD + END + "^/=01234567" + operators.LABELS + operators.OPERATORS),)
"""The tokens of operator sheets."""

MOST_BEGUN = 10

IGNORED = -100  # the label that torch's cross-entropy ignores


@dataclass(frozen=True)
class WarmStart:
    """The recipe of a starting policy: its task, model size and optimization.

    Attributes:
        steps: number of AdamW steps.
        lr: peak learning rate, reached by a linear warm-up of 30 steps; a cosine then lowers it to 5 %.
        batch_tokens: approximate number of tokens in a batch.
        first_steps: number of first steps with sheets of only four lines, which teach copying soonest. For operators,
            these sheets are from the first stratum only: with all tables at once, a model learns only copying for 700
            steps.
        most_loss: number of steps -> the largest mean loss of the last twenty; a model above it has learned little but
            copying, and training starts again with the next seed.
        min_lines, max_lines: range of the later sheets' lines, drawn uniformly per batch, for sums and operators.
        hidden, layers, heads: sizes of the Qwen3 architecture, which has half as many key-value heads.
        table: number of the operators' table, for operator sheets.
    """

    task: Task = "running_sums"
    steps: int = 800
    batch_tokens: int = 3000
    lr: float = 3e-3
    seed: int = 0
    first_steps: int = 100
    most_loss: Mapping[int, float] = field(default_factory=dict)
    min_lines: int = 4
    max_lines: int = 12
    hidden: int = 96
    layers: int = 3
    heads: int = 4
    table: int = 0


LONG_TEACHER = sums.SumsTeacher(forget=0.35, slip=0.06)
"""It knows the rule but is not reliable: long sheets fail because each of many lines may be wrong."""

RECIPES = {
    "running_sums": WarmStart("running_sums"),
    "long_sums": WarmStart(
        "long_sums",
        steps=1100,
        batch_tokens=4000,
        most_loss={700: 0.9, 1100: 0.35},
        min_lines=8,
        max_lines=20,
        hidden=48,
        layers=2,
    ),
    "operator_sheets": WarmStart(
        "operator_sheets",
        steps=1500,
        batch_tokens=1500,
        first_steps=250,
        most_loss={250: 0.4},
        min_lines=3,
        max_lines=7,
    ),
    "ledger": WarmStart("ledger", steps=500),
    "sums_generator": WarmStart("sums_generator", steps=350, layers=4),
    "small_sums_generator": WarmStart("sums_generator", steps=350, seed=1, hidden=64, layers=2),
    "operators_generator": WarmStart("operators_generator", steps=800, layers=4),
}

OPERATOR_TASKS = ("operator_sheets", "operators_generator")

# A part of a demonstration: its text, and whether it is the policy's, which learns it.
Part = tuple[str, bool]


def instance_of(recipe: WarmStart, number: int) -> WarmStart:
    """The recipe with other random numbers and another table of operators; instance 0 is the recipe itself."""
    return replace(recipe, seed=recipe.seed + 1000 * number, table=number)


def vocabulary_of(task: Task) -> tuple[str, ...]:
    """The tokens of a task's policy, in the order of their ids."""
    return OPERATORS if task in OPERATOR_TASKS else VOCABULARY


def build_tokenizer(task: Task = "running_sums") -> Any:
    """Build the tokenizer of a task's policy: one token per character; "$" ends a turn."""
    import transformers
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary_of(task))}))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast: Any = transformers.PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)


def build_model(recipe: WarmStart) -> Any:
    """Build the initial model, with random weights from torch's global generator."""
    import transformers

    vocabulary = vocabulary_of(recipe.task)
    model: Any = transformers.Qwen3ForCausalLM
    return model(
        transformers.Qwen3Config(
            vocab_size=len(vocabulary),
            hidden_size=recipe.hidden,
            intermediate_size=3 * recipe.hidden,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.heads // 2,
            head_dim=recipe.hidden // recipe.heads,
            max_position_embeddings=256,
            tie_word_embeddings=True,
            pad_token_id=vocabulary.index(PAD),
            bos_token_id=None,
            eos_token_id=vocabulary.index(END),
        )
    )


def sums_demonstration(lines: int, teacher: sums.SumsTeacher, rng: random.Random) -> list[Part]:
    sheet = sums.make_sheet(sums.SumsOptions(lines, lines), rng)
    return [(sums.render(sheet), False), (sums.demonstrate(sheet, teacher, rng) + END, True)]


def operators_demonstration(lines: int, strata: int, table: int, rng: random.Random) -> list[Part]:
    """Demonstrate a sheet of one of the first strata; the teacher ignores how many wrong lines pass."""
    options = operators.OperatorOptions(lines, lines)
    sheet = operators.make_sheet(options, rng.randrange(strata), rng)
    response = operators.demonstrate(sheet, operators.OperatorTeacher(), rng, table)
    return [(operators.render(sheet), False), (response + END, True)]


def ledger_demonstration(rng: random.Random) -> list[Part]:
    account = ledger.make_account(ledger.LedgerOptions(), rng)
    parts: list[Part] = [(ledger.render(account), False)]
    for command, observation in ledger.demonstrate(account, ledger.LedgerTeacher(), rng):
        parts += [(command + END, True), (observation, False)]
    return parts


def draw_batch(step: int, recipe: WarmStart, rng: random.Random) -> list[list[Part]]:
    """Draw the demonstrations of one step; its sheets have the same number of lines, which keeps padding small."""
    if recipe.task == "ledger":
        return [ledger_demonstration(rng) for _ in range(recipe.batch_tokens // 30)]
    if recipe.task == "sums_generator":
        return [[(Sums.begin, False), (write_sums(rng) + END, True)] for _ in range(recipe.batch_tokens // 26)]
    if recipe.task == "operators_generator":
        return [
            [(Operators.begin, False), (write_operators(rng) + END, True)] for _ in range(recipe.batch_tokens // 18)
        ]
    first = step < recipe.first_steps
    lines = 4 if first else rng.randint(recipe.min_lines, recipe.max_lines)
    if recipe.task == "operator_sheets":
        strata = 1 if first else len(operators.STRATA)
        return [
            operators_demonstration(lines, strata, recipe.table, rng)
            for _ in range(recipe.batch_tokens // (5 * lines + 6))
        ]
    teacher = LONG_TEACHER if recipe.task == "long_sums" else sums.SumsTeacher()
    return [sums_demonstration(lines, teacher, rng) for _ in range(recipe.batch_tokens // (7 * lines + 6))]


def collate(demonstrations: Sequence[list[Part]], tokenizer: Any) -> tuple[Any, Any]:
    """Token ids and labels, (B, T) each, padded on the right; only tokens that the policy wrote have labels."""
    import torch

    texts = [text for parts in demonstrations for text, _ in parts]
    encoded = iter(tokenizer(texts, add_special_tokens=False)["input_ids"])
    rows = [[(next(encoded), own) for _, own in parts] for parts in demonstrations]
    length = max(sum(len(ids) for ids, _ in parts) for parts in rows)
    tokens_BT = torch.full((len(rows), length), int(tokenizer.pad_token_id))
    labels_BT = torch.full((len(rows), length), IGNORED)
    for row, parts in enumerate(rows):
        start = 0
        for ids, own in parts:
            place = slice(start, start + len(ids))
            tokens_BT[row, place] = torch.tensor(ids, dtype=torch.long)
            if own:
                labels_BT[row, place] = tokens_BT[row, place]
            start += len(ids)
    return tokens_BT, labels_BT


def train(recipe: WarmStart) -> Any:
    """Train a model; equal recipes give equal models on equal machines.

    Raises:
        UserError: if each of `MOST_BEGUN` models has learned little but copying.
    """
    for number in range(MOST_BEGUN):
        model = _train_one(replace(recipe, seed=recipe.seed + number))
        if model is not None:
            return model
    raise UserError(f"{recipe.task}: none of {MOST_BEGUN} models learned more than copying; choose another --instance")


def _train_one(recipe: WarmStart) -> Any:
    """Train one model; None if its loss is too high."""
    import torch
    from rich.progress import track

    torch.manual_seed(recipe.seed)
    rng = random.Random(recipe.seed)
    model, tokenizer = build_model(recipe), build_tokenizer(recipe.task)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(_lr_factor, steps=recipe.steps))
    losses: list[float] = []
    for step in track(range(recipe.steps), description="warm start"):
        tokens_BT, labels_BT = collate(draw_batch(step, recipe, rng), tokenizer)
        loss = model(input_ids=tokens_BT, labels=labels_BT).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if fmean(losses[-20:]) > recipe.most_loss.get(step + 1, math.inf):
            return None
    return model.eval()


def _lr_factor(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / 30) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def warm_start(output: Path, recipe: WarmStart) -> None:
    """Train and write the checkpoint folder, which replaces an earlier one only when it is complete."""
    model = train(recipe)
    with replacing_folder(output) as partial:
        model.save_pretrained(partial)
        build_tokenizer(recipe.task).save_pretrained(partial)


@script
def main(words: Sequence[str] | None = None) -> None:
    """Make the checkpoint from the command line."""
    parser = script_parser(__doc__)
    parser.add_argument("recipe", choices=list(RECIPES), help="name of the recipe")
    parser.add_argument("folder", type=Path, help="output folder, replaced when the model is complete")
    parser.add_argument("--instance", type=int, default=0, help="instance: its own weights, demonstrations, operators")
    chosen = parser.parse_args(words)
    chosen.folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    warm_start(chosen.folder, instance_of(RECIPES[chosen.recipe], chosen.instance))


if __name__ == "__main__":
    main()
