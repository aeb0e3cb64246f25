"""Published tasks: rows of SWE-bench, SWE-Gym, SWE-smith and R2E-Gym, in files on disk."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from halfway.curriculum import Problem, Stream, UserError, require
from halfway.curriculum.boxes.box import Base
from halfway.curriculum.repositories.task import PYTEST, RepositoryTask, to_problem
from halfway.curriculum.support.blocks import find_between
from halfway.curriculum.tasks.data_files import Bad, file_rows
from halfway.curriculum.tasks.files import keep_and_count
from halfway.curriculum.tasks.sources import Loaded, Source

Kind = Literal["auto", "swe_bench", "swe_gym", "swe_smith", "r2e_gym"]
IMAGES = {
    "swe_bench": ("swebench/sweb.eval.x86_64.{}:latest", "_1776_"),
    "swe_gym": ("xingyaoww/sweb.eval.x86_64.{}:latest", "_s_"),
}
"""Names of the images published with the rows, and the replacement of "__" of an instance's id in them."""

R2E_TESTS = PYTEST.replace("{tests}", "r2e_tests {tests}")
R2E_TESTS = f"ln -sfn /r2e_tests r2e_tests; {R2E_TESTS}"


@dataclass(frozen=True)
class RepositoryRows(Source):
    """Rows of JSON Lines, JSON, CSV or Parquet files, each with the columns that its data set publishes.

    SWE-bench, SWE-Gym: instance_id, problem_statement, patch (the solution), test_patch, FAIL_TO_PASS, PASS_TO_PASS (a
    list, or a list as JSON text). SWE-smith: the same without test_patch, where patch is the fault, and image_name.
    R2E-Gym: docker_image, problem_statement, expected_output_json; it has no solution as a diff.

    Rows without tests or without a column are dropped and counted. `halfway validate --rows` checks whether rows are
    valid tasks.

    Attributes:
        path: a file, a folder or a pattern, as of `file`.
        heldout_path: file of the held-out problems, such as another data set; empty = they are taken from `path`.
        kind: the data set that the rows' columns come from; "auto" decides by the first row.
        trees: a folder with a source tree for each instance, named by its id, for boxes that run here; empty = images.
        command: the command that runs tests, see `RepositoryTask`; empty = pytest.
    """

    path: str
    heldout_path: str = ""
    kind: Kind = "auto"
    trees: str = ""
    command: str = ""

    def __post_init__(self) -> None:
        require(bool(self.path), "repository_rows.path", self.path, "give a file")
        known = not self.command or "{tests}" in self.command
        require(known, "repository_rows.command", self.command, "put {tests} in place of the test files")

    def heldout(self) -> Source | None:
        return replace(self, path=self.heldout_path, heldout_path="") if self.heldout_path else None

    def load(self, wanted: int | None, stream: Stream) -> Loaded:
        """Load all rows in order."""
        loaded = keep_and_count((row.where, self._problem(row.values)) for row in file_rows(self.path))
        if not loaded.problems:
            first = f" (first: {loaded.report.examples[0]})" if loaded.report.examples else ""
            raise UserError(f"{self.path}: no row is a task on a repository{first}; check repository_rows.kind")
        return loaded

    def _problem(self, values: Mapping[str, Any] | Bad) -> Problem | Bad:
        if isinstance(values, Bad):
            return values
        kind = kind_of(values) if self.kind == "auto" else self.kind
        task = task_of(values, kind, self.trees, self.command)
        if isinstance(task, Bad):
            return task
        statement = str(values.get("problem_statement") or "")
        inner = find_between(statement, "[ISSUE]", "[/ISSUE]")
        features: dict[str, float | str] = {"repository": str(values.get("repo") or values.get("repo_name") or "")}
        return to_problem(task, inner[0] if inner else statement, kind, features)


def kind_of(values: Mapping[str, Any]) -> Kind:
    """Recognise the data set of a row by its columns."""
    if "expected_output_json" in values:
        return "r2e_gym"
    if "image_name" in values and "test_patch" not in values:
        return "swe_smith"
    return "swe_bench"


def task_of(values: Mapping[str, Any], kind: str, trees: str = "", command: str = "") -> RepositoryTask | Bad:
    """Read the task of a row, or say why there is none."""
    name = str(values.get("instance_id") or values.get("commit_hash") or "")
    if not name:
        return Bad("no instance_id")
    tests = _read_expected(values) if kind == "r2e_gym" else _read_list(values, "FAIL_TO_PASS")
    going = () if kind == "r2e_gym" else _read_list(values, "PASS_TO_PASS")
    if isinstance(tests, Bad) or isinstance(going, Bad):
        return tests if isinstance(tests, Bad) else Bad("PASS_TO_PASS is not a list of tests")
    if not tests:
        return Bad("no test that must pass")
    base = _base(values, kind, name, trees)
    patch = _diff(values, "patch")
    if kind != "r2e_gym" and not patch:
        return Bad("no patch")
    if kind == "r2e_gym":
        return RepositoryTask(name, base, "", "", tests, (), command or R2E_TESTS)
    if kind == "swe_smith":
        return RepositoryTask(name, base, patch, "", tests, going, command or PYTEST)
    return RepositoryTask(name, base, "", _diff(values, "test_patch"), tests, going, command or PYTEST, patch)


def _base(values: Mapping[str, Any], kind: str, name: str, trees: str) -> Base:
    if trees:
        return Base(str(Path(trees) / name))
    image = str(values.get("docker_image") or values.get("image_name") or "")
    if not image and kind in IMAGES:
        pattern, separator = IMAGES[kind]
        image = pattern.format(name.replace("__", separator).lower())
    return Base(image=image, place="/testbed")


def _read_list(values: Mapping[str, Any], column: str) -> tuple[str, ...] | Bad:
    value = values.get(column)
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return Bad(f"{column} is not a list of tests")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(test, str) for test in value):
        return Bad(f"{column} is not a list of tests")
    return tuple(value)


def _read_expected(values: Mapping[str, Any]) -> tuple[str, ...] | Bad:
    try:
        outcomes = json.loads(values["expected_output_json"])
        return tuple(test for test, outcome in outcomes.items() if outcome == "PASSED")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return Bad("expected_output_json is not a mapping of tests")


def _diff(values: Mapping[str, Any], column: str) -> str:
    text = str(values.get(column) or "")
    return text if not text or text.endswith("\n") else f"{text}\n"
