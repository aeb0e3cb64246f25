"""What was planned before a comparison ran, as its file says: contrasts, targets, and what costs are made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from halfway.experiments.config.design import IDLE_DEVICE, check_costs, check_targets, contrast_pairs
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
        judge_second: what a second of judging costs in generated tokens; None where the file gives no price. With one
            there is an axis with judging beside each without, if the seconds were recorded.
    """

    baseline: str
    contrasts: tuple[Contrast, ...]
    named: bool
    targets: tuple[float, ...]
    headline: Axis
    costs: tuple[Axis, ...]
    rho_from: str
    judge_second: float | None = None


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
    prices = read_prices(comparison)
    judged = (None,) if prices.judge_second is None else (None, prices.judge_second)
    axes = [cost_axis(rho, price) for rho in prices.rho for price in judged]
    costs = tuple(axis for axis in axes if axis.recorded(comparison.all_runs))
    return Design(
        baseline=contrasts[0].reference if contrasts else arms[0],
        contrasts=contrasts or tuple(Contrast(b, a) for a, b in combinations(arms, 2)),
        named=bool(contrasts),
        targets=tuple(sorted(targets)),
        headline=next((axis for axis in PLAIN if budget and axis.name == budget[0]), ROLLOUTS),
        costs=costs,
        rho_from=prices.origin,
        judge_second=prices.judge_second,
    )


@dataclass(frozen=True, slots=True)
class Prices:
    """What costs are made of, in generated tokens.

    Attributes:
        rho: of a trained token; several where it is not known. origin: where they come from, in words.
        judge_second: of a second of judging; None = not asked for.
    """

    rho: tuple[float, ...]
    origin: str
    judge_second: float | None = None


def read_prices(comparison: Comparison) -> Prices:
    """The prices that comparison.yaml gives, or says where to take from."""
    declared = comparison.config.get("costs") or {}
    check_costs(declared, comparison.config.get("base") or {})
    if "from" in declared:
        return _cluster_prices(declared, comparison)
    judge_second = declared.get("judge_second")
    given = None if judge_second is None else float(judge_second)
    if "rho" not in declared:
        return Prices(PAPERS_RHO, "what the sources' hours imply", given)
    return Prices(tuple(map(float, declared["rho"])), "given", given)


def _cluster_prices(declared: Mapping[str, Any], comparison: Comparison) -> Prices:
    from halfway.experiments.config.model_files import model_shape
    from halfway.experiments.config.run import parse_run_config
    from halfway.experiments.report.analysis.roofline import of_cluster

    config = parse_run_config(comparison.all_runs[0].config)
    model = of_cluster(config, model_shape(config), declared.get("context"))
    origin = (
        f"from the peak rates of {config.cluster.device}, {model.batch} sequences of {model.context:g} tokens at once"
    )
    judge_second = declared.get("judge_second")
    if judge_second == IDLE_DEVICE:
        judge_second = round(1 / model.generated, 1)
    return Prices((round(model.rho, 3),), origin, None if judge_second is None else float(judge_second))
