"""Hidden states of a frozen causal language model, pooled to one vector per task, in memory or streamed to disk.

Layer i is the output of block i, counted from 0, before any final norm: layer 31 of a model with 32 blocks is the last.
The forward pass ends at the deepest requested layer. A vector depends only on its task's tokens and the model's
weights, not on other tasks of the batch (except for rounding) or on any policy.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from halfway.curriculum import IntArray, UserError, require, unknown
from halfway.curriculum.support.atomic import read_json, require_no_link, write_json
from halfway.curriculum.support.atomic import reading as reading_file
from halfway.curriculum.support.extras import one_line
from halfway.trainers.propel.probes.probe_options import ActivationOptions

Features = NDArray[np.float32]
Mapped: TypeAlias = "np.memmap[Any, np.dtype[np.float32]]"
MANIFEST = "manifest.json"

POOLINGS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "last_token": lambda states_TD: states_TD[-1],
    "mean_full": lambda states_TD: states_TD.mean(0),
    "mean_last_50": lambda states_TD: states_TD[-50:].mean(0),
}
"""Pooling of the written tokens' states to one vector, as in PROPEL's table 10."""


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One task as the model reads it.

    Attributes:
        id: the task's id.
        tokens_T: context and written text.
        start: index at which the written text starts. Pooling uses only the tokens from there.
    """

    id: str
    tokens_T: IntArray
    start: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < len(self.tokens_T):
            raise ValueError(f"reading {self.id!r}: no written token from {self.start} of {len(self.tokens_T)}")


def decoder_blocks(model: nn.Module) -> nn.ModuleList:
    """Find the blocks of a causal language model of `transformers`. Raises UserError if they cannot be identified."""
    config: Any = model.config
    count = config.get_text_config().num_hidden_layers
    for module in model.modules():  # outermost first
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return module
    raise UserError(
        f"activations: {type(model).__name__} has no list of {count} blocks; give a decoder of transformers"
    )


def check_layers(model: nn.Module, layers: Sequence[int]) -> None:
    """Raise UserError for a layer that the model does not have."""
    count = len(decoder_blocks(model))
    for layer in layers:
        require(0 <= layer < count, "activations.layers", layer, f"give a layer from 0 to {count - 1}")


class _DeepEnoughError(Exception):
    """Ends a forward pass after the deepest requested layer."""


@torch.no_grad()
def hidden_states(
    model: nn.Module, tokens_BT: Tensor, attention_BT: Tensor, layers: Sequence[int]
) -> dict[int, Tensor]:
    """Outputs (B, T, width) of the requested layers. Deeper blocks do not run.

    Raises:
        UserError: if the model lacks a layer.
    """
    check_layers(model, layers)
    found: dict[int, Tensor] = {}
    deepest = max(layers)

    def keep(layer: int, output: Any) -> None:
        found[layer] = output[0] if isinstance(output, tuple) else output
        if layer == deepest:
            raise _DeepEnoughError

    blocks, training = decoder_blocks(model), model.training
    hooks = [
        blocks[layer].register_forward_hook(lambda _module, _inputs, output, layer=layer: keep(layer, output))
        for layer in layers
    ]
    model.eval()
    try:
        model(input_ids=tokens_BT, attention_mask=attention_BT, use_cache=False)
    except _DeepEnoughError:
        pass
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return found


def read(model: nn.Module, readings: Sequence[Reading], options: ActivationOptions) -> dict[tuple[int, str], Features]:
    """Read tasks; returns vectors (tasks, width) by layer and pooling, on the CPU in float32."""
    parts: dict[tuple[int, str], list[Features]] = {}
    for batch in _batches(readings, options):
        for key, features_BD in _read_batch(model, batch, options).items():
            parts.setdefault(key, []).append(features_BD)
    return {key: np.concatenate(rows) for key, rows in parts.items()}


def _cut(reading: Reading, max_tokens: int) -> Reading:
    """Keep the last `max_tokens` of a reading."""
    cut = max(len(reading.tokens_T) - max_tokens, 0)
    return Reading(reading.id, reading.tokens_T[cut:], max(reading.start - cut, 0))


def _batches(readings: Sequence[Reading], options: ActivationOptions) -> Iterator[list[Reading]]:
    """Yield batches of readings in order, each as large as `batch_tokens` allows."""
    batch: list[Reading] = []
    longest = 0
    for reading in readings:
        reading = _cut(reading, options.max_tokens)
        longest = max(longest, len(reading.tokens_T))
        if batch and longest * (len(batch) + 1) > options.batch_tokens:
            yield batch
            batch, longest = [], len(reading.tokens_T)
        batch.append(reading)
    if batch:
        yield batch


def _read_batch(
    model: nn.Module, batch: Sequence[Reading], options: ActivationOptions
) -> dict[tuple[int, str], Features]:
    device = next(model.parameters()).device
    lengths_B = [len(reading.tokens_T) for reading in batch]
    tokens_BT = torch.zeros(len(batch), max(lengths_B), dtype=torch.int64)
    attention_BT = torch.zeros_like(tokens_BT)
    for row, reading in enumerate(batch):
        tokens_BT[row, : lengths_B[row]] = torch.as_tensor(reading.tokens_T, dtype=torch.int64)
        attention_BT[row, : lengths_B[row]] = 1
    states = hidden_states(model, tokens_BT.to(device), attention_BT.to(device), options.layers)
    features: dict[tuple[int, str], Features] = {}
    for layer, states_BTD in states.items():
        written = [
            states_BTD[row, one.start : length].float()
            for row, (one, length) in enumerate(zip(batch, lengths_B, strict=True))
        ]
        for name in options.poolings:
            features[layer, name] = torch.stack([POOLINGS[name](states_TD) for states_TD in written]).cpu().numpy()
    return features


