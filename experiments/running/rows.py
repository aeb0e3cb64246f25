"""Tests every task on a repository before a run: its tests must fail untouched, and pass once it is repaired."""

from pathlib import Path

from halfway.curriculum import Stream, UserError
from halfway.curriculum.repositories.checking import check_problems
from halfway.curriculum.repositories.environment import Repository
from halfway.curriculum.tasks.files import write_problems
from halfway.experiments.config.run import RunConfig


def check_rows(config: RunConfig, file: Path | None) -> str:
    """Test the tasks of a run's source; returns one line that says how many were kept and dropped.

    Args:
        file: where the tasks that hold are written; the source `file` reads it, with columns id and verifier.

    Raises:
        UserError: if the run has no tasks on repositories, this machine cannot run boxes, or no task holds.
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
