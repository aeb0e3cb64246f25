"""Adversarial co-evolution: an auxiliary probe against the tasks with which a generator learned to please the first.

PROPEL, section 6 and appendix 12, one round. The paper does not say from which score on a task counts as useful to the
probe; here it is a logit above 0.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from halfway.curriculum.support.errors import UserError
from halfway.trainers.propel.corpus import Corpus, CorpusRow
from halfway.trainers.propel.domains.candidates import Candidate
from halfway.trainers.propel.probes.heads import Probe, Site
from halfway.trainers.propel.probes.options import HeadKind, ProbeTraining
from halfway.trainers.propel.probes.splits import check_labels, random_split, thinned
from halfway.trainers.propel.probes.training import fit
from halfway.trainers.propel.rewards import Reader
from halfway.trainers.propel.solver import Solver
from halfway.trainers.propel.writing import Written

LEAST = 10


def negatives(
    mined: Sequence[CorpusRow], logits: Sequence[float], solver: Solver, variant: Literal["false_positives", "semantic"]
) -> list[CorpusRow]:
    """The labelled rows that the auxiliary probe has to recognise, given the original probe's logits.

    Raises:
        UserError: if there are too few.
    """
    top = Counter(row.topic for row in mined).most_common(1)[0][0] if mined else ""
    found = []
    for row, logit in zip(mined, logits, strict=True):
        false_positive = logit > 0 and not solver.useful(row.passed)
        if false_positive or (variant == "semantic" and row.topic == top):
            found.append(row)
    if len(found) < LEAST:
        raise UserError(
            f"reward.adversary: {len(found)} negatives among {len(mined)} tasks, at least {LEAST} are needed; "
            "raise reward.adversary_generations, or do without: the probe is hardly fooled"
        )
    return found


def auxiliary(
    reader: Reader,
    corpus: Corpus,
    against: Sequence[CorpusRow],
    solver: Solver,
    site: Site,
    head: HeadKind,
    training: ProbeTraining,
    seed: int,
) -> Probe:
    """A probe, reading where the original one reads, of the corpus's useful tasks against these."""
    useful = [row for row in corpus.labelled if solver.useful(row.passed)]
    rows = [*useful, *against]
    labels_N = np.arange(len(rows)) < len(useful)
    check_labels(labels_N, LEAST)
    features_ND = reader.features([(row.prompt, row.text) for row in rows], site)
    split = thinned(random_split(labels_N, seed), labels_N, seed)
    return fit(features_ND, labels_N, split, head, training, weighted=False, seed=seed)


def as_written(rows: Sequence[CorpusRow]) -> list[Written]:
    """Labelled rows as the texts that a reward scores."""
    return [
        Written(row.prompt, Candidate(row.text, None, row.as_problem(), None, row.topic), row.tokens) for row in rows
    ]
