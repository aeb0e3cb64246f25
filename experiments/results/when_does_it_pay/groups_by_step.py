"""Draws where the rollouts of some arms went and what they bought: kinds of groups by step, and held-out pass@1.

    halfway compare experiments/recipes/compare/front_page.yaml --arms grpo_epochs,frontier_epochs
    python experiments/results/when_does_it_pay/groups_by_step.py [COMPARISON TITLE=ARM ...]

The front page has runs/front_page with "plain GRPO=grpo_epochs" and frontier=frontier_epochs. With a comparison and its
arms under their titles, the numbers are first written to groups_by_step.json.
"""

import sys
from pathlib import Path

import msgspec
import numpy as np
from matplotlib import rc_context

from halfway.curriculum.support.atomic import write_text
from halfway.experiments.report.figures.colors import MUTED, PALETTE
from halfway.experiments.report.figures.style import STYLE, grid, thousands
from halfway.experiments.report.records import load_run_records
from halfway.experiments.scripts import script, script_parser

FOLDER = Path(__file__).parent
KINDS = ("all failed", "mixed", "all passed")
FAILED, PASSED = MUTED, "#a9b2bc"
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
        measured = {title: measure(arguments.comparison / arm) for title, arm in arms.items()}
        write_text(numbers, msgspec.json.encode(measured).decode() + "\n")
    draw(msgspec.json.decode(numbers.read_bytes()))
    return 0


def measure(arm: Path) -> dict[str, list[list[float]]]:
    """Of all finished runs of an arm: for each kind of group its share by step, and rollouts and pass@1 of each run."""
    runs = [load_run_records(path.parent) for path in sorted(arm.glob("seed-*/status.json"))]
    runs = [run for run in runs if run.finished]
    groups = [group for run in runs for group in run.groups if group.fresh]
    counts = np.zeros((len(KINDS), max(group.step for group in groups) + 1))
    for group in groups:
        counts[0 if group.k == 0 else 2 if group.k == group.n else 1, group.step] += 1
    counts = counts[:, counts.sum(0) > 0]
    return {
        "shares": np.round(counts / counts.sum(0), 4).tolist(),
        "rollouts": [[float(each.rollouts) for each in run.evaluations] for run in runs],
        "pass@1": [[round(each.pass_at_1, 4) for each in run.evaluations] for run in runs],
    }


def draw(arms: dict[str, dict[str, list[list[float]]]]) -> None:
    """A panel of kinds for each arm, in which what carries a gradient is in colour, and one of pass@1."""
    with rc_context(STYLE):
        figure, [axes] = grid(1, len(arms) + 1, height=2.9)
        for ax, (title, found), color in zip(axes, arms.items(), PALETTE, strict=False):
            smooth = np.array([running_mean(row) for row in found["shares"]])
            ax.stackplot(
                np.linspace(0, 100, smooth.shape[1]), 100 * smooth, colors=(FAILED, color, PASSED), edgecolor="white"
            )
            places = np.cumsum(smooth, axis=0) - smooth / 2
            for kind, place, ink in zip(KINDS, places, ("white", "white", "black"), strict=True):
                ax.text(50, 100 * place[len(place) // 2], kind, color=ink, ha="center", va="center", weight="bold")
            ax.set_title(f"{title}: {100 * np.mean(found['shares'][1]):.0f} % of groups mixed")
            ax.set_xticks(range(0, 100, 20))  # the site shows the panels apart, and a 100 would reach into the next
            ax.set_xlabel("% of the rollouts spent")
            ax.set_ylabel("% of groups" if ax is axes[0] else "")
            ax.margins(0)
            for rollouts, scores in zip(found["rollouts"], found["pass@1"], strict=True):
                axes[-1].plot(rollouts, scores, color=color, alpha=0.35, linewidth=1)
            mean = np.mean(found["pass@1"], axis=0)
            axes[-1].plot(found["rollouts"][0], mean, color=color, linewidth=2.4)
            axes[-1].annotate(title, (found["rollouts"][0][-1], mean[-1]), color=color, ha="right", va="bottom")
        thousands(axes[-1])
        axes[-1].set_title("held-out pass@1 along rollouts")
        figure.savefig(FOLDER / "groups_by_step.png", dpi=100, format="png")


def running_mean(values: list[float]) -> np.ndarray:
    """A centred mean over `WINDOW` steps, over fewer at the ends."""
    ones = np.ones(min(WINDOW, len(values)))
    return np.convolve(values, ones, "same") / np.convolve(np.ones(len(values)), ones, "same")


if __name__ == "__main__":
    sys.exit(main())
