"""Makes the page "When does it pay?" and its figure from the summaries of several comparisons, losses included.

Each comparison is a regime: the same arms on problems of a different difficulty. For each regime and each measure of
cost, the page names the arm that reaches the baseline's final score at the lowest cost, and by how much it is cheaper;
only arms that are clearly cheaper after Holm's adjustment count. Arms that have help which the others lack, such as
reference solutions, are listed separately.

    python -m halfway.experiments.studies.when_it_pays experiments/results/contest

The command reads page.json in that folder (`regimes`: for each name, its folder and a description; `help`: for each
kind of help, the arms that have it; `beside`: arms of other pages that have help of another kind, for the table of the
cheapest), and writes README.md and when_it_pays.png beside it. With `--publish hard=runs/contest_hard`, the results of
a finished comparison are first copied to a regime's folder. With `--readme README.md`, the table between the two
comments of `MARKS` in that file is brought up to date.
"""

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.console import Console
from rich.markdown import Markdown

from halfway.curriculum.support.atomic import replacing, write_text
from halfway.curriculum.support.errors import UserError
from halfway.experiments.report.analysis.matched import Matched
from halfway.experiments.report.analysis.reach import Reach, Spent
from halfway.experiments.report.figures.forest import ROW_INCHES, ratios
from halfway.experiments.report.figures.style import INK, MUTED, PALETTE, STYLE, grid, legend_above
from halfway.experiments.report.summary import Summary
from halfway.experiments.report.tables.costs import SIGNS, left_out_text
from halfway.experiments.report.tables.text import TextTable, interval, number, percent
from halfway.experiments.scripts import script, script_parser

MEASURES = {"rollouts": "rollouts", "tokens": "generated tokens", "cost_0.25": "cost, rho .25", "cost_1": "cost, rho 1"}
FILES = ("summary.json", "summary.md", "tuning.json", "provenance.json")
FIGURES = ("learning_curves.png", "cost_to_reach.png", "strata_curves.png")
"""The files of a comparison that are published; those that do not exist are left out."""

MARKS = (
    "<!-- when it pays: begin, written by halfway.experiments.studies.when_it_pays -->",
    "<!-- when it pays: end -->",
)

ALONE = "experience"
"""The kind of the arms without help."""


@dataclass(frozen=True)
class Regime:
    """One comparison.

    Attributes:
        words: what its problems are like, in words.
        summary: the comparison's results.
    """

    name: str
    words: str
    summary: Summary

    @property
    def baseline(self) -> str:
        return self.summary.design.baseline

    @property
    def others(self) -> list[str]:
        return [arm.arm for arm in self.summary.arms if arm.arm != self.baseline]

    @property
    def goal(self) -> Reach:
        """What every arm spent to reach the baseline's final score."""
        return next(reach for reach in self.summary.reach if reach.kind == "baseline")

    @property
    def headline(self) -> Matched:
        return next(matched for matched in self.summary.matched if matched.headline)

    def spent(self, arm: str, measure: str) -> Spent:
        return next(row for row in self.goal.rows if row.arm == arm).spent[measure]


@dataclass(frozen=True)
class Beside:
    """Arms of another page, which have help that this page's arms lack; their baseline is the one they were run with.

    Attributes:
        words: what help they have.
        arms: their names.
        regimes: the other page's regimes by name; those that this page lacks as well are not shown.
    """

    words: str
    arms: tuple[str, ...]
    regimes: Mapping[str, Regime]


@dataclass(frozen=True)
class Page:
    """What is shown.

    Attributes:
        help: for each kind of help, such as "references", the names of the arms that have it.
        beside: arms of other pages.
    """

    regimes: Sequence[Regime]
    help: Mapping[str, frozenset[str]] = field(default_factory=dict)
    beside: Sequence[Beside] = ()

    def kind(self, arm: str) -> str:
        """The kind of help that an arm has; `ALONE` if none."""
        return next((kind for kind, arms in self.help.items() if arm in arms), ALONE)

    @property
    def baseline(self) -> str:
        return self.regimes[0].baseline


class BesideFile(msgspec.Struct, forbid_unknown_fields=True):
    """Arms of another page, as page.json names them: see `Beside`."""

    page: str
    words: str
    arms: tuple[str, ...]


class PageFile(msgspec.Struct, forbid_unknown_fields=True):
    """The contents of page.json: see `Page`. A regime is given by its folder and its description."""

    regimes: dict[str, tuple[str, str]]
    help: dict[str, tuple[str, ...]] = {}
    beside: tuple[BesideFile, ...] = ()


