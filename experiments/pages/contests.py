"""The measured contests of `results/when_does_it_pay/contests`, and the tables that its page shows of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from halfway.curriculum.support.errors import UserError
from halfway.experiments.report.statistics.intervals import Estimate
from halfway.experiments.report.tables.text import NONE, TextTable, interval

MEASURES = {"rollouts": "rollouts", "tokens": "generated tokens", "cost_0.25": "cost, rho .25", "cost_1": "cost, rho 1"}
SIGNS = {"": "", "at least": "≥ ", "at most": "≤ "}
NOTHING = "experience alone"
"""What an arm is told that is told nothing."""

END = "end"
"""The target that is the baseline's final score with the same seed; the others are scores, as text."""

BY_SEED = (
    "Reached: runs that reached GRPO's final score with the same seed. Then what was spent until then, as a multiple "
    "of GRPO's, seed by seed. *: clear after Holm's adjustment over the arms. ≥: some run never got there, and counts "
    "with all that it spent."
)


class Number(msgspec.Struct, array_like=True, frozen=True):
    """A number with its 95 % interval, if it has one.

    Attributes:
        clear: whether it differs from the baseline's after Holm's adjustment.
        bound: which bound a ratio is if some run never reached the target.
    """

    value: float
    low: float | None = None
    high: float | None = None
    clear: bool = False
    bound: Literal["", "at least", "at most"] = ""

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.value, self.low, self.high)


class Arm(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """One arm of a contest in one regime; means over its seeds.

    Attributes:
        told: what it is told or given that the others lack; empty if nothing.
        lr: its tuned learning rate.
        before, after: held-out pass@1.
        tokens, trained_tokens: generated, and passed over by updates.
        wasted: share of the rollouts in groups that did not train.
        band: share of the groups from the problem alone that had 3/8 to 5/8 passes.
        gains: by axis, the difference in pass@1 from the baseline where all arms have spent equally.
        reached: by target, the number of runs that reached it.
        spent: by target and measure, what was spent until then as a multiple of the baseline's.
        strata: held-out pass@1 at the end, by stratum.
        starts: by kind of start, the number of groups, their mean pass rate, and the degenerate share.
    """

    lr: str
    before: float
    after: float
    steps: float
    tokens: float
    trained_tokens: float
    wasted: float | None
    band: float | None
    rollouts_per_group: float | None
    gains: dict[str, Number]
    reached: dict[str, int]
    spent: dict[str, dict[str, Number]]
    strata: dict[str, float]
    starts: dict[str, tuple[int, float | None, float | None]] = {}
    told: str = ""


class Regime(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A contest on problems of one difficulty.

    Attributes:
        words: what the problems are like.
        command: what ran it, at the commit that the page names.
        rollouts: the shared budget.
        problems: number of held-out problems.
        arms: by name, the baseline among them.
    """

    words: str
    command: str
    baseline: str
    seeds: int
    rollouts: int
    problems: int
    arms: dict[str, Arm]

    @property
    def others(self) -> dict[str, Arm]:
        return {name: arm for name, arm in self.arms.items() if name != self.baseline}


class Contest(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """The same arms in one or more regimes, by name."""

    name: str
    regimes: dict[str, Regime]


def read_contest(path: Path) -> Contest:
    """Read a contest.

    Raises:
        UserError: if the file cannot be read as one.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Contest)
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(f"{path}: {error}; restore it with git") from None


def regimes_table(contests: Sequence[Contest]) -> TextTable:
    """Numbers by which readers recognise a regime in their own logs, one row per regime and budget."""
    rows: dict[str, tuple[str, ...]] = {}
    for contest in contests:
        for name, regime in contest.regimes.items():
            baseline = regime.arms[regime.baseline]
            row = (
                f"{name}, {regime.rollouts:,} rollouts",
                regime.words,
                f"{baseline.before:.3f} -> {baseline.after:.3f}",
                _percent(baseline.wasted),
                _percent(baseline.band),
            )
            rows.setdefault(row[0], row)
    return TextTable(
        "The regimes, as plain GRPO sees them",
        ("regime", "problems", "pass@1", "rollouts in groups without signal", "groups at 3/8..5/8"),
        tuple(rows.values()),
        "Shares over the whole run, means over eight seeds.",
    )


def _percent(share: float | None) -> str:
    return NONE if share is None else f"{100 * share:.1f} %"


def arms_table(contest: Contest) -> TextTable:
    """Each arm's gain at equal rollouts, and what it spends to reach the baseline's final score; one row per arm."""
    columns = ["arm", "is told"]
    for name in contest.regimes:
        columns += [f"{name}: pass@1", f"{name}: reached", *(f"{name}: {MEASURES[m]}" for m in ("tokens", "cost_1"))]
    rows = []
    told = {name: arm.told for regime in contest.regimes.values() for name, arm in regime.others.items()}
    for name in told:
        cells = [name, told[name] or NONE]
        for regime in contest.regimes.values():
            cells += _arm_cells(regime, name)
        rows.append(tuple(cells))
    return TextTable(
        f"Every arm of {contest.name} beside plain GRPO",
        tuple(columns),
        tuple(rows),
        "pass@1: held-out difference at equal rollouts, with its 95 % interval over seeds and problems. " + BY_SEED,
    )


def _arm_cells(regime: Regime, name: str) -> list[str]:
    if name not in regime.arms:
        return [NONE] * 4
    arm = regime.arms[name]
    gain = arm.gains.get("rollouts")
    spent = arm.spent.get(END, {})
    return [
        NONE if gain is None else interval(gain.estimate, 3, signed=True) + "*" * gain.clear,
        f"{arm.reached[END]} of {regime.seeds}" if END in arm.reached else NONE,
        *(_ratio(spent[measure]) if measure in spent else "not reached" for measure in ("tokens", "cost_1")),
    ]


def _ratio(spent: Number) -> str:
    return f"{SIGNS[spent.bound]}x{interval(spent.estimate, 2)}" + "*" * spent.clear


def cheapest(regime: Regime, measure: str, told: str) -> tuple[str, Number] | None:
    """Among arms told the same, the one with the lowest ratio to the baseline's cost that is clearly below 1."""
    clear = [
        (name, spent)
        for name, arm in regime.others.items()
        if arm.told == told and (spent := arm.spent.get(END, {}).get(measure)) and spent.clear and spent.value < 1
    ]
    return min(clear, key=lambda pair: pair[1].value, default=None)


def cheapest_table(contests: Sequence[Contest]) -> TextTable:
    """The cheapest arm by each measure of cost, by the criterion of every single seed."""
    rows, without = [], 0
    for contest in contests:
        for name, regime in contest.regimes.items():
            for told in dict.fromkeys(arm.told for arm in regime.others.values()):
                found = [cheapest(regime, measure, told) for measure in MEASURES]
                cells = [f"{arm[0]} {_ratio(arm[1]).removesuffix('*')}" if arm else regime.baseline for arm in found]
                if any(found):
                    rows.append((f"{contest.name}, {name}", told or NOTHING, *cells))
                else:
                    without += 1
    return TextTable(
        "The cheapest arm, if every seed has to arrive",
        ("contest, regime", "arms that are told", *MEASURES.values()),
        tuple(rows),
        "Times what grpo spent until its end, seed by seed; geometric means with 95 % intervals. An arm is named only "
        f"if it is clearly cheaper after Holm's adjustment; where none is, it says grpo. {without} further rows, all "
        f"of {NOTHING} among them, would say grpo in every cell.",
    )
