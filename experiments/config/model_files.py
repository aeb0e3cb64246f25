"""What a model's own files say about it, if they are on this machine."""

import json
from typing import Any

from halfway.curriculum.support.errors import UserError
from halfway.experiments.config import paths
from halfway.experiments.config.run import RunConfig
from halfway.trainers.distributed.cluster import ShapeOptions


def model_shape(config: RunConfig) -> ShapeOptions | None:
    """The shape from the configuration, otherwise from the model's folder; None if neither gives it."""
    if config.cluster.model.known:
        return config.cluster.model
    sizes = model_config(config.model.path)
    names = ShapeOptions.__dataclass_fields__
    if not {"hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "vocab_size"} <= set(sizes):
        return None
    sizes = {"num_key_value_heads": sizes["num_attention_heads"], **sizes}
    return ShapeOptions(**{k: v for k, v in sizes.items() if k in names and v is not None})


def model_config(path: str) -> dict[str, Any]:
    """A model's config.json; empty if it is not on this machine. Raises UserError if it cannot be read."""
    file = paths.find(path).expanduser() / "config.json"
    if not file.exists():
        return {}
    try:
        content = json.loads(file.read_text())
    except ValueError as error:
        raise UserError(f"model.path: {file} is not JSON ({error}); give a folder saved by transformers") from None
    return content if isinstance(content, dict) else {}
