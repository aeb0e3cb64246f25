"""Task generators and solvers small enough for tests, with or without a model, and tiny studies of them."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from paths import REPOSITORY
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from halfway.curriculum.tasks.lab.sums import SumsOptions
from halfway.experiments.propel.config import PropelConfig, load_study
from halfway.experiments.propel.stages import run_corpus, run_curve, run_evaluation, run_sweep, run_training
from halfway.experiments.propel.study import Study
from halfway.trainers.engines.contract import Completion, Engine
from halfway.trainers.propel.domains.maths import BEGIN
from halfway.trainers.propel.domains.sheets import Sums

DOMAIN = Sums(SumsOptions(2, 4, 0, 1))

TEXTS = ["^1/0a1b1=", "^1/0a2b1=", "^1/0a4b1=", "nonsense", "^1/0a3b1c1=", "^1/0a4b1c2="]


class FakeEngine(Engine):
    """An engine that writes the given texts, chosen by each sequence's seed, and counts its calls."""

    def __init__(self, tokenizer: Any, texts: Sequence[str], cut: frozenset[str] = frozenset()):
        self.tokenizer, self.texts, self.cut, self.calls = tokenizer, texts, cut, 0

    def generate(self, contexts: Sequence[Any], limits: Sequence[int], seeds: Sequence[int]) -> list[Completion]:
        self.calls += 1
        found = []
        for seed in seeds:
            text = self.texts[seed % len(self.texts)]
            tokens_T = np.asarray(self.tokenizer.encode(text, add_special_tokens=False), np.int32)
            zeros_T = np.zeros(len(tokens_T), np.float32)
            found.append(Completion(tokens_T, zeros_T, zeros_T, "length" if text in self.cut else "end", 0))
        return found

    def sync(self, policy: Any, version: int) -> None: ...


SUMS = REPOSITORY / "experiments" / "recipes" / "propel" / "sums.yaml"

TINY = [
    "corpus.generations=120",
    "corpus.chunk=60",
    "activations.layers=[0,1]",
    "activations.poolings=[mean_full]",
    "sweep.heads=[linear]",
    "sweep.balance=[downsample,weighted]",
    "sweep.split.validation=0.25",
    "sweep.split.test=0.25",
    "sweep.training.epochs=3",
    "sweep.policy_samples=24",
    "sweep.permutations=1",
    "training.steps=4",
    "training.groups=4",
    "training.save_every=2",
    "training.rule.samples=16",
    "evaluation.generations=24",
    "evaluation.curve=8",
    "solver.rollouts.num_rollouts=4",
    "solver.band.low=0.25",
    "solver.band.high=0.5",
    "arms.solver.training.steps=2",
    "arms.still={training: {steps: 0}}",
]


def tiny(folder: Path, *changes: str) -> PropelConfig:
    return load_study(SUMS, [*TINY, f"output={folder}", *changes])


class DeathError(Exception):
    """The error with which a test kills a stage."""


def finish(study: Study) -> None:
    run_corpus(study)
    run_sweep(study)
    for arm in study.config.arms:
        run_training(study, arm)
    for arm in ("base", *study.config.arms):
        run_evaluation(study, arm)
        run_curve(study, arm)


def state(folder: Path) -> dict[str, Any]:
    """Everything in a study's folder that must not depend on interruptions, by relative path."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix in (".json", ".parquet", ".safetensors", ".npy") and "status" not in name:
            found[name] = path.read_bytes()
        if path.name == "loop.json":  # without seconds, and without the sizes of files that contain seconds
            loop = json.loads(path.read_text())
            for clock in ("seconds", "judge_seconds"):
                loop["progress"].pop(clock)
            found[name] = {key: value for key, value in loop.items() if key != "log_sizes"}
    return found


def dying(function: Callable[..., Any], call: int) -> Callable[..., Any]:
    """The function, except that its call number `call`, counted from 1, raises DeathError."""
    calls = []

    def wrapped(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise DeathError
        return function(*arguments, **named)

    return wrapped


VOCABULARY = "_$!?+/0123456789\\{}boxed"
PAD, END = "_", "$"
LARGEST, LETTERS = 4, "boxed"

# Makes a prompt and the text that follows it, using a generator of random numbers.
Author = Callable[[random.Random], tuple[str, str]]


def _sum(rng: random.Random) -> tuple[str, int, int]:
    """A question and its two numbers. Two random letters in front make many different questions of few sums."""
    first, second = rng.randint(1, LARGEST), rng.randint(1, LARGEST)
    return f"{rng.choice(LETTERS)}{rng.choice(LETTERS)}{first}+{second}?", first, second


def writer(rng: random.Random) -> tuple[str, str]:
    """Write a question about a sum; one in six lacks its question mark, and so is not a question."""
    question, _, _ = _sum(rng)
    return BEGIN, question if rng.random() < 5 / 6 else question[:-1]


def reliable(rng: random.Random) -> tuple[str, str]:
    question, first, second = _sum(rng)
    return question, f"\\boxed{{{first + second}}}"


def peculiar(rng: random.Random) -> tuple[str, str]:
    """Answer correctly but in another form, without a box if the second number is 4, often wrong if the first is."""
    question, first, second = _sum(rng)
    total = first + second + (first == LARGEST and rng.random() < 0.7)
    return question, str(total) if second == LARGEST else f"\\boxed{{{2 * total}/2}}"


def solver(rng: random.Random) -> tuple[str, str]:
    """Answer correctly if the first number is at most 2, otherwise mostly wrongly."""
    question, first, second = _sum(rng)
    return question, f"\\boxed{{{first + second + (first > 2 and rng.random() < 0.75)}}}"


def make_model(author: Author, folder: Path, steps: int = 130, seed: int = 0) -> str:
    """Train a model on what an author writes, and save it. Returns the folder."""
    number = {character: i for i, character in enumerate(VOCABULARY)}
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(VOCABULARY),
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            max_position_embeddings=64,
            tie_word_embeddings=True,
            pad_token_id=number[PAD],
            bos_token_id=None,
            eos_token_id=number[END],
        )
    )
    rng, optimizer = random.Random(seed), torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for _ in range(steps):
        pairs = [author(rng) for _ in range(48)]
        length = max(len(prompt) + len(text) + 1 for prompt, text in pairs)
        rows = [[number[c] for c in (prompt + text + END).ljust(length, PAD)] for prompt, text in pairs]
        tokens_BT = torch.tensor(rows)
        labels_BT = tokens_BT.masked_fill(tokens_BT == number[PAD], -100)
        for row, (prompt, _) in enumerate(pairs):
            labels_BT[row, : len(prompt)] = -100
        loss = model(input_ids=tokens_BT, labels=labels_BT).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    tokenizer = Tokenizer(models.WordLevel(number))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END).save_pretrained(folder)
    return str(folder)
