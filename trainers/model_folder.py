"""Checks a model's folder before `transformers` reads it, to report a damaged or strange one in one line."""

import json
import struct
from pathlib import Path
from typing import Any

from halfway.curriculum.support.atomic import reading, require_regular_files
from halfway.curriculum.support.errors import UserError, require

JSON_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
INDEX = "model.safetensors.index.json"
MOST_LAYERS, LARGEST = 10_000, 2**32
"""Most layers of a model, and the largest other whole number of its configuration."""
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
    found = {name: read_object(folder / name) for name in (*JSON_FILES, INDEX) if (folder / name).exists()}
    for name, value in found.get("config.json", {}).items():
        most = MOST_LAYERS if name == "num_hidden_layers" else LARGEST
        if isinstance(value, int) and not isinstance(value, bool):
            require(-1 <= value <= most, f"{folder / 'config.json'}: {name}", value, f"give at most {most}")
    for name in ("config.json", "generation_config.json"):
        ends = found.get(name, {}).get("eos_token_id")
        whole = all(isinstance(end, int) and end < LARGEST for end in (ends if isinstance(ends, list) else [ends]))
        require(ends is None or whole, f"{folder / name}: eos_token_id", ends, "give one token, or a list of tokens")
    _check_weights(folder, found.get(INDEX, {}))


def _check_weights(folder: Path, index: dict[str, Any]) -> None:
    with reading(folder / INDEX, REMEDY):
        named = set(index.get("weight_map", {}).values())
    for name in named:
        plain = isinstance(name, str) and name == Path(name).name and name.endswith(".safetensors")
        require(plain, str(folder / INDEX), name, "weights are files of the folder whose names end in .safetensors")
        if not (folder / name).is_file():
            raise UserError(f"{folder / name}: is missing, and {INDEX} names it; {REMEDY}")
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
        header = json.loads(file.read(length))
    ends = [part["data_offsets"][1] for name, part in header.items() if name != "__metadata__"]
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        raise ValueError(f"it has {size} bytes, and its header says {expected}")


def read_object(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file. Raises UserError, one line that names the file, for any other content."""
    with reading(path, REMEDY):
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
        return value
