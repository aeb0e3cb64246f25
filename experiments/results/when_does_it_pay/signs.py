"""Counts the signs by which kinds of data are told apart, in the runs of plain GRPO and of an arm with prefixes:

    python experiments/results/when_does_it_pay/signs.py hard=runs/verdict_hard long=runs/verdict_long

Several folders of one kind are counted together. Writes signs.json; `--page FOLDER` is for another page than this.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from halfway.curriculum.decision_log import GroupRecord
from halfway.curriculum.support.atomic import write_json
from halfway.experiments.report.records import load_run_records
from halfway.experiments.scripts import script, script_parser

FOLDER = Path(__file__).parent
FIRST, VISITED, PREFIXED = 320, 960, 640
"""Groups at the beginning of a run: for shares of plain GRPO's, for repeated visits, and for those after prefixes."""


@script
def main() -> int:
    """Count and write."""
    parser = script_parser(__doc__)
    parser.add_argument("kinds", nargs="+", metavar="KIND=FOLDER")
    parser.add_argument("--prefixes", default="prefix_frontier_epochs", help="name of the arm with prefixes")
    parser.add_argument("--page", type=Path, default=FOLDER, help="folder to write to")
    options = parser.parse_args()
    folders = defaultdict(list)
    for word in options.kinds:
        kind, _, folder = word.partition("=")
        folders[kind].append(Path(folder))
    counted = {
        kind: signs(list(runs(found, "grpo")), list(runs(found, options.prefixes))) for kind, found in folders.items()
    }
    write_json(options.page / "signs.json", counted)
    return 0


def runs(folders: Iterable[Path], arm: str) -> Iterator[Sequence[GroupRecord]]:
    """The scored groups of each finished run of an arm."""
    for steps in sorted(path for folder in folders for path in folder.glob(f"{arm}/seed-*/steps.jsonl")):
        run = load_run_records(steps.parent)
        if run.finished:
            yield [group for group in run.groups if group.scored]


def signs(plain: Sequence[Sequence[GroupRecord]], prefixed: Sequence[Sequence[GroupRecord]]) -> dict[str, list[float]]:
    """Each sign with the number of groups of which it is the share; 0 of 0 where there is none."""
    first = [group for groups in plain for group in groups[:FIRST]]
    begun = [group for groups in prefixed for group in groups[:PREFIXED] if group.origin == "prefix"]
    return {
        "zero_variance": share(group.zero_variance for group in first),
        "failed": share(group.k == 0 for group in first),
        "mixed_again": share(again for groups in plain for again in lasting(groups[:VISITED])),
        "zero_variance_after_failure": share(group.zero_variance for group in begun if not group.parent_success),
        "zero_variance_after_success": share(group.zero_variance for group in begun if group.parent_success),
        "near_half": share(3 / 8 <= group.pass_rate <= 5 / 8 for group in first if not group.zero_variance),
    }


def lasting(groups: Iterable[GroupRecord]) -> Iterator[bool]:
    """For each visit of a problem whose visit before was mixed, whether it is mixed, too."""
    mixed: dict[str, bool] = {}
    for group in groups:
        if mixed.get(group.problem):
            yield not group.zero_variance
        mixed[group.problem] = not group.zero_variance


def share(flags: Iterable[bool]) -> list[float]:
    found = list(flags)
    return [round(sum(found) / max(1, len(found)), 4), len(found)]


if __name__ == "__main__":
    sys.exit(main())
