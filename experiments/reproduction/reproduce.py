"""Carries out `halfway reproduce`: lists papers and rows, runs a row's arms, and judges them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.console import Console

from halfway.curriculum import UserError
from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.atomic import write_json
from halfway.experiments.comparing.compare import prepare_comparison, run_comparison
from halfway.experiments.comparing.processes import Start
from halfway.experiments.config import yaml_files
from halfway.experiments.config.comparison import ComparisonConfig, limit_of, part_of, with_arms
from halfway.experiments.config.loading import load_comparison_config, load_config, load_run_config
from halfway.experiments.config.paths import recipe
from halfway.experiments.propel.commands import run_stages
from halfway.experiments.propel.config import BASE, PropelConfig, load_study, prepare
from halfway.experiments.report.text_tables import TextTable
from halfway.experiments.reproduction.judging import Measured, committed_runs, ground_of, judge, read_measured
from halfway.experiments.reproduction.keep import finished_runs, merge_runs
from halfway.experiments.reproduction.paper_rows import Paper, Row, papers
from halfway.experiments.reproduction.run_curves import Curve
from halfway.experiments.running.runs import COMPARISON, CONFIG

QUICK = 0.1
LATE = "; the rule was written after the runs"


def papers_table() -> TextTable:
    """All papers, with the number of their rows by status."""
    rows = []
    for paper in papers():
        statuses = [found.status for found in read_measured(paper).values()]
        counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
        rows.append((paper.name, paper.title, counts))
    return TextTable(
        "Papers", ("paper", "title", "rows"), tuple(rows), "halfway reproduce PAPER lists rows", words=True
    )


def rows_table(paper: Paper) -> TextTable:
    """The rows of a paper, with their committed results."""
    found = read_measured(paper)
    rows = [
        (name, f"{row.claim} ({row.place})", found[name].status, minutes_text(paper, row))
        for name, row in paper.rows.items()
    ]
    caption = (
        f"halfway reproduce {paper.name}/ROW runs a row, --fresh without committed runs; minutes on two cores, "
        "+ those for its starting models"
    )
    return TextTable(paper.title, ("row", "claim", "status", "minutes"), tuple(rows), caption, words=True)


def minutes_text(paper: Paper, row: Row) -> str:
    """The minutes of all runs of a row on two cores, and of starting models, once for all rows.

    A dash if not measured, or if the row has no runs.
    """
    if not (row.runs and paper.minutes_a_run) or row.recipe:
        return "-"
    raw = yaml_files.read(recipe(paper.recipe_of(row)))
    seeds, needed = row.seeds or raw["seeds"], str(raw)
    runs = math.ceil(len(row.arms) * len(seeds) * paper.minutes_a_run / 2)
    models = math.ceil(sum(model.minutes for model in paper.starting_models if model.path in needed))
    return f"{runs} + {models}" if models else f"{runs}"


def describe(row: Row, found: Measured) -> list[str]:
    """Describe a row and its measurement, one line each."""
    lines = [f"claim: {row.claim} ({row.place})", f"published: {row.published}"]
    if not row.runs:
        return [*lines, f"status: {found.status}: {row.cannot or f'see {row.shown_by}'}"]
    ours = " (our choice)" if row.ours else ""
    ours += LATE if row.late else ""
    return [*lines, f"rule: {row.rule}{ours}", f"measured: {measured_text(row, found)}", f"status: {found.status}"]


def measured_text(row: Row, found: Measured, arms: bool = True) -> str:
    """Format a measured value with its interval, its number of runs and its power; `arms` names the runs' arms."""
    if not found.runs or not all(found.runs):
        return "nothing"
    numbers = ["infinite" if x is None else f"{x:.3g}" for x in (found.value, found.low, found.high)]
    value = "{} [{}, {}]".format(*numbers)
    if found.low is None and found.value is None:  # such as a multiple where a run's value is 0
        means = "" if None in (found.arm, found.against) else f"{found.arm:.3g} against {found.against:.3g}, "
        value = f"{means}no interval"
    runs = " and ".join(f"{number} runs of {arm}" for number, arm in zip(found.runs, row.arms, strict=True))
    if not arms:
        runs = f"{' + '.join(map(str, found.runs))} runs"
    power = "" if found.power is None else f", power {found.power:.2f}"
    return f"{value}, {runs}{power}" + (f", {found.left_out} runs without the measure" if found.left_out else "")


def comparison_of(paper: Paper, row: Row, share: float = 1.0) -> ComparisonConfig:
    """Make the comparison of a row's arms; rows of a paper with the same recipe share it.

    Args:
        share: share of the recipe's budget.
    """
    file = recipe(paper.recipe_of(row))
    config = with_arms(load_comparison_config(file, row.overrides), list(dict.fromkeys(row.arms)))
    budget = part_of(config.budget, share)
    name = f"reproduce/{file.stem}" + ("" if share == 1 else f"-{share:g}")
    return replace(config, name=name, budget=budget, seeds=row.seeds or config.seeds, contrasts=None, targets=())


