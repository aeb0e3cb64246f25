"""Sweep over layers, poolings, heads and balancing, and the choice of a probe."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from halfway.curriculum import UserError
from halfway.curriculum.support.atomic import read_json_lines, reading, write_bytes
from halfway.curriculum.support.extras import one_line
from halfway.trainers.propel.probes.activations import ActivationStore, Features
from halfway.trainers.propel.probes.fitting import fit
from halfway.trainers.propel.probes.heads import Probe, Site, save_probe
from halfway.trainers.propel.probes.probe_options import Balance, HeadKind, SweepOptions
from halfway.trainers.propel.probes.scores import Floats, Scores, balanced_accuracy_interval, score
from halfway.trainers.propel.probes.splits import Labels, Rows, RowSplit, random_split, thinned

CELLS = "cells.jsonl"
RewardVariance = Callable[[Probe, Site], float]


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRows:
    """Labels of a store's tasks, in its order.

    Attributes:
        labels_N: whether the pass rate lies in the band.
        rates_N: the solver's pass rates.
    """

    labels_N: Labels
    rates_N: Floats


@dataclass(frozen=True)
class Cell:
    """One probe of a sweep, with its figures.

    Attributes:
        validation, test: scores on validation and test rows.
        test_interval: 95 % interval of the balanced accuracy on test rows.
        rvp: variance of the reward under the base policy, by this probe alone.
        temperature: the divisor that calibrates its logits.
        file: name of the probe's file.
    """

    layer: int
    pooling: str
    head: HeadKind
    balance: Balance
    validation: Scores
    test: Scores
    test_interval: tuple[float, float]
    rvp: float
    temperature: float
    file: str

    @property
    def key(self) -> tuple[int, str, str, str]:
        return self.layer, self.pooling, self.head, self.balance

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Cell":
        cell = msgspec.convert(record, cls)
        if cell.file != Path(cell.file).name:
            raise ValueError(f"the probe's file is elsewhere: {one_line(cell.file)}")
        return cell


@dataclass(frozen=True)
class Choice:
    """The probe setting that the sweep chose, and how clear the choice was.

    Attributes:
        calibrated: whether any cell was calibrated well enough; if not, all cells were candidates.
        tied: number of candidates between which the reward's variance decided.
    """

    cell: Cell
    calibrated: bool
    tied: int


def sweep(
    store: ActivationStore,
    rows: LabelledRows,
    options: SweepOptions,
    seed: int,
    folder: Path,
    reward_variance: RewardVariance,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Cell]:
    """Fit and score a probe in every cell. Cells that the folder already has are skipped.

    Raises:
        UserError: if a class has too few rows.
    """
    split = random_split(rows.labels_N, seed, options.split)
    wanted = [
        (layer, pooling, head, balance)
        for layer in store.options.layers
        for pooling in store.options.poolings
        for head in options.heads
        for balance in options.balance
    ]
    folder.mkdir(parents=True, exist_ok=True)
    found = {cell.key: cell for cell in read_cells(folder)}
    for done, key in enumerate(wanted):
        progress(done, len(wanted))
        if key not in found:
            cell = _fit_cell(store, rows, options, split, key, seed, folder, reward_variance)
            found[key] = cell
            _append(folder / CELLS, asdict(cell))
    progress(len(wanted), len(wanted))
    return [found[key] for key in wanted]


def read_cells(folder: Path) -> list[Cell]:
    """Read the cells of a folder, without an incomplete last line from a killed process."""
    file = folder / CELLS
    if not file.exists():
        return []
    remedy = f"remove {folder} and sweep again"
    lines = read_json_lines(file, remedy).split(b"\n")[:-1]
    with reading(file, remedy):
        return [Cell.from_record(json.loads(line)) for line in lines]


def _append(file: Path, record: Mapping[str, Any]) -> None:
    complete = b"".join(line + b"\n" for line in file.read_bytes().split(b"\n")[:-1]) if file.exists() else b""
    write_bytes(file, complete + json.dumps(record).encode() + b"\n")


def _fit_cell(
    store: ActivationStore,
    rows: LabelledRows,
    options: SweepOptions,
    split: RowSplit,
    key: tuple[int, str, HeadKind, Balance],
    seed: int,
    folder: Path,
    reward_variance: RewardVariance,
) -> Cell:
    layer, pooling, head, balance = key
    features_ND = np.asarray(store.features(layer, pooling))
    probe = _fit(features_ND, rows.labels_N, split, head, balance, options, seed, seed)
    validation, _ = _scores(probe, features_ND, rows, split.validation, seed)
    test, interval = _scores(probe, features_ND, rows, split.test, seed)
    site = Site(layer, pooling, store.reference)
    file = f"layer-{layer:03d}-{pooling}-{head}-{balance}.safetensors"
    save_probe(probe, site, folder / file)
    return Cell(*key, validation, test, interval, reward_variance(probe, site), float(probe.temperature), file)


def _fit(
    features_ND: Features,
    labels_N: Labels,
    split: RowSplit,
    head: HeadKind,
    balance: Balance,
    options: SweepOptions,
    balance_seed: int,
    seed: int,
) -> Probe:
    """Fit a probe with its classes balanced in one of the two ways."""
    weighted = balance == "weighted"
    chosen = split if weighted else thinned(split, labels_N, balance_seed)
    return fit(features_ND, labels_N, chosen, head, options.training, weighted, seed)


def _scores(
    probe: Probe, features_ND: Features, rows: LabelledRows, part: Rows, seed: int
) -> tuple[Scores, tuple[float, float]]:
    logits_M = probe.logits(features_ND[part], calibrated=False)
    labels_M = rows.labels_N[part]
    return score(logits_M, labels_M, rows.rates_N[part], seed), balanced_accuracy_interval(logits_M, labels_M)


def choose(cells: Sequence[Cell], options: SweepOptions) -> Choice:
    """Choose a cell by the rule of `SweepOptions`."""
    fit_for_use = [cell for cell in cells if cell.validation.ece <= options.max_ece]
    candidates = fit_for_use or list(cells)
    best = max(cell.validation.balanced_accuracy for cell in candidates)
    tied = [cell for cell in candidates if cell.validation.balanced_accuracy >= best - options.tie]
    return Choice(max(tied, key=lambda cell: cell.rvp), bool(fit_for_use), len(tied))


def ensemble(cells: Sequence[Cell], chosen: Cell, size: int, options: SweepOptions) -> list[Cell]:
    """Choose the next best cells after the chosen one, with different layers and poolings as far as possible.

    Raises:
        UserError: if there are too few cells.
    """
    if size > len(cells):
        raise UserError(f"reward.ensemble: {size} probes wanted, the sweep has {len(cells)}; widen the sweep")
    members = [chosen]
    while len(members) < size:
        rest = [cell for cell in cells if cell not in members]
        other_site = [c for c in rest if all(c.layer != m.layer and c.pooling != m.pooling for m in members)]
        other_layer = [c for c in rest if all(c.layer != m.layer for m in members)]
        members.append(choose(other_site or other_layer or rest, options).cell)
    return members


def permuted_control(
    store: ActivationStore, rows: LabelledRows, chosen: Cell, options: SweepOptions, seed: int
) -> list[float]:
    """Balanced accuracies on test rows of probes like the chosen one, fitted and scored with permuted labels."""
    rng = np.random.default_rng(seed)
    features_ND = np.asarray(store.features(chosen.layer, chosen.pooling))
    accuracies = []
    for number in range(options.permutations):
        order = rng.permutation(len(rows.labels_N))
        permuted = LabelledRows(rows.labels_N[order], rows.rates_N[order])
        split = random_split(permuted.labels_N, seed, options.split)
        head, balance = chosen.head, chosen.balance
        probe = _fit(features_ND, permuted.labels_N, split, head, balance, options, seed, seed + number)
        accuracies.append(_scores(probe, features_ND, permuted, split.test, seed)[0].balanced_accuracy)
    return accuracies
