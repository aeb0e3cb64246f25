"""Checks a model's folder before `transformers` reads it, to report a damaged or strange one in one line."""

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from halfway.curriculum.support.atomic import (
    LARGEST_STATE,
    MOST_STATE_VALUES,
    read_whole,
    reading,
    require_few_values,
    require_regular_files,
)
from halfway.curriculum.support.errors import UserError, require

INDEX = "model.safetensors.index.json"
MOST_MIB = {"config.json": 2, "tokenizer.json": 128, "tokenizer_config.json": 4, "generation_config.json": 2, INDEX: 32}
"""Maximum number of megabytes of each file of JSON."""
LONGEST_HEADER = 100_000_000
"""Maximum number of bytes of a header that safetensors opens."""
MOST_LAYERS, LARGEST = 10_000, 2**32
"""Maximum number of layers of a model, and the largest other whole number of its configuration."""
MOST_TOKENS, MOST_ENDS = 1_000_000, 1000
"""Maximum number of tokens of a tokenizer, and end tokens of a model."""
MOST_GROWTH = 1024
"""Maximum number of characters that a tokenizer may make of one before it looks for tokens."""
REMEDY = "copy or download the model again"
MERGE = "merge it into its model with merge_and_unload() of peft, and save that"


def check_model_folder(folder: Path) -> None:
    """Refuse damaged files, pipes and devices, weights outside the folder, and impossible sizes.

    An adapter alone is refused too: its model is elsewhere.

    Raises:
        UserError: one line that names the file.
    """
    require_regular_files(folder)
    if (folder / "adapter_config.json").exists() and not (folder / "config.json").exists():
        raise UserError(f"{folder / 'adapter_config.json'}: the folder is an adapter without its model; {MERGE}")
    found = {name: read_object(folder / name) for name in MOST_MIB if (folder / name).exists()}
    for name, value in found.get("config.json", {}).items():
        most = MOST_LAYERS if name == "num_hidden_layers" else LARGEST
        if isinstance(value, int) and not isinstance(value, bool):
            require(-1 <= value <= most, f"{folder / 'config.json'}: {name}", value, f"give at most {most}")
    for name in ("config.json", "generation_config.json"):
        ends = found.get(name, {}).get("eos_token_id")
        listed = ends if isinstance(ends, list) else [ends]
        whole = len(listed) <= MOST_ENDS and all(isinstance(end, int) and end < LARGEST for end in listed)
        require(ends is None or whole, f"{folder / name}: eos_token_id", ends, "give one token, or a list of tokens")
    if "tokenizer.json" in found:
        check_tokenizer(folder / "tokenizer.json")
    _check_weights(folder, found.get(INDEX, {}))


def check_tokenizer(file: Path) -> None:
    """Refuse a tokenizer that would expand a short text, or its own file, to an excessive size."""
    with reading(file, REMEDY):
        _check_tokenizer(read_object(file))


def _check_tokenizer(tokenizer: dict[str, Any]) -> None:
    vocabulary = tokenizer.get("model", {}).get("vocab", {})
    numbers = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    added = [token["id"] for token in tokenizer.get("added_tokens") or ()]
    largest = max((*numbers, *added), default=0)
    if largest >= MOST_TOKENS:
        raise ValueError(f"it has a token {largest}, of at most {MOST_TOKENS:,}")
    texts = [text for part in ("normalizer", "pre_tokenizer", "decoder") for text in _contents(tokenizer.get(part))]
    if math.prod(max(1, len(text)) for text in texts) > MOST_GROWTH:
        raise ValueError("it replaces single characters by too many others")


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
