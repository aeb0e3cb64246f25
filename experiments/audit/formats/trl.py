"""Reads the completions that TRL and ms-swift log.

TRL 1.16 with `log_completions=True` writes OUT/completions/completions_{step:05d}.parquet, with one row per rollout and
one column per reward function (`GRPOTrainer.log` in trl/trainer/grpo_trainer.py). The table holds what is in the
trainer's queues when it logs, which is one generation batch. ms-swift 4.6 with `--log_completions` writes
OUT/completions.jsonl, with one line per logging step and a list for each of the same columns
(swift/rlhf_trainers/grpo_trainer.py and swift/megatron/trainers/rollout_mixin.py).
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from halfway.experiments.audit.builder import EQUAL, HistoryBuilder, RolloutColumns, bound
from halfway.experiments.audit.database import batches
from halfway.experiments.audit.files import Lines, LogFile, number_in
from halfway.experiments.audit.formats.base import BY_PROMPT, Choices, JsonLines, Reader

ADVANTAGES = ("advantage", "advantages")
NO_REWARD = {"step", "gen_step", "prompt", "completion", *ADVANTAGES, "entropy", "image", "images"}
STEPS = ("step", "gen_step")
EXACT = 1e-4
"""Most of the rewards' variation within groups, as a share, that the advantages may leave unexplained."""

LOOKED_AT = 64
"""Batches for finding the weights of rewards from advantages."""

LARGEST_STEP = 2**53
"""Steps must be below this."""

Batch = Mapping[str, Sequence[Any]]


