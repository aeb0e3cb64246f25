"""What was planned before a comparison ran, as its file says: contrasts, targets, and what costs are made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from halfway.experiments.config.design import check_costs, check_targets, contrast_pairs
from halfway.experiments.report.analysis.axes import PAPERS_RHO, PLAIN, ROLLOUTS, Axis, cost_axis
from halfway.experiments.report.records import Comparison


@dataclass(frozen=True, slots=True)
class Contrast:
    """One arm against another."""

    arm: str
    reference: str


@dataclass(frozen=True, slots=True)
class Design:
    """The plan of a comparison.

    Attributes:
        baseline: what the others are held against in cost to reach: the arm that the file names so, or the reference of
            its first pair, or the first arm.
        contrasts: those that the file names, or else all pairs of arms; `named` says which.
        targets: held-out pass@1 fixed in advance, ascending; may be empty.
        headline: the axis of the shared budget, or else rollouts; arms are compared where all have spent equally by it.
        costs: axes that weigh trained tokens against generated tokens; empty where these were not recorded.
        rho_from: where their weights come from, in words.
    """

    baseline: str
    contrasts: tuple[Contrast, ...]
    named: bool
    targets: tuple[float, ...]
    headline: Axis
    costs: tuple[Axis, ...]
    rho_from: str


def read_design(comparison: Comparison) -> Design:
    """The plan in comparison.yaml; what it leaves out has the defaults of `Design`.

    Raises:
        UserError: if what it says cannot be read.
    """
    config, arms = comparison.config, comparison.arms
    contrasts = tuple(Contrast(*pair) for pair in contrast_pairs(config.get("contrasts"), arms))
    targets = tuple(config.get("targets") or ())
    check_targets(targets)
    budget = comparison.budget
    rho, rho_from = read_rho(comparison)
    costs = tuple(axis for axis in map(cost_axis, rho) if axis.recorded(comparison.all_runs))
    return Design(
        baseline=contrasts[0].reference if contrasts else arms[0],
        contrasts=contrasts or tuple(Contrast(b, a) for a, b in combinations(arms, 2)),
        named=bool(contrasts),
        targets=tuple(sorted(targets)),
        headline=next((axis for axis in PLAIN if budget and axis.name == budget[0]), ROLLOUTS),
        costs=costs,
        rho_from=rho_from,
    )


def read_rho(comparison: Comparison) -> tuple[tuple[float, ...], str]:
    """The weights of a trained token in generated tokens, and where they come from."""
    declared = comparison.config.get("costs") or {}
    check_costs(declared, comparison.config.get("base") or {})
    if not declared:
        return PAPERS_RHO, "what the sources' hours imply"
    return _cluster_rho(declared, comparison) if "from" in declared else (tuple(map(float, declared["rho"])), "given")


def _cluster_rho(declared: Mapping[str, Any], comparison: Comparison) -> tuple[tuple[float, ...], str]:
    from halfway.experiments.config.model_files import model_shape
    from halfway.experiments.config.run import parse_run_config
    from halfway.experiments.report.analysis.roofline import of_cluster

    config = parse_run_config(comparison.all_runs[0].config)
    model = of_cluster(config, model_shape(config), declared.get("context"))
    origin = (
        f"from the peak rates of {config.cluster.device}, {model.batch} sequences of {model.context:g} tokens at once"
    )
    return (round(model.rho, 3),), origin