def read_page(folder: Path) -> Page:
    """Read what page.json names.

    Raises:
        UserError: if a page.json or a summary cannot be read, or an arm that is named is in no summary.
    """
    try:
        page = msgspec.json.decode((folder / "page.json").read_bytes(), type=PageFile)
        regimes = [
            Regime(name, words, msgspec.json.decode((folder / place / "summary.json").read_bytes(), type=Summary))
            for name, (place, words) in page.regimes.items()
        ]
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(f"{folder}: {error}; give a folder with page.json and the summaries that it names") from None
    beside = []
    for kind in page.beside:
        others = {regime.name: regime for regime in read_page(folder / kind.page).regimes}
        _check_names(folder, f"beside {kind.words}", kind.arms, others.values())
        beside.append(Beside(kind.words, kind.arms, others))
    for words, arms in page.help.items():
        _check_names(folder, f"help {words}", arms, regimes)
    return Page(regimes, {words: frozenset(arms) for words, arms in page.help.items()}, beside)


def _check_names(folder: Path, place: str, arms: Sequence[str], regimes: Iterable[Regime]) -> None:
    known = {arm for regime in regimes for arm in regime.others}
    if missing := [arm for arm in arms if arm not in known]:
        names, choices = ", ".join(missing), ", ".join(sorted(known))
        raise UserError(f"{folder / 'page.json'}: {place}: no summary has {names}; give some of {choices}")


def cheapest(regime: Regime, measure: str, arms: Sequence[str]) -> tuple[str, Spent] | None:
    """The arm with the lowest ratio to the baseline's cost, among those that are clearly cheaper; None if none is."""
    found = [(arm, regime.spent(arm, measure)) for arm in arms]
    clear = [(arm, spent) for arm, spent in found if spent.clear and spent.ratio and spent.ratio.value < 1]
    return min(clear, key=lambda pair: pair[1].ratio.value if pair[1].ratio else 1.0, default=None)


def cheapest_table(page: Page) -> TextTable:
    """The cheapest arm by each measure of cost, one row per regime and kind of help.

    If any arms have help, each regime has a row for its arms without and one for each kind that some of them have.
    """
    rows = []
    for regime in page.regimes:
        for kind in (ALONE, *page.help):
            words = f", {_help_text(kind)}" if page.help else ""
            if arms := [arm for arm in regime.others if page.kind(arm) == kind]:
                rows.append((regime.name + words, *_cheapest_cells(regime, arms)))
        for beside in page.beside:
            if (other := beside.regimes.get(regime.name)) is not None:
                arms = [arm for arm in other.others if arm in beside.arms]
                rows.append((f"{regime.name}, {beside.words}", *_cheapest_cells(other, arms)))
    baseline = page.baseline
    return TextTable(
        f"The cheapest way to {baseline}'s final score",
        ("regime", *MEASURES.values()),
        tuple(rows),
        f"Times what {baseline} spent, at its own tuned learning rate, until its end; geometric means over seeds with "
        f"95 % intervals. Only arms that are clearly cheaper after Holm's adjustment over all arms are named; where "
        f"none is, it is {baseline}. Cost: generated tokens + rho x trained tokens; the sources' hours imply rho from "
        f".25 to 1. ≤: some run of the baseline never had its own rising curve reach its end."
        f"{_beside_text(page)}{_left_out(page.regimes)}",
    )


def _help_text(kind: str) -> str:
    return kind if kind == ALONE else f"with {kind}"


def _beside_text(page: Page) -> str:
    """Where rows of other pages come from, to follow a caption."""
    words = list(dict.fromkeys(kind.words for kind in page.beside))
    return f" Rows {', '.join(words)}: from another comparison, relative to its own {page.baseline}." if words else ""


def _left_out(regimes: Sequence[Regime]) -> str:
    """Which seeds the ratios of a regime leave out, to follow a caption."""
    found = ((regime.name, left_out_text(regime.goal)) for regime in regimes)
    return "".join(f" {name}: {text}" for name, text in found if text)


def _cheapest_cells(regime: Regime, arms: Sequence[str]) -> list[str]:
    return [_cheapest_cell(regime, measure, arms) for measure in MEASURES]


def _cheapest_cell(regime: Regime, measure: str, arms: Sequence[str]) -> str:
    found = cheapest(regime, measure, arms)
    if found is None:
        return regime.baseline
    arm, spent = found
    return f"{arm} {SIGNS[spent.ratio_bound]}x{interval(spent.ratio, 2)}"


