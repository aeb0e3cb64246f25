"""The Python API of `halfway`: `run`, `compare`, `load` and `audit`, on files or dictionaries, in this process."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halfway.experiments.outcomes import AuditedLogs, Trained
from halfway.experiments.output_flags import Shown, busy

if TYPE_CHECKING:
    from halfway.experiments.config.run import RunConfig

Source = str | PathLike[str] | Mapping[str, Any]


def run(source: Source, *changes: str, quiet: bool = False) -> Trained:
    """Train one run in this process, or continue or load the one in its folder.

    Args:
        source: a YAML file, or a mapping with its fields.
        changes: fields to override, as on the command line: "learner.lr=3e-4", "seed=1".
        quiet: whether to show no progress.

    Raises:
        UserError: one line that names the field, its value and the remedy.

    Example:
        >>> import halfway
        >>> result = halfway.run("my.yaml", "seed=1")  # doctest: +SKIP
        >>> result.curves.df()  # doctest: +SKIP
    """
    from halfway.experiments.config.loading import load_run_config
    from halfway.experiments.running.runs import prepare

    config = load_run_config(_located(source), changes)
    prepare(config, config.folder)
    train_run(config, config.folder, Path(config.output), ["halfway.run", *map(repr, changes)], Shown(quiet=quiet))
    return Trained(config.folder)


def compare(
    source: Source, *changes: str, arms: Sequence[str] = (), seeds: Sequence[int] = (), quiet: bool = False
) -> Trained:
    """Train every arm with every seed in this process, one after the other, or continue or load such a comparison.

    `halfway compare --jobs` trains several at a time, in separate processes.

    Args:
        source, changes, quiet: as for `run`; the file or mapping has `arms`.
        arms: train only these arms.
        seeds: seeds to use instead of the file's.

    Raises:
        UserError: like `run`.
    """
    from halfway.experiments.comparing.compare import planned_arms, prepare_comparison, run_comparison
    from halfway.experiments.config.comparison import with_arms
    from halfway.experiments.config.loading import load_comparison_config
    from halfway.experiments.report.provenance import write_provenance
    from halfway.experiments.tracking.tracker_process import open_trackers

    config = load_comparison_config(_located(source), changes)
    config = replace(config, seeds=tuple(seeds)) if seeds else config
    folder = config.folder
    prepared = prepare_comparison(with_arms(config, planned_arms(config, arms)) if arms else config, folder)
    write_provenance(folder, ["halfway.compare", *map(repr, changes)])
    first = prepared.run(next(iter(prepared.arms)), prepared.seeds[0])
    trackers = open_trackers(first.tracking, Path(first.output))
    run_comparison(prepared, folder, 0, Shown(quiet=quiet).progress, trackers, arms)
    return Trained(folder)


def load(folder: str | PathLike[str]) -> Trained:
    """Load the run or comparison in a folder, finished or not.

    Raises:
        UserError: if there is none.
    """
    return Trained(Path(folder))


def audit(
    *logs: str | PathLike[str],
    replayed: str | Sequence[str] | None = None,
    hours: float | None = None,
    reward: str = "",
    passes_at: float | None = None,
    problem: str = "",
    format: str = "",
) -> AuditedLogs:
    """Audit logs of any trainer that `halfway audit` reads: where the rollouts went.

    Args:
        replayed: controllers to replay; None = the usual ones.
        hours: duration of each run; None = from its log.
        reward: the reward's column, or several with weights, such as "correct=1,format=0.2"; "" = recognised.
        passes_at: lowest reward that counts as passed; None = guessed.
        problem: the column that names the problem; "" = recognised.
        format: the format of all files; "" = recognised.

    Raises:
        UserError: if no log is given, nothing at a path can be read, or an option is wrong.
    """
    from halfway.curriculum import require
    from halfway.experiments.audit.auditing import audit as audited
    from halfway.experiments.audit.counterfactual import DEFAULTS
    from halfway.experiments.audit.formats.base import Choices

    require(bool(logs), "logs", logs, "name at least one file or folder")
    names = DEFAULTS if replayed is None else [replayed] if isinstance(replayed, str) else replayed
    choices = Choices(reward, passes_at, problem)
    return AuditedLogs(audited([Path(log) for log in logs], choices, format, names, hours))


def train_run(
    config: "RunConfig", folder: Path, output: Path, command: Sequence[str], shown: Shown, start: int | None = None
) -> None:
    """Train the run in its folder unless it is finished, with progress, warnings and tracking.

    Args:
        output: the folder of the trackers' files.
        command: the user's command, for the record.
        start: the step of an earlier checkpoint to go back to, 0 = the start.
    """
    from halfway.experiments.report.provenance import write_provenance
    from halfway.experiments.running.progress_bars import single_run
    from halfway.experiments.running.runs import last_spent, read_state, train
    from halfway.experiments.tracking.tracker_process import open_trackers
    from halfway.trainers.loop.waste import Waste

    console = shown.progress
    spent = last_spent(folder, config.budget)  # less than the budget, if it was raised after the run finished
    if start is None and read_state(folder) == "finished" and spent >= config.budget.total:
        console.print(f"{folder} is already finished; to train it differently, give another name=...")
        return
    write_provenance(folder, command)
    with busy("starting"):
        recorders = [tracker.run(config, folder) for tracker in open_trackers(config.tracking, output)]
    waste = Waste(functools.partial(shown.warn, console), config.rollouts.largest_gap(config.model.dtype))
    with single_run(console, config.name, config.budget, spent) as recorder:
        train(config, folder, [recorder, waste, *recorders], start)


def _located(source: Source) -> Path | Mapping[str, Any]:
    """Return a mapping as it is; look a path up as the command line does, first here and then among the recipes."""
    from halfway.experiments.config.paths import recipe

    return source if isinstance(source, Mapping) else recipe(source)
