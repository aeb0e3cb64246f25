"""Fits one probe, after PROPEL's table 10."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from halfway.trainers.propel.probes.heads import Probe
from halfway.trainers.propel.probes.probe_options import HeadKind, ProbeTraining
from halfway.trainers.propel.probes.scores import best_temperature
from halfway.trainers.propel.probes.splits import Labels, RowSplit


def fit(
    features_ND: NDArray[np.float32],
    labels_N: Labels,
    split: RowSplit,
    head: HeadKind,
    training: ProbeTraining,
    weighted: bool,
    seed: int,
    equal: bool = True,
) -> Probe:
    """Fit a probe to the training rows; the validation rows stop the training and set the temperature.

    On one machine the result is a function of the arguments alone; the process's random state does not change.

    Args:
        weighted: whether both classes weigh the same in the loss, whatever their size.
        equal: whether both classes weigh the same in the validation figures, as in PROPEL, which splits a balanced set;
            false for a probe that should learn how rare positives are.
    """
    train_MD, train_M = _part(features_ND, labels_N, split.train)
    held_HD, held_H = _part(features_ND, labels_N, split.validation)
    weights_2 = _equal_weights(train_M) if weighted else torch.ones(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        probe = Probe(head, features_ND.shape[1])
        if training.standardize:
            probe.standardize(train_MD)
        optimizer = torch.optim.AdamW(probe.parameters(), lr=training.lr, weight_decay=training.weight_decay)
        best, best_state, waited = -np.inf, probe.state_dict(), 0
        for _ in range(training.epochs):
            probe.train()
            order_M: Any = torch.randperm(len(train_M))
            for rows in order_M.split(training.batch):
                loss: Any = functional.cross_entropy(probe(train_MD[rows]), train_M[rows], weights_2)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            merit = _merit(probe, held_HD, held_H, equal)
            waited += 1
            if merit > best:
                best, waited = merit, 0
                best_state = {name: tensor.clone() for name, tensor in probe.state_dict().items()}
            if waited >= training.patience:
                break
    probe.load_state_dict(best_state)
    probe.eval()
    logits_H = probe.logits(held_HD.numpy(), calibrated=False)
    probe.temperature.fill_(best_temperature(logits_H, labels_N[split.validation], equal))
    return probe


def _part(features_ND: NDArray[np.float32], labels_N: Labels, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(np.asarray(features_ND[rows], np.float32)), torch.from_numpy(
        labels_N[rows].astype(np.int64)
    )


def _equal_weights(labels_N: Tensor) -> Tensor:
    """Weight of a row of each class, so that both classes weigh the same."""
    return len(labels_N) / (2 * torch.bincount(labels_N, minlength=2).float())


@torch.no_grad()
def _merit(probe: Probe, held_HD: Tensor, held_H: Tensor, equal: bool) -> float:
    """Higher is better. `equal`: both classes weigh the same."""
    probe.eval()
    weights_2 = _equal_weights(held_H) if equal else torch.ones(2)
    return -float(functional.cross_entropy(probe(held_HD), held_H, weights_2))