def arms_table(page: Page) -> TextTable:
    """Each arm's gain at equal rollouts, and what it spends to reach the baseline's final score, one row per arm."""
    regimes = page.regimes
    arms = list(dict.fromkeys(arm for regime in regimes for arm in regime.others))
    columns = ["arm"]
    for regime in regimes:
        columns += [f"{regime.name}: pass@1", *(f"{regime.name}: {MEASURES[m]}" for m in ("tokens", "cost_1"))]
    rows = []
    for arm in arms:
        cells = [arm if page.kind(arm) == ALONE else f"{arm} ({page.kind(arm)})"]
        for regime in regimes:
            cells += _arm_cells(regime, arm) if arm in regime.others else ["-"] * 3
        rows.append(tuple(cells))
    return TextTable(
        "Every arm beside the baseline",
        tuple(columns),
        tuple(rows),
        "pass@1: held-out difference at equal rollouts, with its 95 % interval over seeds and problems. Then what was "
        "spent until the baseline's final score, times what the baseline spent. *: clear after Holm's adjustment over "
        f"the arms. ≥: some run never got there, and counts with all that it spent.{_left_out(regimes)}",
    )


def _arm_cells(regime: Regime, arm: str) -> list[str]:
    found = [row for row in regime.headline.contrasts if (row.arm, row.reference) == (arm, regime.baseline)]
    gain = interval(found[0].difference, 3, signed=True) + ("*" if found[0].clear else "") if found else "-"
    return [gain, *(_ratio_cell(regime.spent(arm, measure)) for measure in ("tokens", "cost_1"))]


def _ratio_cell(spent: Spent) -> str:
    if spent.ratio is None:
        return "not reached" if spent.bound and not spent.at_start else "-"
    return f"{SIGNS[spent.ratio_bound]}x{interval(spent.ratio, 2)}" + ("*" if spent.clear else "")


def regimes_table(page: Page) -> TextTable:
    """Numbers by which readers recognise a regime in their own logs, one row per regime."""
    rows = []
    for regime in page.regimes:
        arm = next(arm for arm in regime.summary.arms if arm.arm == regime.baseline)
        rows.append(
            (
                regime.name,
                regime.words,
                f"{number(arm.before)} -> {number(arm.after)}",
                percent(arm.wasted),
                percent(arm.band_fresh),
                str(len(arm.seeds)),
                f"{sum(pair.clear for pair in regime.headline.pairs)} of {len(regime.headline.pairs)}",
            )
        )
    return TextTable(
        f"The regimes, as {page.baseline} sees them",
        (
            "regime",
            "problems",
            "pass@1",
            "rollouts in groups without signal",
            "groups at 3/8..5/8",
            "seeds",
            "pairs told apart",
        ),
        tuple(rows),
        "Shares over the whole run. Pairs of arms whose held-out pass@1 differs clearly at equal rollouts, after "
        "Holm's adjustment over all pairs.",
    )


def page_text(page: Page, notes: str) -> str:
    """The page in Markdown, ending with `notes`."""
    tables = (regimes_table(page), cheapest_table(page), arms_table(page))
    shown, *others = (table.markdown() for table in tables)
    return "\n".join(["# When does it pay?", "", shown, "![when it pays](when_it_pays.png)", "", *others, notes])


def first_screen(page: Page) -> str:
    """The front page's block in Markdown: the cheapest arms, the numbers of seeds, and the arms that clearly lose."""
    table, regimes = cheapest_table(page), page.regimes
    lines = [table.columns, ("---",) * len(table.columns), *table.rows]
    seeds = ", ".join(f"{_seeds_text(regime)} {regime.name}" for regime in regimes)
    losses: dict[str, list[str]] = {}
    for regime in regimes:
        for row in regime.headline.contrasts:
            if row.reference == regime.baseline and row.clear and row.difference.value < 0:
                by = f"{-row.difference.value:.3f}".removeprefix("0")
                losses.setdefault(row.arm, []).append(f"by {by} ({regime.name})")
    told = "; ".join(f"`{arm}` {', '.join(found)}" for arm, found in losses.items()) or "none"
    return "\n".join(
        [
            *(f"| {' | '.join(line)} |" for line in lines),
            "",
            f"Seeds of each arm: {seeds}. Clearly below {page.baseline} in pass@1 at equal rollouts: {told}.",
        ]
    )


def _seeds_text(regime: Regime) -> str:
    numbers = sorted(len(arm.seeds) for arm in regime.summary.arms)
    return f"{numbers[0]}" if numbers[0] == numbers[-1] else f"{numbers[0]} to {numbers[-1]}"


def with_first_screen(text: str, block: str) -> str:
    """The text with `block` between the marks.

    Raises:
        UserError: unless the text contains each mark exactly once, in order.
    """
    begin, end = MARKS
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    if text.count(begin) != 1 or text.count(end) != 1 or end in before:
        raise UserError(f"the text must contain once each, in this order: {begin} and {end}")
    return f"{before}{begin}\n\n{block}\n\n{end}{after}"


