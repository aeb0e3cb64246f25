"""Finds what controllers report about the parents with one pass count."""

from collections.abc import Mapping

from halfway.curriculum.prefix import ParentCount
from halfway.experiments.report.records import Run


def reported(metrics: Mapping[str, float | None], quantity: str, parent: ParentCount) -> float | None:
    """The first controller's value of a quantity, such as "ratio", for these parents; None if no controller reports it.

    Args:
        metrics: the controllers' metrics of one step, keyed by `label/name`.
    """
    wanted = parent.metric(quantity)
    found = (value for name, value in metrics.items() if name.partition("/")[2] == wanted)
    return next((value for value in found if value is not None), None)


def final_ratio(run: Run, parent: ParentCount) -> float | None:
    """The prefix ratio that a controller reports for these parents after the run's last step; None if none does."""
    return reported(run.steps[-1].controllers, "ratio", parent) if run.steps else None
