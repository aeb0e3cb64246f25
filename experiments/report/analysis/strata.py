"""Computes held-out pass rates by stratum: which kinds of problems an arm learnt, and when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from halfway.curriculum.support.natural import natural
from halfway.experiments.report.records import EvaluationRecord, Run
from halfway.experiments.report.statistics.intervals import Estimate, over_seeds


@dataclass(frozen=True, slots=True)
class StrataRow:
    """Pass rates of an arm by stratum at its runs' last evaluations, over seeds; None where no run has the stratum."""

    arm: str
    seeds: int
    rates: Mapping[str, Estimate | None]


def strata_names(runs: Sequence[Run]) -> list[str]:
    """The strata in natural order ("2" before "10"); empty if there is only one, which would be the whole set."""
    names = {name for run in runs for evaluation in run.evaluations for name in evaluation.strata}
    return sorted(names, key=natural) if len(names) > 1 else []


def rate(evaluation: EvaluationRecord, stratum: str) -> float | None:
    """Pass rate of the stratum's problems at an evaluation; None if the evaluation does not have the stratum."""
    found = evaluation.strata.get(stratum)
    return found.passed / (found.problems * evaluation.samples) if found else None


def strata_rows(runs_of: Mapping[str, Sequence[Run]]) -> list[StrataRow]:
    """One row for each arm, from its runs' last evaluations; empty if the problems have no strata."""
    names = strata_names([run for runs in runs_of.values() for run in runs])
    rows = []
    for arm, runs in runs_of.items() if names else ():
        last = [run.evaluations[-1] for run in runs if run.evaluations]
        rates = {name: [found for one in last if (found := rate(one, name)) is not None] for name in names}
        rows.append(StrataRow(arm, len(last), {name: over_seeds(v) if v else None for name, v in rates.items()}))
    return rows