def publish(folder: Path, place: str, comparison: Path) -> None:
    """Copy the published files of a finished comparison to a regime's folder.

    Args:
        folder: the page's folder.
        place: the regime's folder, relative to it.

    Raises:
        UserError: if the comparison has no report, a report older than its runs, or unfinished runs.
    """
    report = comparison / "summary.json"
    again = f"run `halfway report {comparison}` first"
    if not report.exists():
        raise UserError(f"{comparison}: no summary.json here; {again}")
    written = report.stat().st_mtime
    if any(path.stat().st_mtime > written for path in comparison.glob("*/seed-*/evaluations.jsonl")):
        raise UserError(f"{report}: older than the runs; {again}")
    summary = msgspec.json.decode(report.read_bytes(), type=Summary)
    if unfinished := [arm.arm for arm in summary.arms if arm.unfinished]:
        raise UserError(f"{comparison}: runs of {', '.join(unfinished)} have not finished; resume the comparison")
    sources = [*(comparison / name for name in FILES), *(comparison / "figures" / name for name in FIGURES)]
    (folder / place).mkdir(parents=True, exist_ok=True)
    for source in sources:
        if source.exists():
            with replacing(folder / place / source.name) as temporary:
                shutil.copyfile(source, temporary)


def figure(page: Page) -> Figure:
    """The cost of every arm as a multiple of the baseline's, in one panel per regime and measure of cost."""
    regimes = page.regimes
    order = list(dict.fromkeys(arm for regime in sorted(regimes, key=_size, reverse=True) for arm in regime.others))
    heights = [1.0 + len(regime.others) for regime in regimes]
    shown = [kind for kind in (ALONE, *page.help) if any(page.kind(arm) == kind for arm in order)]
    kinds = dict(zip(shown, PALETTE, strict=False))
    drawn, axes = grid(
        len(regimes), len(MEASURES), ROW_INCHES * sum(heights) / len(regimes) + 0.5, "row", "all", heights
    )
    for regime, line in zip(regimes, axes, strict=True):
        arms = sorted(regime.others, key=order.index)
        colors = [kinds[page.kind(arm)] for arm in arms]
        for (measure, label), ax in zip(MEASURES.items(), line, strict=True):
            ratios(ax, [regime.spent(arm, measure) for arm in arms], colors)
            if regime is regimes[0]:
                ax.set_title(label)
        line[0].set_ylabel(regime.name)
        line[0].set_yticks(range(len(arms)), arms, color=INK)
        line[0].set_ylim(len(arms) - 0.4, -0.6)
    ticks = (0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0)
    axes[0][0].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0][0].minorticks_off()
    for ax in axes[-1]:
        ax.set_xlabel(f"times the cost of {page.baseline}")
    legend_above(drawn, handles=_key(page.baseline, kinds if page.help else {}))
    return drawn


def _size(regime: Regime) -> int:
    return len(regime.others)


def _key(baseline: str, kinds: Mapping[str, str]) -> list[Line2D]:
    """The handles of a legend that explains the colours, given by kind of help, and the markers."""
    labels = {kind: "from experience alone" if kind == ALONE else _help_text(kind) for kind in kinds}
    lines = [Line2D([], [], color=color, linewidth=2.2, label=labels[kind]) for kind, color in kinds.items()]
    markers = [
        Line2D([], [], color=MUTED, linestyle="", marker=marker, markersize=6, markerfacecolor=inside, label=label)
        for marker, inside, label in (
            ("o", MUTED, "clear after Holm's adjustment"),
            ("o", "white", "not clear"),
            (">", "white", f"at least: some run fell short of {baseline}'s score"),
        )
    ]
    return [*lines, *markers]


def write_page(folder: Path) -> str:
    """Write README.md and when_it_pays.png, and return the page; `notes.md` in the folder, if any, ends the page."""
    page = read_page(folder)
    notes = folder / "notes.md"
    text = page_text(page, notes.read_text() if notes.exists() else "")
    write_text(folder / "README.md", text)
    with rc_context(STYLE), replacing(folder / "when_it_pays.png") as temporary:
        figure(page).savefig(temporary, dpi=110, format="png")
    return text


@script
def main() -> int:
    """Publish comparisons if asked to, write the page, and print it."""
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--publish", nargs="+", default=[], metavar="PLACE=COMPARISON", help="copied there first")
    parser.add_argument("--readme", type=Path, help="a text with both marks, whose table is brought up to date")
    arguments = parser.parse_args()
    for each in arguments.publish:
        place, _, comparison = each.partition("=")
        publish(arguments.folder, place, Path(comparison))
    text = write_page(arguments.folder)
    if arguments.readme is not None:
        block = first_screen(read_page(arguments.folder))
        write_text(arguments.readme, with_first_screen(arguments.readme.read_text(), block))
    Console().print(Markdown(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
