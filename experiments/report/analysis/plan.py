"""Reads the plan in a comparison's file: contrasts, targets, and prices."""

from dataclasses import dataclass
from itertools import combinations

from halfway.curriculum import UserError
from halfway.curriculum.support.validation import construct
from halfway.experiments.config.design import Costs, check_targets, contrast_pairs
from halfway.experiments.report.analysis.axes import PAPERS_RHO, PLAIN, ROLLOUTS, Axis, cost_axis
from halfway.experiments.report.records import PLAN_FILE, Comparison


@dataclass(frozen=True, slots=True)
class Contrast:
    """An arm and its reference."""

    arm: str
    reference: str


@dataclass(frozen=True, slots=True)
class Design:
    """The plan of a comparison.

    Attributes:
        baseline: the arm whose cost to reach a target divides the others' costs: the baseline in the file, otherwise
            the reference of its first pair, otherwise the first arm.
        contrasts: the contrasts in the file, otherwise all pairs of arms.
        named: whether the file names the contrasts.
        targets: values of held-out pass@1 fixed in advance, ascending; may be empty.
        headline: the axis of the shared budget, otherwise rollouts; the comparison is judged at equal cost on this
            axis.
        costs: the axes that weigh trained tokens against generated tokens; empty if trained tokens were not recorded.
        rho_from: source of the prices of trained tokens, in words.
        judge_second: price of a second of judging in generated tokens; None if the file gives none. With a price, each
            cost axis has a second version that includes judging, if the seconds were recorded.
        instances: number of instances; the seeds take turns.
    """

    baseline: str
    contrasts: tuple[Contrast, ...]
    named: bool
    targets: tuple[float, ...]
    headline: Axis
    costs: tuple[Axis, ...]
    rho_from: str
    judge_second: float | None = None
    instances: int = 1

    def axes(self, *plain: Axis) -> list[Axis]:
        """The headline, these plain axes, and the costs, each once."""
        axes = [self.headline, *plain, *self.costs]
        return [axis for i, axis in enumerate(axes) if axis not in axes[:i]]


def read_design(comparison: Comparison) -> Design:
    """Read the plan in comparison.yaml; missing fields have the defaults described in `Design`.

    Raises:
        UserError: if a field of the plan is invalid.
    """
    config, arms, budget = comparison.config, comparison.arms, comparison.budget
    targets = tuple(config.get("targets") or ())
    try:
        contrasts = tuple(Contrast(*pair) for pair in contrast_pairs(config.get("contrasts"), arms))
        check_targets(targets)
        prices = construct(Costs, config.get("costs") or {}, "costs")
    except UserError as error:
        raise error.within(f"{comparison.directory / PLAN_FILE}: ") from None
    judged = (None,) if prices.judge_second is None else (None, prices.judge_second)
    axes = [cost_axis(rho, price) for rho in prices.rho or PAPERS_RHO for price in judged]
    costs = tuple(axis for axis in axes if axis.recorded(comparison.all_runs))
    return Design(
        baseline=contrasts[0].reference if contrasts else arms[0],
        contrasts=contrasts or tuple(Contrast(b, a) for a, b in combinations(arms, 2)),
        named=bool(contrasts),
        targets=tuple(sorted(targets)),
        headline=next((axis for axis in PLAIN if budget and axis.name == budget[0]), ROLLOUTS),
        costs=costs,
        rho_from="given in the file" if prices.rho else "what the hours of published runs imply",
        judge_second=prices.judge_second,
        instances=max(1, len(config.get("instances") or ())),
    )
