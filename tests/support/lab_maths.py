"""Tiny models for the domain maths, trained in seconds: one writes sums such as "3+4?", the others answer in a box."""

import random
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from halfway.trainers.propel.domains.maths import BEGIN

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
