"""`halfway validate --rows`: what is not a task is dropped with its reason, and the rest can be trained on."""

import json
from pathlib import Path

import pytest
from messages import says
from repositories import FAIL, FAULTY, PASS, SOUND, needs_boxes, small_repository

from halfway.curriculum import Stream, UserError
from halfway.curriculum.repositories.mutation import patch
from halfway.curriculum.repositories.rows import RepositoryRows
from halfway.curriculum.tasks.files import File
from halfway.experiments.config.run import RunConfig, parse_run_config
from halfway.experiments.running.validation import check_rows


def config(folder: Path, environment: object) -> RunConfig:
    rows = {"path": str(folder / "rows.jsonl"), "trees": str(folder)}
    return parse_run_config(
        {
            "name": "rows",
            "controllers": ["uniform"],
            "environment": environment,
            "problems": {"source": {"repository_rows": rows}},
            "budget": {"steps": 1},
        }
    )


def written(folder: Path, **sources: str) -> RunConfig:
    """A run on rows of the same fault, each with a tree that has it or not."""
    facts = {"patch": patch("stats/means.py", FAULTY, SOUND), "FAIL_TO_PASS": FAIL, "PASS_TO_PASS": PASS}
    rows = [{"instance_id": name, "problem_statement": f"Sums of {name} are off.", **facts} for name in sources]
    for name, source in sources.items():
        small_repository(folder / name)
        (folder / name / "stats" / "means.py").write_text(source)
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return config(folder, {"repository": {"test_seconds": 60}})


@needs_boxes
def test_rows_are_tried(tmp_path: Path) -> None:
    run = written(tmp_path, one=FAULTY, two=SOUND)
    line = check_rows(run, tmp_path / "kept.jsonl")
    assert line.startswith("1 problems kept, 1 dropped (1 passes untouched; first: two: passes untouched)")
    loaded = File(str(tmp_path / "kept.jsonl"), id_column="id", verifier_column="verifier").load(None, Stream(0))
    (episode,) = run.environment.part.start(loaded.problems)
    assert episode.task.name == "one"


@needs_boxes
def test_rows_of_which_none_holds_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says("0 problems kept", "2 dropped")):
        check_rows(written(tmp_path, one=SOUND, two=SOUND), None)


def test_images_are_not_tasks_for_bubblewrap(tmp_path: Path) -> None:
    """Known without a container: `halfway validate` says so."""
    run = written(tmp_path, one=FAULTY)
    loaded = RepositoryRows(str(tmp_path / "rows.jsonl")).load(None, Stream(0))
    with pytest.raises(UserError, match=says("'swebench/", "one:latest'", "container", "swerex")):
        run.environment.part.start(loaded.problems)


def test_other_runs_have_no_rows(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says("--rows", "repository")):
        check_rows(config(tmp_path, "single_turn"), None)