def at_scale(paper: Paper, row: Row) -> ComparisonConfig | PropelConfig:
    """Configure a row's arms as in the paper: a comparison with one seed, or a study.

    Raises:
        UserError: if an arm cannot run at this scale.
    """
    scale, file = paper.scale, recipe(row.scale_recipe or paper.scale.recipe)
    if paper.study:
        return load_study(file, [*row.overrides, *row.scale_overrides, f"name=reproduce/{file.stem}"])
    for arm in row.arms:
        if arm in scale.lacks:
            raise UserError(f"reproduce --scale paper: arm {arm!r} cannot run there: {scale.lacks[arm]}")
    raw = {
        "name": f"reproduce/{file.stem}",
        "base": yaml_bases.merge({"base": str(file.absolute())}, yaml_files.parse_overrides(row.scale_overrides)),
        "seeds": [0],
        "budget": limit_of(load_run_config(file).budget),
        "arms": {arm: scale.arms[arm] for arm in dict.fromkeys(row.arms)},
    }
    config = load_config(raw)
    assert isinstance(config, ComparisonConfig), "it has arms"
    return config


def study_of(paper: Paper, row: Row, share: float = 1.0) -> PropelConfig:
    """Make the study of a row's arms, with a share of its corpus and training."""
    own = [*row.overrides, *([f"seeds={list(row.seeds)}"] if row.seeds else []), "output=runs/reproduce"]
    config = load_study(recipe(paper.recipe_of(row)), own)
    if share < 1:
        steps, texts = max(1, int(share * config.training.steps)), int(share * config.corpus.generations)
        small = [f"training.steps={steps}", f"corpus.generations={texts}", f"name={config.name}-{share:g}"]
        config = load_study(recipe(paper.recipe_of(row)), [*own, *small])
    return config


def make_models(paper: Paper, needed: str, console: Console) -> None:
    """Make a configuration's missing starting models."""
    from halfway.experiments.starting_models.warm_start import RECIPES, instance_of, warm_start

    for model in paper.starting_models:
        folder = Path(model.path)
        if model.path in needed and not folder.exists():
            console.print(f"making {folder}", highlight=False)
            folder.absolute().parent.mkdir(parents=True, exist_ok=True)
            warm_start(folder, instance_of(RECIPES[model.recipe], model.instance))


def run_row(
    paper: Paper,
    name: str,
    console: Console,
    jobs: int = 1,
    begin: Start | None = None,
    share: float = 1.0,
    paper_scale: bool = False,
    fresh: bool = False,
) -> tuple[Measured, Path]:
    """Train the missing runs of a row, judge it, and write ROW.json. Returns the judgement and the folder.

    Args:
        fresh: whether to train all runs, and to ignore committed ones.
        share: share of the budget; below 1 the judgement decides nothing, and says so.
        paper_scale: whether to run the paper's own configuration.

    Raises:
        UserError: if the row has no runs, or a run failed.
    """
    row = paper.rows[name]
    if not row.runs:
        raise UserError(f"reproduce {paper.name}/{name}: has no runs: {row.cannot or f'see {row.shown_by}'}")
    known = [] if fresh or paper_scale or share < 1 else committed_runs(paper, row)
    known = [curve for curve in known if curve.arm in row.arms]
    skip = {(one.arm, one.seed) for one in known}
    make: Callable[[Paper, Row, float], ComparisonConfig | PropelConfig] = study_of if paper.study else comparison_of
    config = at_scale(paper, row) if paper_scale else make(paper, row, share)
    folder, wanted = config.folder, {(arm, seed) for arm in row.arms for seed in config.seeds}
    _say_committed(skip, wanted, console)
    if not wanted <= skip:
        if not paper_scale:
            needed = " ".join(row.overrides) if paper.study else str(yaml_files.read(recipe(paper.recipe_of(row))))
            make_models(paper, needed, console)
        if isinstance(config, PropelConfig):
            prepare(config)
            for arm in (arm for arm in row.arms if arm != BASE):
                # The base generator's evaluation, if the row needs it, is part of that of any arm.
                also = [BASE] * (BASE in row.arms)
                seeds = tuple(seed for seed in config.seeds if not {(each, seed) for each in (arm, *also)} <= skip)
                if seeds:
                    run_stages(replace(config, seeds=seeds), "all", arm, console)
        else:
            whole = prepare_comparison(config, folder)
            failures = run_comparison(whole, folder, jobs, console, only=row.arms, begin=begin, skip=skip)
            if failures:
                raise UserError(f"{folder}: {len(failures)} runs failed; fix the cause and repeat the command")
    curves = merge_runs(known, _own_runs(folder, wanted))
    ground = ground_of(paper, row)
    found = judge(row, curves, ground._replace(instances=1) if paper_scale else ground)
    if share < 1:
        found = msgspec.structs.replace(found, status=f"none, after {share:g} of the budget")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{name}.json", {"rule": row.rule, "share": share, **msgspec.to_builtins(found)})
    return found, folder


def _say_committed(known: set[tuple[str, int]], wanted: set[tuple[str, int]], console: Console) -> None:
    """Say how many runs are committed, and how many are still to be trained."""
    if known:
        missing = len(wanted - known)
        rest = f", {missing} more are trained" if missing else ""
        console.print(f"{len(known)} runs are committed{rest}; --fresh trains all", highlight=False)


def _own_runs(folder: Path, wanted: set[tuple[str, int]]) -> Sequence[Curve]:
    """The finished runs of these arms and seeds in a folder; none if it does not exist."""
    found = finished_runs(folder) if any((folder / name).exists() for name in (COMPARISON, CONFIG)) else []
    return [curve for curve in found if (curve.arm, curve.seed) in wanted]