def model_fingerprint(model: nn.Module) -> str:
    """Hash a model's parameters and buffers, to check that activations come from the same model."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class ActivationStore:
    """Vectors on disk: one memory-mapped array per layer and pooling, and a manifest.

    Attributes:
        path: the folder.
        ids: ids of the tasks, in the order of the rows.
        reference: fingerprint of the reference model.
        truncated: number of tasks that lost their beginning to `max_tokens`.
    """

    path: Path
    ids: tuple[str, ...]
    reference: str
    options: ActivationOptions
    truncated: int

    def features(self, layer: int, pooling: str) -> Features:
        """The vectors (tasks, width), read from disk as they are used. Raises UserError if they were not stored."""
        known = [f"{layer}/{name}" for layer in self.options.layers for name in self.options.poolings]
        if f"{layer}/{pooling}" not in known:
            raise unknown(f"{self.path}: layer and pooling", f"{layer}/{pooling}", known)
        return _mapped(_file(self.path, layer, pooling), "r", len(self.ids))

    @classmethod
    def open(cls, path: Path, reference: str | None = None) -> "ActivationStore":
        """Open a finished store.

        Args:
            reference: fingerprint of the caller's model; None = any.

        Raises:
            UserError: if there is no store, it is not finished, or it belongs to another model.
        """
        manifest = _read_manifest(path)
        if manifest is None:
            raise UserError(f"{path}: holds no activations; extract them first")
        if manifest["done"] < len(manifest["ids"]):
            raise UserError(f"{path}: {manifest['done']} of {len(manifest['ids'])} tasks are read; finish extracting")
        if reference is not None and manifest["reference"] != reference:
            raise UserError(
                f"{path}: holds activations of another reference model ({manifest['reference']}); extract them again"
            )
        options: dict[str, Any] = {
            key: tuple(v) if isinstance(v, list) else v for key, v in manifest["options"].items()
        }
        return cls(
            path, tuple(manifest["ids"]), manifest["reference"], ActivationOptions(**options), manifest["truncated"]
        )


def extract(
    model: nn.Module, readings: Sequence[Reading], options: ActivationOptions, path: Path, reference: str
) -> ActivationStore:
    """Read all tasks into a folder, batch by batch, continuing where an earlier call with the same arguments stopped.

    Args:
        reference: `model_fingerprint` of the model.

    Raises:
        UserError: if there is no task, the model lacks a layer, or the folder has other activations.
    """
    if not readings:
        raise UserError("activations: there are no tasks; give at least one")
    check_layers(model, options.layers)
    manifest = {
        "reference": reference,
        "tasks": _digest(readings),
        "options": asdict(options),
        "ids": [reading.id for reading in readings],
        "truncated": sum(len(reading.tokens_T) > options.max_tokens for reading in readings),
        "done": 0,
    }
    manifest = json.loads(json.dumps(manifest))
    started = _read_manifest(path)
    if started is not None and started | {"done": 0} != manifest:
        differs = ", ".join(key for key in manifest if key != "done" and started.get(key) != manifest[key])
        raise UserError(f"{path}: holds other activations (different: {differs}); give another folder")
    path.mkdir(parents=True, exist_ok=True)
    done = started["done"] if started else 0
    for batch in _batches(readings[done:], options):
        for (layer, pooling), features_BD in _read_batch(model, batch, options).items():
            rows_ND = _rows(_file(path, layer, pooling), done == 0, (len(readings), features_BD.shape[1]))
            rows_ND[done : done + len(batch)] = features_BD
            rows_ND.flush()
        done += len(batch)
        write_json(path / MANIFEST, manifest | {"done": done})
    return ActivationStore.open(path, reference)


def _file(path: Path, layer: int, pooling: str) -> Path:
    return path / f"layer-{layer:03d}-{pooling}.npy"


def _rows(file: Path, new: bool, shape: tuple[int, int]) -> Mapped:
    """Open a file of vectors for writing, never through a link."""
    require_no_link(file)
    if new:
        file.unlink(missing_ok=True)
        return np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=shape)
    return _mapped(file, "r+", shape[0])


def _mapped(file: Path, mode: Literal["r", "r+"], rows: int) -> Mapped:
    """Map a file of vectors. Raises UserError if it is damaged, or does not have so many rows."""
    remedy = f"remove {file.parent} and extract again"
    with reading_file(file, remedy):
        try:
            features_ND: Mapped = np.lib.format.open_memmap(file, mode=mode)
        except (SyntaxError, TokenError) as error:  # of its header, which is Python
            raise ValueError(one_line(error)) from None
    if features_ND.ndim != 2 or len(features_ND) != rows or features_ND.dtype != np.float32:
        raise UserError(f"{file}: does not have {rows} rows; {remedy}")
    return features_ND


def _digest(readings: Sequence[Reading]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for reading in readings:
        digest.update(repr((reading.id, reading.start)).encode())
        digest.update(np.asarray(reading.tokens_T, np.int32).tobytes())
    return digest.hexdigest()


class _Manifest(msgspec.Struct):
    reference: str
    ids: list[str]
    options: dict[str, Any]
    truncated: int
    done: Annotated[int, msgspec.Meta(ge=0)]


def _read_manifest(path: Path) -> dict[str, Any] | None:
    return read_json(path / MANIFEST, kind=_Manifest) or None
