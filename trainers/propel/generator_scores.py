"""Evaluation of a generator by real solver rollouts on fresh tasks, never by a probe; choice of its checkpoint."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from halfway.trainers.propel.corpus import CorpusRow
from halfway.trainers.propel.domains.diversity import Units, block_self_bleu_3, distinct_3, self_bleu_3, top_share
from halfway.trainers.propel.propel_options import Band, CheckpointRule
from halfway.trainers.propel.writing import Written


@dataclass(frozen=True)
class GeneratorScores:
    """Figures of one generator on fresh texts. Shares are of all texts, including invalid texts.

    Attributes:
        generations: number of texts.
        utility: share of tasks whose solve count lies in the band; `utility_stderr` is its standard error.
        utility_of_valid: share of the valid tasks whose solve count lies in the band, as in PROPEL's table 4 for maths,
            where a task is valid if it has a reference answer; NaN without valid tasks.
        well_formed: share that follows the domain's rules, with or without the oracles' agreement; "valid" for maths in
            that table.
        valid, too_easy, too_hard: shares of valid tasks, and of those above and below the band.
        self_bleu_3, block_self_bleu_3, distinct_3: see `halfway.trainers.propel.domains.diversity`; of all texts.
        top_topic: share of the commonest topic, of well-formed texts.
        different: share of distinct texts.
        solve_counts: numbers of valid tasks with 0..K passes.
        trials, oracle_attempts: solver trials and oracle attempts that the evaluation took.
    """

    generations: int
    utility: float
    utility_stderr: float
    utility_of_valid: float
    well_formed: float
    valid: float
    too_easy: float
    too_hard: float
    self_bleu_3: float
    block_self_bleu_3: float
    distinct_3: float
    top_topic: float
    different: float
    solve_counts: tuple[int, ...]
    trials: int
    oracle_attempts: int


def score_generator(rows: Sequence[CorpusRow], attempts: int, band: Band, units: Units) -> GeneratorScores:
    """Score rows in which every valid task has its own trials, even a repeated task."""
    number = len(rows)
    tried = [row for row in rows if row.labelled]
    assert all(row.invalid or row.attempts for row in rows), "every valid task is tried"
    fewest, most = band.counts(attempts)
    useful = sum(band.holds(row.passed, attempts) for row in tried)
    utility = useful / number
    texts = [row.text for row in rows]
    well_formed = [not row.invalid or row.oracle_answers != "" for row in rows]
    return GeneratorScores(
        generations=number,
        utility=utility,
        utility_stderr=math.sqrt(utility * (1 - utility) / number),
        utility_of_valid=useful / len(tried) if tried else math.nan,
        well_formed=sum(well_formed) / number,
        valid=len(tried) / number,
        too_easy=sum(row.passed > most for row in tried) / number,
        too_hard=sum(row.passed < fewest for row in tried) / number,
        self_bleu_3=self_bleu_3(texts, units),
        block_self_bleu_3=block_self_bleu_3(texts, units),
        distinct_3=distinct_3(texts, units),
        top_topic=top_share([row.topic if well else "" for row, well in zip(rows, well_formed, strict=True)]),
        different=len(set(texts)) / number,
        solve_counts=tuple(sum(row.passed == k for row in tried) for k in range(attempts + 1)),
        trials=sum(row.attempts for row in tried),
        oracle_attempts=sum(row.oracle_attempts for row in rows),
    )


def numeric_features(rows: Sequence[CorpusRow]) -> dict[str, dict[str, float]]:
    """Mean and median of every numeric feature over the valid rows, by name."""
    facts = [json.loads(row.features) for row in rows if not row.invalid]
    numbers: dict[str, list[float]] = {}
    for fact in facts:
        for name, value in fact.items():
            if isinstance(value, int | float):
                numbers.setdefault(name, []).append(float(value))
    return {name: {"mean": fmean(values), "median": median(values)} for name, values in numbers.items()}


@dataclass(frozen=True)
class CheckpointHealth:
    """Health of a checkpoint's texts, measured without a solver.

    Attributes:
        alerts: names of the violated bounds of the rule.
        oracle_attempts: oracle attempts that this check took.
    """

    step: int
    valid: float
    top_topic: float
    distinct_3: float
    alerts: tuple[str, ...]
    oracle_attempts: int = 0


def check_health(
    step: int, written: Sequence[Written], base_distinct: float, units: Units, rule: CheckpointRule
) -> CheckpointHealth:
    """Check a checkpoint's texts against the rule."""
    valid = sum(one.valid for one in written) / len(written)
    topic = top_share([one.candidate.topic if one.candidate.well_formed else "" for one in written])
    distinct = distinct_3([one.text for one in written], units)
    broken = {
        "min_valid": valid < rule.min_valid,
        "max_top_topic": topic > rule.max_top_topic,
        "min_distinct": distinct < rule.min_distinct * base_distinct,
    }
    alerts = tuple(name for name, alert in broken.items() if alert)
    return CheckpointHealth(step, valid, topic, distinct, alerts, sum(one.candidate.oracle_attempts for one in written))


def choose_checkpoint(checked: Sequence[CheckpointHealth]) -> CheckpointHealth:
    """The last checkpoint without an alert; if there is none, the last with the fewest alerts."""
    return max(checked, key=lambda health: (-len(health.alerts), health.step))
