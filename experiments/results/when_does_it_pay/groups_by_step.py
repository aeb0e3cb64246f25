"""Draws the share of all-failed, mixed and all-passed groups by step, for some arms of a comparison:

    python experiments/results/when_does_it_pay/groups_by_step.py [runs/front "plain GRPO=grpo_epochs" frontier=frontier]

With a comparison and its arms under their titles, the shares are first written to groups_by_step.json.
"""

import sys
from pathlib import Path

import msgspec
import numpy as np
from matplotlib import rc_context

from halfway.curriculum.support.atomic import write_text
from halfway.experiments.report.figures.style import MUTED, PALETTE, STYLE, grid
from halfway.experiments.report.records import load_run_records
from halfway.experiments.scripts import script, script_parser

FOLDER = Path(__file__).parent
KINDS = ("all failed", "mixed", "all passed")
COLORS = (MUTED, PALETTE[1], "#c9ced6")
WINDOW = 5
"""Steps over which a share is averaged, for the eye."""


@script
def main() -> int:
    """Count if there is something to count, then draw."""
    parser = script_parser(__doc__)
    parser.add_argument("comparison", nargs="?", type=Path)
    parser.add_argument("arms", nargs="*", metavar="TITLE=ARM")
    arguments = parser.parse_args()
    numbers = FOLDER / "groups_by_step.json"
    if arguments.comparison:
        arms = dict(word.split("=", 1) for word in arguments.arms)
        shares = {title: measure_shares(arguments.comparison / arm) for title, arm in arms.items()}
        write_text(numbers, msgspec.json.encode(shares).decode() + "\n")
    draw(msgspec.json.decode(numbers.read_bytes()))
    return 0


def measure_shares(arm: Path) -> list[list[float]]:
    """For each kind of group its share by step, over the fresh groups of all finished runs of an arm."""
    runs = [load_run_records(path.parent) for path in sorted(arm.glob("seed-*/status.json"))]
    groups = [group for run in runs if run.finished for group in run.groups if group.fresh]
    counts = np.zeros((len(KINDS), max(group.step for group in groups) + 1))
    for group in groups:
        counts[0 if group.k == 0 else 2 if group.k == group.n else 1, group.step] += 1
    counts = counts[:, counts.sum(0) > 0]
    return np.round(counts / counts.sum(0), 4).tolist()


def draw(shares: dict[str, list[list[float]]]) -> None:
    """One panel an arm; what carries a gradient is in colour."""
    with rc_context(STYLE):
        figure, axes = grid(1, len(shares), height=2.8, sharey=True)
        for ax, (title, share_KT) in zip(axes[0], shares.items(), strict=True):
            smooth = np.array([running_mean(row) for row in share_KT])
            progress = np.linspace(0, 100, smooth.shape[1])
            ax.stackplot(progress, 100 * smooth, colors=COLORS, labels=KINDS)
            mixed = 100 * float(np.mean(share_KT[1]))
            ax.set_title(f"{title}: {mixed:.0f} % of the groups carry a gradient")
            ax.set_xlabel("% of the rollouts spent")
            ax.margins(0)
        axes[0][0].set_ylabel("% of groups")
        axes[0][-1].legend(loc="lower right", framealpha=0.9)
        figure.savefig(FOLDER / "groups_by_step.png", dpi=100, format="png")


def running_mean(values: list[float]) -> np.ndarray:
    """A centred mean over `WINDOW` steps, over fewer at the ends."""
    ones = np.ones(min(WINDOW, len(values)))
    return np.convolve(values, ones, "same") / np.convolve(np.ones(len(values)), ones, "same")


if __name__ == "__main__":
    sys.exit(main())
