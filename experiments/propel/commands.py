"""Carries out `halfway propel`: checks, then the stages of a study, one after the other, with progress."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from halfway.curriculum import UserError, require, unknown
from halfway.experiments.config import paths
from halfway.experiments.propel.config import BASE, PropelConfig
from halfway.experiments.propel.study_summary import draw_summary, write_summary
from halfway.experiments.report.provenance import write_provenance
from halfway.experiments.running.progress_bars import progress_display, single_run
from halfway.experiments.running.validation import check_model
from halfway.trainers.loop.loop_options import Budget

if TYPE_CHECKING:
    from halfway.experiments.propel.stages import Progress
    from halfway.experiments.propel.study import Study

STAGES = ("corpus", "sweep", "train", "evaluate")
EXPORT = "export"  # not part of "all": it writes the pools for solver training


def run_stages(config: PropelConfig, stage: str, arm: str, console: Console, run: Path | None = None) -> None:
    """Run one stage, or "all" of them, for every seed.

    Args:
        arm: train, evaluate or export only this arm; "" = all. `base` is the base generator, which is never trained.
        run: export the problems of this recipe instead of new tasks.

    Raises:
        UserError: from `check_stage` or a stage.
    """
    check_stage(config, stage, arm, run)
    from halfway.experiments.propel.study import Study

    write_provenance(config.folder, ["halfway", *sys.argv[1:]])
    for seed in config.seeds:
        study = Study(config, seed)
        if stage == EXPORT:
            _export(study, [arm] if arm else list(config.arms), run, console)
            continue
        for name in STAGES if stage == "all" else (stage,):
            _do(study, name, [arm] if arm else list(config.arms), console)
    if stage == EXPORT:
        return
    file = write_summary(config)
    draw_summary(config)
    console.print(f"tables: {file}", soft_wrap=True)


def check_stage(config: PropelConfig, stage: str, arm: str, run: Path | None = None) -> None:
    """Raise UserError for an unknown stage or arm, or for an invalid combination of stage and arm."""
    if stage not in (*STAGES, EXPORT, "all"):
        raise unknown("propel", stage, [*STAGES, EXPORT, "all"])
    if run is not None and (stage != EXPORT or arm):
        raise UserError(f"--run: {str(run)!r} goes with `halfway propel export` alone, without --arm")
    if arm and arm not in (BASE, *config.arms):
        raise unknown("--arm", arm, [BASE, *config.arms])
    if arm == BASE and stage in ("train", "all"):
        raise UserError(f"--arm: {BASE!r} is the base generator, which is not trained; name another arm")


def _do(study: "Study", stage: str, arms: list[str], console: Console) -> None:
    from halfway.experiments.propel import stages

    title = f"seed {study.seed}"
    if stage == "corpus":
        with _shown(console, f"{title}: corpus") as progress:
            stages.run_corpus(study, progress)
    elif stage == "sweep":
        with _shown(console, f"{title}: sweep") as progress:
            chosen = stages.run_sweep(study, progress)["chosen"]
        accuracy = chosen["test"]["balanced_accuracy"]
        console.print(f"{title}: chose {chosen['file']}, balanced accuracy {accuracy:.3f} on test rows", soft_wrap=True)
    elif stage == "train":
        for arm in arms:
            _train(study, arm, f"{title}: {arm}", console)
    else:
        for arm in arms if arms == [BASE] else [BASE, *arms]:
            record = stages.run_evaluation(study, arm)
            console.print(
                f"{title}: {arm}: utility {record['utility']:.3f}, valid {record['valid']:.3f}, "
                f"top topic {record['top_topic']:.3f}, {record['online_trials']:,} trials during training",
                soft_wrap=True,
            )
            if study.config.evaluation.curve:
                stages.run_curve(study, arm)


def _export(study: "Study", arms: list[str], run: Path | None, console: Console) -> None:
    from halfway.experiments.config.loading import load_run_config
    from halfway.experiments.propel.export import export_pool, export_problems
    from halfway.experiments.running.build import build_problems

    if run is None:
        made = [export_pool(study, arm) for arm in arms]
    else:
        recipe = load_run_config(run)
        problems = build_problems(recipe)
        made = [export_problems(study, recipe.name, [*problems.train, *problems.heldout])]
    for file, number in made:
        console.print(f"seed {study.seed}: {number} problems: {file}", soft_wrap=True)


def _train(study: "Study", arm: str, title: str, console: Console) -> None:
    from halfway.experiments.propel import stages

    if (study.arm_folder(arm) / "choice.json").exists():
        console.print(f"{title}: already trained")
        return
    steps = study.config.arm(arm).training.steps
    with single_run(console, title, Budget(steps=steps), 0) if steps else nullcontext() as recorder:
        record = stages.run_training(study, arm, [recorder] if recorder else [])
    alerts = record["chosen"]["alerts"]
    warning = f", with alerts: {', '.join(alerts)}" if alerts else ""
    console.print(f"{title}: step {record['chosen']['step']} chosen{warning}")


@contextmanager
def _shown(console: Console, title: str) -> "Iterator[Progress]":
    """A progress bar if there is a terminal, otherwise an occasional line."""
    if not console.is_terminal:
        yield lambda done, total: print(f"{title}: {done} of {total}", flush=True)
        return
    with progress_display(console) as display:
        task = display.add_task(title, note="")
        yield lambda done, total: display.update(task, completed=done, total=total)


def check_study(config: PropelConfig) -> list[str]:
    """List what cannot be checked on this machine, one line each. Raises UserError if a model or a file is missing."""
    unchecked: list[str] = []
    for where, options in config.sampled().items():
        try:
            unchecked += check_model(options.model, options.rollouts, elsewhere=False)
        except UserError as error:
            raise UserError(f"{where}.{error}") from None
    for option, value in paths.paths_of(config.domain.part).items():
        exists = paths.find(value).expanduser().exists()
        require(exists, f"domain.{config.domain.name}.{option}", value, "there is no such file; correct the path")
    return list(dict.fromkeys(unchecked))
