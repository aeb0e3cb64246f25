"""What was planned before a comparison ran, as its file says: contrasts, targets, and what costs are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.registry import unknown
from halfway.experiments.report.analysis.axes import PAPERS_RHO, PLAIN, ROLLOUTS, Axis, cost_axis
from halfway.experiments.report.records import Comparison

CONTRASTS_REMEDY = "give {baseline: an arm} or a list of pairs [arm, reference]"
COSTS_REMEDY = "give {rho: [.25, 1]} or {from: cluster}"


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
    contrasts = read_contrasts(config.get("contrasts"), arms)
    budget = comparison.budget
    rho, rho_from = read_rho(config.get("costs"), comparison)
    costs = tuple(axis for axis in map(cost_axis, rho) if axis.recorded(comparison.all_runs))
    return Design(
        baseline=contrasts[0].reference if contrasts else arms[0],
        contrasts=contrasts or tuple(Contrast(b, a) for a, b in combinations(arms, 2)),
        named=bool(contrasts),
        targets=read_targets(config.get("targets")),
        headline=next((axis for axis in PLAIN if budget and axis.name == budget[0]), ROLLOUTS),
        costs=costs,
        rho_from=rho_from,
    )


def read_contrasts(declared: Any, arms: Sequence[str]) -> tuple[Contrast, ...]:
    """The named contrasts; none if none is declared.

    Raises:
        UserError: unless it is {baseline: arm}, which means every other arm against it, or a list of pairs of arms.
    """
    if not declared:
        return ()
    if isinstance(declared, Mapping):
        if set(declared) != {"baseline"}:
            raise UserError(f"contrasts: {dict(declared)} is not acceptable; {CONTRASTS_REMEDY}")
        pairs = [(arm, str(declared["baseline"])) for arm in arms if arm != declared["baseline"]]
        _require_arms([str(declared["baseline"])], arms)
    else:
        if not all(isinstance(pair, Sequence) and len(pair) == 2 for pair in declared):
            raise UserError(f"contrasts: {declared} is not acceptable; {CONTRASTS_REMEDY}")
        pairs = [(str(arm), str(reference)) for arm, reference in declared]
        _require_arms([arm for pair in pairs for arm in pair], arms)
    return tuple(Contrast(*pair) for pair in pairs)


def _require_arms(names: Sequence[str], arms: Sequence[str]) -> None:
    for name in names:
        if name not in arms:
            raise unknown("contrasts", name, arms)


def read_targets(declared: Any) -> tuple[float, ...]:
    """Pass rates, ascending. Raises UserError unless all lie between 0 and 1."""
    if not declared:
        return ()
    targets = declared if isinstance(declared, Sequence) and not isinstance(declared, str) else [declared]
    if not all(isinstance(target, int | float) and 0 < target < 1 for target in targets):
        raise UserError(f"targets: {declared} is not acceptable; give pass rates between 0 and 1")
    return tuple(sorted(set(map(float, targets))))


def read_rho(declared: Any, comparison: Comparison) -> tuple[tuple[float, ...], str]:
    """The weights of a trained token in generated tokens, and where they come from.

    Raises:
        UserError: unless it is {rho: numbers} or {from: cluster}, with `context` (tokens) if wanted.
    """
    if not declared:
        return PAPERS_RHO, "what the sources' hours imply"
    if not isinstance(declared, Mapping) or len({"rho", "from"} & set(declared)) != 1:
        raise UserError(f"costs: {declared} is not acceptable; {COSTS_REMEDY}")
    if "from" in declared:
        return _cluster_rho(declared, comparison)
    given = declared["rho"]
    weights = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    if set(declared) != {"rho"} or not all(isinstance(rho, int | float) and rho >= 0 for rho in weights):
        raise UserError(f"costs: {dict(declared)} is not acceptable; {COSTS_REMEDY}")
    return tuple(map(float, weights)), "given"


def _cluster_rho(declared: Mapping[str, Any], comparison: Comparison) -> tuple[tuple[float, ...], str]:
    from halfway.experiments.config.run import parse_run_config
    from halfway.experiments.report.analysis.roofline import of_cluster
    from halfway.experiments.running.memory import model_shape

    context = declared.get("context")
    known = declared["from"] == "cluster" and set(declared) <= {"from", "context"}
    if not known or not (context is None or (isinstance(context, int | float) and context > 0)):
        raise UserError(f"costs: {dict(declared)} is not acceptable; {COSTS_REMEDY}")
    config = parse_run_config(comparison.all_runs[0].config)
    model = of_cluster(config, model_shape(config), context)
    origin = (
        f"from the peak rates of {config.cluster.device}, {model.batch} sequences of {model.context:g} tokens at once"
    )
    return (round(model.rho, 3),), origin
