"""Checks a model's folder before `transformers` reads it, to report a damaged or strange one in one line."""

import json
import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from halfway.curriculum import UserError, require
from halfway.curriculum.support.atomic import (
    LARGEST_STATE,
    MOST_STATE_VALUES,
    read_whole,
    reading,
    require_few_values,
    require_regular_files,
)

INDEX = "model.safetensors.index.json"
SPECIAL_TOKENS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
MOST_MIB = {"config.json": 2, "tokenizer.json": 128, "generation_config.json": 2, INDEX: 32} | dict.fromkeys(
    SPECIAL_TOKENS, 4
)
"""Maximum number of megabytes of each file of JSON."""
VOCABULARIES, MOST_VOCABULARY_MIB = ("vocab*", "merges*", "*.model", "*.spm", "*.bpe", "*.tiktoken", "*.jinja"), 16
"""Other files that a tokenizer may read, and the maximum number of megabytes of each."""
LONGEST_HEADER = 100_000_000
"""Maximum number of bytes of a header that safetensors opens."""
MOST_LAYERS, MOST_COUNTED, LARGEST = 1000, 20_000, 2**32
"""Maximum number of a model's layers and of anything else that its configuration counts, and the largest other whole
number."""
MOST_TOKENS, MOST_ADDED, MOST_SPECIAL, MOST_ENDS = 1_000_000, 70_000, 10_000, 1000
"""Maximum number of a tokenizer's tokens, of added ones and of special ones in a list, and of a model's end tokens."""
MOST_GROWTH, MOST_WRAPPING = 1024, 256
"""Maximum number of characters that a tokenizer may make of one before it looks for tokens, and of values in what it
puts around a text."""
REMEDY = "copy or download the model again"
MERGE = "merge it into its model with merge_and_unload() of peft, and save that"


def check_model_folder(folder: Path) -> None:
    """Refuse damaged files, pipes and devices, weights outside the folder, and impossible sizes.

    An adapter is refused too: `transformers` looks for its model elsewhere, and freezes weights beside it.

    Raises:
        UserError: one line that names the file.
    """
    require_regular_files(folder)
    if (folder / "adapter_config.json").exists():
        raise UserError(f"{folder / 'adapter_config.json'}: the folder holds an adapter; {MERGE}")
    found = {name: read_object(folder / name) for name in MOST_MIB if (folder / name).exists()}
    for name, number in _whole_numbers("", found.get("config.json", {})):
        # Gemma has sizes per layer; GPT-Neo's attention_types are kinds of layers, and how many of each.
        layers = ("layer" in name and "size" not in name) or name == "attention_types"
        most = MOST_LAYERS if layers else MOST_COUNTED if name.startswith("num_") else LARGEST
        require(abs(number) <= most, f"{folder / 'config.json'}: {name}", number, f"give at most {most}")
    for name in SPECIAL_TOKENS:
        tokens = found.get(name, {})
        lists = [len(value) for value in tokens.values() if isinstance(value, list | dict)]
        if len(tokens) > MOST_ADDED or max(lists, default=0) > MOST_SPECIAL:
            raise UserError(f"{folder / name}: lists too many tokens; keep at most {MOST_SPECIAL:,} special ones")
    for name in ("config.json", "generation_config.json"):
        ends = found.get(name, {}).get("eos_token_id")
        listed = ends if isinstance(ends, list) else [ends]
        whole = len(listed) <= MOST_ENDS and all(isinstance(end, int) and end < LARGEST for end in listed)
        require(ends is None or whole, f"{folder / name}: eos_token_id", ends, "give one token, or a list of tokens")
    if "tokenizer.json" in found:
        check_tokenizer(folder / "tokenizer.json")
    for path in (path for pattern in VOCABULARIES for path in folder.glob(pattern) if path.is_file()):
        with reading(path, REMEDY):
            content = read_whole(path, REMEDY, MOST_VOCABULARY_MIB << 20)
            if max(content.count(b"\n"), content.count(b",")) > MOST_TOKENS:
                raise ValueError(f"it has more than {MOST_TOKENS:,} entries")
    _check_weights(folder, found.get(INDEX, {}))


