"""Checks every repository task before a run: its tests must fail before the fix, and pass after it."""

from pathlib import Path

from halfway.curriculum import Stream, UserError
from halfway.curriculum.repositories.checking import check_problems
from halfway.curriculum.repositories.environment import Repository
from halfway.curriculum.tasks.files import write_problems
from halfway.experiments.config.run import RunConfig


def check_rows(config: RunConfig, file: Path | None) -> str:
    """Check the tasks of a run's source; returns one line with the numbers kept and dropped.

    Args:
        file: file for the valid tasks, which the source `file` reads with columns id and verifier.

    Raises:
        UserError: if the run has no repository tasks, this machine cannot run boxes, or no task is valid.
    """
    environment = config.environment.part
    if not isinstance(environment, Repository):
        raise UserError("--rows: the run's environment is not `repository`, whose tasks can be tried; leave it out")
    train = config.problems.train
    wanted = None if train is None else train + config.evaluation.problems
    loaded = config.problems.opened.source.part.load(wanted, Stream(config.problems.seed))
    tasks = check_problems(loaded.problems, environment.boxes, environment.test_seconds, environment.parallel or 1)
    if not tasks.problems:
        raise UserError(f"problems.source: no task is valid: {tasks.report}")
    if file is not None:
        write_problems(tasks.problems, str(file))
    return f"{tasks.report} (before that: {loaded.report})"
