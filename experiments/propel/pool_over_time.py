"""Shows how a pool of generated problems wears: predictions, outcomes and mixed groups over the course of runs.

For each part of a run (an eighth of its steps unless told otherwise): the pass rate that the probe predicted for the
generated problems it chose, the pass rate observed, and the share of mixed groups among them and among the others. Runs
of all seeds are taken together. Problems chosen at random carry a prediction as well.

    python -m halfway.experiments.propel.pool_over_time runs/contest_probe --arms probe probe_easier_sheets
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from halfway.curriculum.decision_log import GroupRecord
from halfway.curriculum.rollouts import Origin
from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.errors import UserError, require
from halfway.experiments.report.records import read_jsonl
from halfway.experiments.report.tables.text import NONE, TextTable
from halfway.experiments.scripts import script, script_parser

LOG, MEMBER, WORD = "decisions.jsonl", "probe", "probed "


@dataclass(frozen=True, slots=True)
class ChosenGroup(GroupRecord):
    """A line of decisions.jsonl with who decided what about the group: pairs of a member and its words."""

    decisions: list[tuple[str, str]] = field(default_factory=list)

    @property
    def predicted(self) -> float | None:
        """The pass rate that the probe predicted, None if it chose no problem here."""
        words = [text for member, text in self.decisions if member == MEMBER and text.startswith(WORD)]
        return float(words[0].removeprefix(WORD)) if words else None


@dataclass(frozen=True, slots=True)
class Part:
    """What one part of the runs showed; a mean over no group is NaN.

    Attributes:
        steps: number of steps by its end, in the longest run.
        generated: number of groups of generated problems per run.
        predicted, observed: their mean pass rate.
        mixed, mixed_others: share of mixed groups among them, and among the data set's own.
    """

    steps: int
    generated: float
    predicted: float
    observed: float
    mixed: float
    mixed_others: float


def parts_of(runs: Sequence[Sequence[ChosenGroup]], number: int) -> list[Part]:
    """Divide every run into `number` parts of equally many steps and summarize each part over the runs."""
    cells: list[list[ChosenGroup]] = [[] for _ in range(number)]
    longest = 0
    for groups in runs:
        steps = 1 + max(group.step for group in groups)
        longest = max(longest, steps)
        for group in groups:
            if group.scored and group.outcome != "carried":  # a carried group has a second line when it trains
                cells[group.step * number // steps].append(group)
    return [_part(groups, longest * (i + 1) // number, len(runs)) for i, groups in enumerate(cells)]


def _part(groups: Sequence[ChosenGroup], steps: int, runs: int) -> Part:
    ours = [group for group in groups if group.origin == Origin.GENERATED]
    others = [group for group in groups if group.origin != Origin.GENERATED]
    return Part(
        steps=steps,
        generated=len(ours) / runs,
        predicted=_mean([group.predicted for group in ours if group.predicted is not None]),
        observed=_mean([group.pass_rate for group in ours]),
        mixed=_mean([not group.degenerate for group in ours]),
        mixed_others=_mean([not group.degenerate for group in others]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def table(arm: str, parts: Sequence[Part], runs: int) -> TextTable:
    """One row per part."""
    rows = []
    for part in parts:
        shares = (part.predicted, part.observed, part.mixed, part.mixed_others)
        rows.append((f"until {part.steps}", f"{part.generated:.0f}", *(share_text(share) for share in shares)))
    columns = ("steps", "generated groups per run", "predicted", "observed", "mixed", "mixed, other groups")
    caption = (
        f"{runs} runs. Predicted and observed: mean pass rate of the generated problems. Mixed: some passed, some not."
    )
    return TextTable(arm, columns, tuple(rows), caption)


def share_text(share: float) -> str:
    return NONE if math.isnan(share) else f"{share:.3f}"


@script
def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("comparison", type=Path, help="a comparison's folder")
    parser.add_argument("--arms", nargs="+", required=True, help="arms with generated problems")
    parser.add_argument("--parts", type=int, default=8, help="into how many parts a run is divided (8)")
    parser.add_argument("--out", type=Path, help="a Markdown file for the tables")
    options = parser.parse_args()
    require(options.parts >= 1, "--parts", options.parts, "give at least 1")
    tables = []
    for arm in options.arms:
        paths = sorted((options.comparison / arm).glob(f"seed-*/{LOG}"))
        runs = [groups for path in paths if (groups := read_jsonl(path, ChosenGroup)[0])]
        if not runs:
            raise UserError(f"{options.comparison / arm}: no seed has a {LOG}; give a comparison and its arms")
        tables.append(table(arm, parts_of(runs, options.parts), len(runs)))
    text = "\n".join(each.markdown() for each in tables)
    if options.out:
        write_text(options.out, text)
    print(text)


if __name__ == "__main__":
    main()