@contextmanager
def catching_panics() -> Iterator[None]:
    """Raise ValueError for a panic of a library in Rust, such as that of tokenizers: it is no Exception."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(str(error)) from error


def check_tokenizer(file: Path) -> None:
    """Refuse a tokenizer that would expand a short text, or its own file, to an excessive size."""
    with reading(file, REMEDY):
        _check_tokenizer(read_object(file))


def _check_tokenizer(tokenizer: dict[str, Any]) -> None:
    vocabulary = tokenizer.get("model", {}).get("vocab", {})
    numbers = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    added = [token["id"] for token in tokenizer.get("added_tokens") or ()]
    if len(added) > MOST_ADDED:
        raise ValueError(f"it adds {len(added):,} tokens to its vocabulary, of at most {MOST_ADDED:,}")
    largest = max((*numbers, *added), default=0)
    if largest >= MOST_TOKENS:
        raise ValueError(f"it has a token {largest}, of at most {MOST_TOKENS:,}")
    texts = [text for part in ("normalizer", "pre_tokenizer", "decoder") for text in _contents(tokenizer.get(part))]
    if math.prod(max(1, len(text)) for text in texts) > MOST_GROWTH:
        raise ValueError("it replaces single characters by too many others")
    if _count_listed(tokenizer.get("post_processor")) > MOST_WRAPPING:
        raise ValueError("its post_processor puts too many tokens around a text")


def _count_listed(part: Any) -> int:
    """Count the values in all lists within a value."""
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return (len(part) if isinstance(part, list) else 0) + sum(map(_count_listed, inner))


def _whole_numbers(name: str, value: Any) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers within a value, each with the innermost name above it."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield name, value
    elif isinstance(value, list):
        for each in value:
            yield from _whole_numbers(name, each)
    elif isinstance(value, dict):
        for inner, each in value.items():
            yield from _whole_numbers(inner, each)


def _contents(part: Any) -> Iterator[str]:
    """Yield the texts by which a part of a tokenizer replaces others, or which it puts before them."""
    for value in part if isinstance(part, list) else part.values() if isinstance(part, dict) else ():
        yield from _contents(value)
    if isinstance(part, dict):
        yield from (part[name] for name in ("content", "prepend") if isinstance(part.get(name), str))


def _check_weights(folder: Path, index: dict[str, Any]) -> None:
    with reading(folder / INDEX, REMEDY):
        named = set(index.get("weight_map", {}).values())
    for name in named:
        plain = isinstance(name, str) and name == Path(name).name and name.endswith(".safetensors")
        require(plain, str(folder / INDEX), name, "weights are files of the folder whose names end in .safetensors")
        if not (folder / name).is_file():
            raise UserError(f"{folder / name}: is missing, although {INDEX} names it; {REMEDY}")
    for path in sorted(folder.glob("*.safetensors")):
        with reading(path, REMEDY):
            _check_safetensors(path)


def _check_safetensors(path: Path) -> None:
    """Raise ValueError unless a file has the length in its header; a cut download has not."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if length > size - 8:
            raise ValueError("it ends within its header")
        content = file.read(min(length, LONGEST_HEADER + 1))
    require_few_values(content, MOST_STATE_VALUES, LONGEST_HEADER)
    header = json.loads(content)
    ends = [part["data_offsets"][1] for name, part in header.items() if name != "__metadata__"]
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        raise ValueError(f"it has {size} bytes, and its header says {expected}")


def read_object(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file. Raises UserError, one line that names the file, for any other content."""
    with reading(path, REMEDY):
        content = read_whole(path, REMEDY, MOST_MIB[path.name] << 20)
        require_few_values(content, MOST_STATE_VALUES, LARGEST_STATE)  # a tokenizer has a million tokens, and merges
        value = json.loads(content.decode())
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
        return value
