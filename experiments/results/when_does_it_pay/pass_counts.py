"""Draws how many rollouts of a group pass, under plain GRPO and under a controller:

    python experiments/results/when_does_it_pay/pass_counts.py [runs/staleness "plain GRPO=waiting" frontier=frontier]

With a comparison and two of its arms under their titles, the counts are first written to pass_counts.json.
"""

import sys
from collections import Counter
from pathlib import Path

import msgspec
from matplotlib import rc_context

from halfway.curriculum.support.atomic import write_text
from halfway.experiments.report.figures.style import MUTED, PALETTE, STYLE, grid
from halfway.experiments.report.records import load_run_records
from halfway.experiments.scripts import script, script_parser

FOLDER = Path(__file__).parent
SIZE = 8


@script
def main() -> int:
    """Count if there is something to count, then draw."""
    parser = script_parser(__doc__)
    parser.add_argument("comparison", nargs="?", type=Path)
    parser.add_argument("arms", nargs="*", metavar="TITLE=ARM")
    arguments = parser.parse_args()
    numbers = FOLDER / "pass_counts.json"
    if arguments.comparison:
        arms = dict(word.split("=", 1) for word in arguments.arms)
        counts = {title: counted(arguments.comparison / arm) for title, arm in arms.items()}
        write_text(numbers, msgspec.json.encode(counts).decode() + "\n")
    draw(msgspec.json.decode(numbers.read_bytes()))
    return 0


def counted(arm: Path) -> list[int]:
    """Fresh groups of `SIZE` with 0, 1, ... passes, in all finished runs of an arm."""
    runs = [load_run_records(path.parent) for path in arm.glob("seed-*/status.json")]
    groups = [group for run in runs if run.finished for group in run.groups if group.fresh and group.n == SIZE]
    counts = Counter(group.k for group in groups)
    return [counts[k] for k in range(SIZE + 1)]


def draw(counts: dict[str, list[int]]) -> None:
    """A bar for each number of passes; those that carry no gradient are grey."""
    with rc_context(STYLE):
        figure, axes = grid(1, 2, height=2.6, sharey=True)
        for ax, (title, counts_K), color in zip(axes[0], counts.items(), PALETTE, strict=False):
            total = sum(counts_K)
            zero_variance = (counts_K[0] + counts_K[-1]) / total
            colors = [MUTED if k in (0, SIZE) else color for k in range(SIZE + 1)]
            ax.bar(range(SIZE + 1), [count / total for count in counts_K], color=colors)
            ax.set_title(f"{title}: {zero_variance:.0%} of groups carry no gradient")
            ax.set_xlabel(f"rollouts of {SIZE} that pass")
        axes[0][0].set_ylabel("share of groups")
        figure.savefig(FOLDER / "pass_counts.png", dpi=100, format="png")


if __name__ == "__main__":
    sys.exit(main())
