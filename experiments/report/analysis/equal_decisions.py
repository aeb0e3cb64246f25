"""Compares the decisions of arms: equal arms, the share in which two differ, members that never acted."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from halfway.curriculum.support.yaml_bases import label_of
from halfway.experiments.config.design import flatten
from halfway.experiments.report.records import Run

OF_EVERY_RUN = ("name", "seed", "output")


@dataclass(frozen=True, slots=True)
class Decided:
    """Decisions of one arm against another's, in runs with equal seeds.

    Attributes:
        groups: number of the arm's groups in these runs.
        differing: share of the decisions of both arms that only one of them made, in 0..1.
        same: whether the arms are equal: no decision differs, and no outcome, or nothing but chance could differ.
    """

    arm: str
    reference: str
    groups: int
    differing: float
    same: bool


@dataclass(frozen=True, slots=True)
class Idle:
    """A member of an arm's chain that chose, skipped and changed no group in any run."""

    arm: str
    member: str
    groups: int


def compare_decisions(runs_of: Mapping[str, Sequence[Run]], baseline: str) -> list[Decided]:
    """Compare every arm with the first equal arm, otherwise with the baseline.

    The baseline, and arms without a common seed, are left out.
    """
    found: list[Decided] = []
    order = [baseline, *(arm for arm in runs_of if arm != baseline)] if baseline in runs_of else [*runs_of]
    taken = {arm: [*map(_decisions, runs_of[arm])] for arm in order}
    for place, arm in enumerate(order):
        beside = [_beside(runs_of, taken, arm, other) for other in order[:place]]
        pairs = [pair for pair in beside if pair is not None]
        one = next((pair for pair in pairs if pair.same), None)
        found += [one] if one else [pair for pair in pairs if pair.reference == baseline]
    return found


def _beside(
    runs_of: Mapping[str, Sequence[Run]], taken: Mapping[str, Sequence[Counter[Any]]], arm: str, reference: str
) -> Decided | None:
    others = {run.seed: (run, made) for run, made in zip(runs_of[reference], taken[reference], strict=True)}
    own = zip(runs_of[arm], taken[arm], strict=True)
    pairs = [_as_far(run, made, *others[run.seed]) for run, made in own if run.seed in others]
    total = sum(made.total() + other.total() for _, made, _, other in pairs)
    if not total:
        return None
    common = sum((made & other).total() for _, made, _, other in pairs)
    one = all(_trained_alike(run, other) for run, _, other, _ in pairs)
    groups = sum(len(run.groups) for run, *_ in pairs)
    return Decided(arm, reference, groups, 1 - 2 * common / total, one and 2 * common == total)


def _decisions(run: Run) -> Counter[Any]:
    """Count the decisions of a run: problems of each step with start, group size and weights, and skipped problems."""
    tried = (
        (
            group.step,
            group.problem,
            group.origin,
            group.parent,
            group.prefix_length,
            group.hint_share,
            group.size + sum(group.dropped.values()),
            group.weights,
        )
        for group in run.groups
    )
    return Counter([*tried, *((skip.step, skip.problem) for skip in run.skips)])


def _as_far(
    run: Run, made: Counter[Any], other: Run, others: Counter[Any]
) -> tuple[Run, Counter[Any], Run, Counter[Any]]:
    """Two runs and their decisions, as far as both have come if one has not ended."""
    if run.finished and other.finished:
        return run, made, other, others
    steps = min(max((group.step + 1 for group in each.groups), default=0) for each in (run, other))
    cut, rest = (_first_steps(one, steps) for one in (run, other))
    return cut, _decisions(cut), rest, _decisions(rest)


def _first_steps(run: Run, steps: int) -> Run:
    return replace(
        run,
        groups=[group for group in run.groups if group.step < steps],
        skips=[skip for skip in run.skips if skip.step < steps],
        evaluations=[each for each in run.evaluations if each.step <= steps],
    )


def _trained_alike(run: Run, other: Run) -> bool:
    """True if two runs with equal decisions gave equal outcomes, or could differ by nothing but chance.

    The log has no advantages, so two members that give them, or two learners, are told apart by what came of it.
    """
    chance = _only_controllers_differ(run, other) and not any(group.weights for group in run.groups)
    return chance or _outcomes(run) == _outcomes(other)


def _outcomes(run: Run) -> tuple[Counter[Any], list[Any]]:
    """The passes and tokens of every group, and the curve."""
    curve = [(each.rollouts, each.pass_at_1, each.passed) for each in run.evaluations]
    return Counter((group.step, group.problem, group.k, group.n, group.tokens) for group in run.groups), curve


def _only_controllers_differ(run: Run, other: Run) -> bool:
    left, right = flatten(run.config), flatten(other.config)
    names = {name for name in {**left, **right} if left.get(name) != right.get(name)}
    return all(name.split(".")[0] in ("controllers", *OF_EVERY_RUN) for name in names)


def idle_members(runs_of: Mapping[str, Sequence[Run]]) -> list[Idle]:
    """Find the members of every arm's chain that never acted, according to the decision log."""
    return [
        Idle(arm, label, sum(len(run.groups) for run in runs))
        for arm, runs in runs_of.items()
        for label in _labels(runs)
        if not any(_has_acted(run, label) for run in runs) and any(run.groups for run in runs)
    ]


def _labels(runs: Sequence[Run]) -> list[str]:
    listed = runs[0].config.get("controllers")
    return [label_of(entry) for entry in listed] if isinstance(listed, Sequence) and not isinstance(listed, str) else []


def _has_acted(run: Run, label: str) -> bool:
    """True if a member chose or skipped a problem, or may have changed a group: its size, hint or weights."""
    if any(skip.reason and skip.reason.partition(":")[0] == label for skip in run.skips):
        return True
    sizes = {group.size + sum(group.dropped.values()) for group in run.groups}
    chosen = any(group.decisions and group.decisions[0][0] == label for group in run.groups)
    return len(sizes) > 1 or chosen or any(group.weights or group.hint_share is not None for group in run.groups)
