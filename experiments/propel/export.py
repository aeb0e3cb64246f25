"""Carries out `halfway propel export`, which writes pools of problems for solver training."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from halfway.curriculum import Problem
from halfway.curriculum.support.atomic import read_json, write_json
from halfway.curriculum.support.components import plain
from halfway.experiments.propel.stages import ProbeAt, chosen_cell, load_author
from halfway.experiments.propel.study import Study
from halfway.trainers.propel.corpus import labelled_rows
from halfway.trainers.propel.guessed_problems import guess_own, write_fresh, write_pool
from halfway.trainers.propel.probes.activations import ActivationStore
from halfway.trainers.propel.probes.heads import Site, load_probe, save_probe
from halfway.trainers.propel.probes.rates import fit_rates, score_rates
from halfway.trainers.propel.probes.splits import random_split


def rate_probe(study: Study) -> tuple[ProbeAt, dict[str, Any]]:
    """Get the study's probe of the pass rate, with its scores; fitted once, then read from its file.

    It has the same site and the same head as the chosen probe of the sweep.

    Raises:
        UserError: if there was no sweep, or its files belong to another reference model.
    """
    file, record = study.folder / "rates.safetensors", study.folder / "rates.json"
    chosen = chosen_cell(study)
    if not file.exists():
        corpus, options, solver = study.corpus, study.config.sweep, study.solver
        store = ActivationStore.open(study.folder / "activations", study.reference)
        rows = labelled_rows(corpus, solver)
        passed_N = np.asarray([row.passed for row in corpus.labelled], np.int64)
        split = random_split(rows.labels_N, study.seed, options.split)
        features_ND = store.features(chosen.layer, chosen.pooling)
        probe = fit_rates(features_ND, passed_N, solver.attempts, split, chosen.head, options.training, study.seed)
        scores = score_rates(probe.logits(features_ND), rows.rates_N, solver.attempts, split)
        write_json(record, {"layer": chosen.layer, "pooling": chosen.pooling, "head": chosen.head, **asdict(scores)})
        save_probe(probe, Site(chosen.layer, chosen.pooling, study.reference), file)
    return load_probe(file, study.reference), read_json(record)


def export_pool(study: Study, arm: str) -> tuple[Path, int]:
    """Write new tasks of an arm's generator, with predicted pass rates. Returns the file and the number of tasks."""
    probe, scores = rate_probe(study)
    author, step = load_author(study, arm)
    stream = study.stream.at("export", arm)
    pool = write_fresh(author, study.config.export.texts, study.reader, probe, stream)
    about = {"arm": arm, "step": step, "generator.rollouts.temperature": study.config.generator.rollouts.temperature}
    file = study.folder / "pools" / f"{arm}.parquet"
    write_pool(pool, file, {**_about(study, scores), **about, "texts": study.config.export.texts})
    return file, len(pool.problems)


def export_problems(study: Study, name: str, problems: list[Problem]) -> tuple[Path, int]:
    """Write problems of a run, with predicted pass rates. Returns the file and the number of problems."""
    probe, scores = rate_probe(study)
    pool = guess_own(study.domain, problems, study.reader, probe, study.stream.at("export prompts"))
    file = study.folder / "pools" / f"{name}.parquet"
    write_pool(pool, file, {**_about(study, scores), "run": name})
    return file, len(pool.problems)


def _about(study: Study, scores: dict[str, Any]) -> dict[str, Any]:
    """The facts that determine a study's pools."""
    return {
        "study": study.config.name,
        "seed": study.seed,
        "domain": plain(study.config.domain),
        "reference model": study.reference,
        "solver model": study.provenance["solver model"],
        "probe": scores,
    }
