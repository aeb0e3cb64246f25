"""Records a finished seed of a study in one small file, which `notebooks/propel.ipynb` reads.

python -m halfway.experiments.propel.recording STUDY.yaml SEED recording.json.gz
"""

import gzip
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from halfway.curriculum.support.atomic import write_bytes
from halfway.experiments.propel.config import BASE, PropelConfig, load_study
from halfway.trainers.propel.corpus import groups_of, load_corpus
from halfway.trainers.propel.probes.activations import ActivationStore
from halfway.trainers.propel.probes.heads import load_probe
from halfway.trainers.propel.probes.sweep import Cell, LabelledRows, make_splits, read_cells

STEP = ("reward/valid_mean", "tasks/valid", "tasks/top_topic", "reference_kl")


def record(config: PropelConfig, seed: int) -> dict[str, Any]:
    """The corpus, the probes with the chosen probe's test predictions, and every arm that was evaluated.

    Raises:
        UserError: if there is no corpus, or the chosen probe's file is not a probe.
    """
    folder, band, attempts = config.folder / f"seed-{seed}", config.solver.band, config.solver.rollouts.num_rollouts
    rows = load_corpus(folder / "corpus").rows
    sweep = json.loads((folder / "sweep.json").read_text())
    passed_N = np.asarray([row.passed for row in rows if row.labelled])
    groups_N = groups_of([row for row in rows if row.labelled], config.sweep.split.by)
    labels_N = np.asarray([band.holds(passed, attempts) for passed in passed_N.tolist()])
    split = make_splits(LabelledRows(labels_N, passed_N / attempts, groups_N), config.sweep.split, seed)[0]
    arms = [arm for arm in (BASE, *config.arms) if (folder / "evaluations" / f"{arm}.json").exists()]
    return {
        "attempts": attempts,
        "band": band.counts(attempts),
        "corpus": {"text": [r.text for r in rows], "passed": [r.passed for r in rows]},
        "split": {name: part.tolist() for name, part in split._asdict().items()},
        "test_logits": _logits(folder, Cell.from_record(sweep["chosen"]), split.test),
        "cells": [asdict(cell) for cell in read_cells(folder / "sweep")],
        "sweep": {name: sweep[name] for name in ("chosen", "permuted", "surface", "costs")},
        "arms": {arm: _arm(folder, arm) for arm in arms},
    }


def _logits(folder: Path, chosen: Cell, rows: Any) -> list[float]:
    probe, site = load_probe(folder / "sweep" / chosen.file)
    store = ActivationStore.open(folder / "activations")
    logits_M = probe.logits(np.asarray(store.features(site.layer, site.pooling))[rows], calibrated=False)
    return [round(logit, 4) for logit in logits_M.tolist()]


def _arm(folder: Path, arm: str) -> dict[str, Any]:
    steps = folder / "arms" / arm / "steps.jsonl"
    lines = [json.loads(line)["learner"] for line in steps.read_text().splitlines()] if steps.exists() else []
    return {
        "evaluation": json.loads((folder / "evaluations" / f"{arm}.json").read_text()),
        "curve": json.loads((folder / "evaluations" / f"{arm}.curve.json").read_text()),
        "steps": [{name: round(line[name], 4) for name in STEP} for line in lines],
    }


if __name__ == "__main__":
    text = json.dumps(record(load_study(Path(sys.argv[1])), int(sys.argv[2])))
    write_bytes(Path(sys.argv[3]), gzip.compress(text.encode(), mtime=0))