class Trl(Reader):
    """Reads TRL's completions in Parquet, or in the tables that it sends to Weights & Biases."""

    trainer = "TRL"
    chooses = frozenset({"reward"})
    next_step = (
        "in TRL: `GRPOTrainer(model, **halfway.trl(halfway.from_yaml(['uniform', 'greso']), dataset, reward, args))` "
        "skips problems that taught nothing lately (docs/hosts/trl.md)"
    )
    known_by = ("step", "prompt", "completion", "advantage")
    guesses = (BY_PROMPT,)

    @classmethod
    def knows(cls, file: LogFile) -> bool:
        return file.kind in (".parquet", ".json") and super().knows(file)

    @classmethod
    def run_of(cls, file: LogFile) -> Path:
        return file.path.parent

    def read(self, files: Sequence[LogFile], into: HistoryBuilder) -> None:
        apart = range(0, len(files), max(1, len(files) // LOOKED_AT))
        looked_at = [_columns(files[i], lambda _: None) for i in apart]
        weights = weights_of([columns for columns in looked_at if columns], self.choices, into)
        steps: list[int] = []
        earlier: object = None
        for file in files:
            columns = _columns(file, into.drop)
            if not columns:
                continue
            rollouts = from_columns(columns, weights, number_in(file.path.stem) or 0)
            batch_of_file = hash((tuple(rollouts.problems), tuple(rollouts.responses or ())))
            if batch_of_file == earlier:
                into.drop("rollout repeated from the file before", len(rollouts.steps))
                into.trap("the same batch was logged at several steps (steps_per_generation); it is counted once")
                continue
            earlier = batch_of_file
            steps.append(rollouts.steps[0])
            into.add(rollouts)
        for gap in gaps(steps):
            into.trap(gap)


class Swift(JsonLines[dict[str, msgspec.Raw]]):
    """Reads ms-swift's completions."""

    trainer = "ms-swift"
    chooses = frozenset({"reward"})
    next_step = "in ms-swift: `--dynamic_sample true` rolls out other problems in their place, at full price"
    known_by = ("prompt", "completion", "advantages")
    guesses = (BY_PROMPT,)
    row = dict[str, msgspec.Raw]
    weights: Mapping[str, float] | None = None

    @classmethod
    def knows(cls, file: LogFile) -> bool:
        return super().knows(file) and (file.has("step") or file.has("gen_step")) and file.opens("prompt") == b"["

    def rollouts(
        self, rows: Sequence[Mapping[str, msgspec.Raw]], file: LogFile, into: HistoryBuilder
    ) -> RolloutColumns | None:
        steps = [columns for columns in (_lists(row, into) for row in rows) if columns]
        if steps and self.weights is None:
            self.weights = weights_of(steps[:LOOKED_AT], self.choices, into)
        for columns in steps:
            into.add(from_columns(columns, self.weights or {}, 0))
        return None


def _columns(file: LogFile, drop: Callable[[str], None]) -> dict[str, list[Any]]:
    """Read a whole table, by column; empty if it cannot be read."""
    names = list(file.columns)
    tables: Iterable[Batch]
    if file.kind == ".parquet":
        tables = batches(file.path, file.given, names, drop)
    else:
        lines = Lines(dict[str, Any], drop).batches(file.path)
        tables = ({name: [row.get(name) for row in rows] for name in names} for rows in lines)
    columns: dict[str, list[Any]] = {}
    for batch in tables:
        for name, values in batch.items():
            columns.setdefault(name, []).extend(values)
    return columns


def weights_of(found: Sequence[Batch], choices: Choices, into: HistoryBuilder) -> dict[str, float]:
    """Weights of the reward columns: from the user, from the trainer's own advantages, or 1.

    Args:
        found: batches of the log.
        into: gets the notes about the columns used.

    Raises:
        UserError: if the user chose a column that does not exist.
    """
    if not found:
        return {}
    order = list(found[0])
    numeric = [name for name in order if name not in NO_REWARD and all(_numeric(each.get(name, ())) for each in found)]
    last = next((order.index(name) for name in ADVANTAGES if name in order), len(order))
    between = [name for name in numeric if order.index("completion") < order.index(name) < last]
    weights = choices.weights(numeric)
    said = " as chosen"
    if not weights:
        weights, said = dict.fromkeys(between or numeric, 1.0), ""
        if len(weights) > 1:
            fitted = fitted_weights(found, list(weights))
            said = "; --reward says otherwise" if fitted is None else ", which the advantages confirm"
            weights = fitted or weights
    if weights:
        summed = ", ".join(weights)
        weighted = (
            ""
            if set(weights.values()) == {1.0}
            else f" with weights {', '.join(map('{:.3g}'.format, weights.values()))}"
        )
        into.guess(f"the reward is {'the sum of ' if len(weights) > 1 else 'the column '}{summed}{weighted}{said}")
    return weights


def fitted_weights(found: Sequence[Batch], names: Sequence[str]) -> dict[str, float] | None:
    """Fit weights with which summed rewards explain the advantages; None if there are none, or nothing to explain.

    Within a group an advantage is the reward minus the group's mean, times a positive factor of the group or batch. So
    the part of the rewards orthogonal to the advantages must be 0: weights w solve w'Mw = 0, where M is the sum over
    groups of X'(I - aa'/a'a)X, X the group's rewards and a its advantages. If weights of 1 fit, they are preferred.
    """
    left, whole, along = np.zeros((len(names), len(names))), np.zeros((len(names), len(names))), np.zeros(len(names))
    for columns in found:
        advantage = next((columns[name] for name in ADVANTAGES if _numeric(columns.get(name, ()))), None)
        if advantage is None:
            return None
        rewards = np.nan_to_num(np.asarray([columns[name] for name in names], np.float64)).T
        a_B = np.nan_to_num(np.asarray(advantage, np.float64))
        group_B = groups_of(list(map(_bytes, columns["prompt"]))) or columns["prompt"]
        for rows in _positions(group_B):
            x, a = rewards[rows] - rewards[rows].mean(0), a_B[rows] - a_B[rows].mean()
            size = float(a @ a)
            whole += x.T @ x
            left += x.T @ x - (np.outer(x.T @ a, a @ x) / size if size > EQUAL else 0.0)
            along += x.T @ a
    varies: list[int] = np.flatnonzero(np.diag(whole) > EQUAL).tolist()
    scale = np.sqrt(np.diag(whole)[varies])
    if not len(varies) or not along.any():
        return None
    rest, total = (m[np.ix_(varies, varies)] / np.outer(scale, scale) for m in (left, whole))
    _, vectors = np.linalg.eigh(rest)
    named = np.asarray([float("reward" in names[i].lower()) for i in varies])
    for weights in (np.ones(len(varies)), named, *np.eye(len(varies)), vectors[:, 0] / scale):
        w = weights * scale
        if float(w @ rest @ w) < EXACT * float(w @ total @ w):
            weights = weights * np.sign(weights @ along[varies]) / np.abs(weights).max()
            kept = {names[i]: round(float(v), 4) for i, v in zip(varies, weights, strict=True) if abs(v) > 1e-3}
            return {name: kept.get(name, 1.0) for i, name in enumerate(names) if name in kept or i not in varies}
    return None


def groups_of(prompts: Sequence[bytes]) -> list[tuple[bytes, int]] | None:
    """Keys of groups for a batch of equally large groups, each with its rollouts in a row.

    A prompt that occurs twice in a batch has two groups. None if no size fits.
    """
    lengths = [len(list(same)) for _, same in groupby(prompts)]
    size = math.gcd(*lengths)
    return [(prompt, i // size) for i, prompt in enumerate(prompts)] if size > 1 else None


def from_columns(columns: Batch, weights: Mapping[str, float], step: int) -> RolloutColumns:
    """The rollouts of one logged batch.

    Args:
        columns: the values of each column.
        weights: the weight of each reward column.
        step: the step of rollouts without a number.
    """
    length = len(columns["prompt"])
    steps = [_step(value, step) for value in columns.get("step", columns.get("gen_step", [step] * length))]
    problems = list(map(_bytes, columns["prompt"]))
    groups = groups_of(problems)
    pairs = [(columns[name], weight) for name, weight in weights.items() if name in columns]
    advantages = next((columns[name] for name in ADVANTAGES if _numeric(columns.get(name, ()))), None)
    return RolloutColumns(
        steps=steps,
        problems=problems,
        rewards=[_total([(values[i], weight) for values, weight in pairs]) for i in range(length)],
        groups=None if groups is None else list(zip(steps, groups, strict=True)),
        responses=list(map(_bytes, columns["completion"])),
        advantages=advantages,
    )


def gaps(steps: Sequence[int]) -> list[str]:
    """Explain gaps between the logged steps in words; empty if there are none.

    A table has one generation batch, so batches between two logged steps may be lost.
    """
    apart = np.diff(np.unique(np.asarray(steps, np.int64)))
    if not len(apart) or apart.max() == 1:
        return []
    widths, counts = np.unique(apart, return_counts=True)
    usual = int(widths[counts.argmax()])
    return [
        f"most tables are {usual} steps apart: if logging_steps is larger than steps_per_generation, the batches "
        "between are lost"
        if usual > 1
        else f"{int((apart - 1).sum())} steps between the tables are missing"
    ]


def _total(row: Sequence[tuple[Any, float]]) -> float | None:
    """The weighted sum of a row's rewards; None or NaN, from a reward function that does not apply, adds nothing.

    None if no function applies.
    """
    applying = [bound(value) * weight for value, weight in row if value is not None and value == value]
    return sum(applying) if applying else None


def _step(value: Any, otherwise: int) -> int:
    """A step as a number; ms-swift writes it as text."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return number if abs(number) < LARGEST_STEP else otherwise


def _positions(keys: Sequence[Hashable]) -> list[list[int]]:
    """The indices of each key."""
    places: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        places.setdefault(key if isinstance(key, Hashable) else repr(key), []).append(i)
    return list(places.values())


def _numeric(values: Sequence[Any]) -> bool:
    kinds = {type(value) for value in values if value is not None}
    return bool(kinds) and kinds <= {int, float, bool}


def _bytes(value: Any) -> bytes:
    if isinstance(value, msgspec.Raw | bytes):
        return bytes(value)
    return value.encode("utf-8", "replace") if isinstance(value, str) else msgspec.json.encode(value)


def _lists(row: Mapping[str, msgspec.Raw], into: HistoryBuilder) -> dict[str, list[Any]]:
    """The columns of one line, with prompts and completions undecoded; empty for another kind of line."""
    try:
        columns: dict[str, list[Any]] = {
            name: msgspec.json.decode(row[name], type=list[msgspec.Raw]) for name in ("prompt", "completion")
        }
        for name, raw in row.items():
            if name not in columns and bytes(raw)[:1] == b"[":
                columns[name] = msgspec.json.decode(raw)
            elif name in STEPS:  # one for the whole line
                columns[name] = [msgspec.json.decode(raw)] * len(columns["prompt"])
    except (KeyError, ValueError, RecursionError):
        into.drop("line that is not such a record")
        return {}
    length = len(columns["prompt"])
    if any(len(values) != length for name, values in columns.items() if name in NO_REWARD):
        into.drop("line with columns of different lengths")
        return {}
    return {name: values for name, values in columns.items() if len(values) == length}
