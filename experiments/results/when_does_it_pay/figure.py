"""Draws final scores beside plain GRPO's at equal rollouts: python experiments/results/when_does_it_pay/figure.py"""

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from halfway.experiments.pages.contests import NOTHING, Contest, read_contest
from halfway.experiments.report.figures.style import INK, MUTED, PALETTE, STYLE, grid, legend_above

FOLDER = Path(__file__).parent
SHOWN = ("contest", "contest_easier", "contest_probe")
REGIMES = ("easy", "middle", "hard")
ROW_INCHES = 0.24


def main() -> None:
    contests = [read_contest(FOLDER / "contests" / f"{name}.json") for name in SHOWN]
    told = {name: arm.told for contest in contests for r in contest.regimes.values() for name, arm in r.others.items()}
    kinds = sorted(set(told.values()))
    arms = sorted(told, key=lambda name: (kinds.index(told[name]), name))
    colors = dict(zip(kinds, PALETTE, strict=False))
    with rc_context(STYLE):
        figure, axes = grid(1, len(REGIMES), height=1.2 + ROW_INCHES * len(arms), sharey=True, sharex=True)
        for regime, ax in zip(REGIMES, axes[0], strict=True):
            for y, name in enumerate(arms):
                for contest in contests:
                    draw(ax, y, contest, regime, name, colors[told[name]])
            ax.axvline(0, color=MUTED, linewidth=0.9)
            ax.set_title(regime)
            ax.set_xlabel("pass@1 minus plain GRPO's")
            ax.grid(axis="y", visible=False)
        axes[0][0].set_yticks(range(len(arms)), arms, color=INK)
        axes[0][0].set_ylim(len(arms) - 0.4, -0.6)
        handles = [Line2D([], [], color=colors[kind], linewidth=2.2, label=kind or NOTHING) for kind in kinds]
        legend_above(figure, handles=handles)
        figure.savefig(FOLDER / "equal_rollouts.png", dpi=110, format="png")


def draw(ax: Axes, y: float, contest: Contest, regime: str, name: str, color: str) -> None:
    arm = contest.regimes[regime].arms.get(name) if regime in contest.regimes else None
    gain = arm.gains.get("rollouts") if arm else None
    if gain is None:
        return
    ends = [gain.value if end is None else end for end in (gain.low, gain.high)]
    ax.plot(ends, [y, y], color=color, linewidth=2.2, solid_capstyle="butt")
    ax.plot([gain.value], [y], "o", color=color, markersize=6, markerfacecolor=color if gain.clear else "white")


if __name__ == "__main__":
    main()
