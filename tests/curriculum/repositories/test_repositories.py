"""Sources of tasks on repositories, and refused tasks."""

import ast
import hashlib
import io
import json
import tarfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from messages import says
from repositories import FAIL, FAULTY, PASS, SOUND, TESTS, needs_boxes, small_repository, small_task

from halfway.curriculum import Stream, UserError
from halfway.curriculum.boxes.box import Base
from halfway.curriculum.boxes.bubblewrap import Bubblewrap
from halfway.curriculum.repositories import archives
from halfway.curriculum.repositories.archives import RepositoryArchives, unpack
from halfway.curriculum.repositories.checking import check_problems
from halfway.curriculum.repositories.environment import Repository
from halfway.curriculum.repositories.mutation import patch, sites
from halfway.curriculum.repositories.rows import RepositoryRows, kind_of, task_of
from halfway.curriculum.repositories.task import RepositoryTask, from_text, to_problem
from halfway.curriculum.tasks.data_files import Bad
from halfway.curriculum.tasks.sources import split

FIX = patch("stats/means.py", FAULTY, SOUND)

# Mutation.

SOURCE = '''def f(a, b, *rest):
    """Kept: 1 + 1."""
    total = a - b
    if a < 3 and not b:
        total = max(a, b)
    for x in rest:
        print(x)
    return total


class C:
    def g(self):
        return "\\N{SNOWMAN}" + str(True)
'''


def test_every_site_is_one_edit_of_one_function() -> None:
    found = list(sites("m.py", SOURCE))
    kinds = Counter(site.kind for site in found)
    assert kinds == {
        **{"remove_assignment": 2, "operator": 2, "operands": 1, "invert": 1, "remove_branch": 1, "and_or": 1},
        **{"compare": 1, "off_by_one": 2, "not": 1, "arguments": 1, "remove_loop": 1, "remove_call": 1},
        **{"return": 2, "bool": 1},
    }
    assert {site.function for site in found} == {"f", "C.g"}
    texts = [mutant.text for site in found if (mutant := site.mutant())]
    assert len(texts) == len(set(texts)) == len(found)
    for text in texts:
        ast.parse(text)
        changed = [line for line in zip(text.splitlines(), SOURCE.splitlines(), strict=False) if line[0] != line[1]]
        assert changed and "Kept: 1 + 1." in text


def test_a_mutant_is_what_its_kind_says() -> None:
    of = {site.kind: mutant.text for site in sites("m.py", SOURCE) if (mutant := site.mutant())}
    assert "total = (b - a)" in of["operands"] and "max(b, a)" in of["arguments"] and "a <= 3" in of["compare"]
    assert "(a < 3 or not b)" in of["and_or"] and "str(False)" in of["bool"]
    assert list(sites("m.py", "def f(:")) == []


@needs_boxes
@pytest.mark.parametrize("text", ["a\nb\n", "a\nb", "", "a\r\nb\r\n"])
def test_patches_apply(tmp_path: Path, text: str) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "f.txt").write_bytes(b"a\nc\n")
    box = Bubblewrap().open(Base(str(tmp_path / "r")))
    done = box.exec("git apply --whitespace=nowarn -", 20, patch("f.txt", "a\nc\n", text).encode())
    assert (done.status, box.read("f.txt") if text else b"") == (0, text.encode()), done.output
    box.close()


# Source distributions.


@pytest.fixture
def archive(tmp_path: Path) -> tuple[Path, str]:
    """The small repository, without a fault, as a source distribution."""
    small_repository(tmp_path / "means-1.0")
    path = tmp_path / "means-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as opened:
        opened.add(tmp_path / "means-1.0", "means-1.0")
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


@needs_boxes
def test_mutants_that_tests_notice_are_tasks(archive: tuple[Path, str]) -> None:
    path, sha256 = archive
    source = RepositoryArchives({str(path): sha256}, seconds=60)
    loaded = source.load(2, Stream(0))
    assert loaded.report.kept == 2 and [p.id for p in source.load(1, Stream(0)).problems] == [loaded.problems[0].id]
    for problem in loaded.problems:
        task = from_text(problem.answer, problem.id)
        assert task.fail_to_pass and task.pass_to_pass and problem.features["repository"] == "means-1.0"
        assert task.fail_to_pass[0] in problem.prompt and task.bug not in problem.prompt
    assert check_problems(loaded.problems, Bubblewrap(), 60).report.dropped == {}


def test_archives_are_pinned(archive: tuple[Path, str], tmp_path: Path) -> None:
    path, sha256 = archive
    assert (unpack(path, sha256) / "stats" / "means.py").read_text() == SOUND
    with pytest.raises(UserError, match=says("SHA-256", "0000")):
        unpack(path, "0000")
    with pytest.raises(UserError, match=says("pip download")):
        unpack(tmp_path / "none.tar.gz", sha256)
    with pytest.raises(UserError, match=says("problems.train")):
        RepositoryArchives({str(path): sha256}).load(None, Stream(0))


@needs_boxes
def test_a_damaged_or_huge_archive_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "odd.tar.gz"

    def packed(name: str, size: int) -> bytes:
        with tarfile.open(path, "w:gz") as opened:
            member = tarfile.TarInfo(name)
            member.size = size
            opened.addfile(member, io.BytesIO(bytes(size)))
        return path.read_bytes()

    odd = {
        "it unpacks to more than": packed("p/a", archives.MOST_BYTES + 1),
        "deeper than": packed("/".join("a" * 2000), 1),
        "ended before": packed("p/a", 100_000)[:-60],
        "Not a gzipped file": b"no archive",
    }
    for words, content in odd.items():
        path.write_bytes(content)
        with pytest.raises(UserError, match=says(path, words, "give a .tar.gz")):
            unpack(path, hashlib.sha256(content).hexdigest())
    alone = hashlib.sha256(packed("a.py", 3)).hexdigest()
    assert (unpack(path, alone) / "a.py").is_file()


def test_an_archive_whose_tests_do_not_run_is_counted(tmp_path: Path) -> None:
    (tmp_path / "empty-1").mkdir()
    (tmp_path / "empty-1" / "test_a.py").write_text("import nothing_like_this\n")
    path = tmp_path / "empty-1.tar.gz"
    with tarfile.open(path, "w:gz") as opened:
        opened.add(tmp_path / "empty-1", "empty-1")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(UserError, match=says("repository_archives", "0 found", "tests do not run")):
        RepositoryArchives({str(path): sha256}, seconds=60).load(1, Stream(0))


# Rows.

ROW = {
    "instance_id": "Means__means-1",
    "repo": "means/means",
    "problem_statement": "Sums are negative.",
    "patch": FIX,
    "test_patch": "",
    "FAIL_TO_PASS": json.dumps(list(FAIL)),
    "PASS_TO_PASS": list(PASS),
}


def test_rows_of_every_kind_become_tasks() -> None:
    task = task_of(ROW, "swe_bench")
    assert isinstance(task, RepositoryTask)
    assert (task.fail_to_pass, task.pass_to_pass, task.solution, task.bug) == (FAIL, PASS, FIX, "")
    assert task.base == Base(image="swebench/sweb.eval.x86_64.means_1776_means-1:latest", place="/testbed")
    gym = task_of(ROW, "swe_gym", "/trees")
    assert isinstance(gym, RepositoryTask) and gym.base == Base("/trees/Means__means-1")
    smith = {key: value for key, value in ROW.items() if key != "test_patch"} | {"image_name": "smith/x"}
    assert kind_of(smith) == "swe_smith" and kind_of(ROW) == "swe_bench"
    broken = task_of(smith, "swe_smith")
    assert isinstance(broken, RepositoryTask) and (broken.bug, broken.solution) == (FIX, "")
    r2e = {
        "docker_image": "r2e/x",
        "commit_hash": "abc",
        "expected_output_json": '{"A.test_a": "PASSED", "b": "FAILED"}',
    }
    assert kind_of(r2e) == "r2e_gym"
    listed = task_of(r2e, "r2e_gym")
    assert isinstance(listed, RepositoryTask) and listed.tests == ("A.test_a",) and listed.base.image == "r2e/x"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"instance_id": ""}, "no instance_id"),
        ({"FAIL_TO_PASS": "[]"}, "no test that must pass"),
        ({"FAIL_TO_PASS": "test_a"}, "FAIL_TO_PASS is not a list of tests"),
        ({"FAIL_TO_PASS": "[" * 100_000}, "FAIL_TO_PASS is not a list of tests"),
        ({"PASS_TO_PASS": [1]}, "PASS_TO_PASS is not a list of tests"),
        ({"patch": None}, "no patch"),
    ],
)
def test_a_row_that_lacks_something_is_dropped_and_counted(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    assert task_of({**ROW, **change}, "swe_bench") == Bad(reason)
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in (ROW, {**ROW, **change}, ROW)) + "\n")
    loaded = RepositoryRows(str(path)).load(None, Stream(0))
    assert loaded.report.kept == 1 and loaded.report.dropped == {reason: 1, "repeats an earlier one": 1}
    path.write_text(json.dumps({**ROW, **change}) + "\n")
    with pytest.raises(UserError, match=says("repository", reason)):
        RepositoryRows(str(path)).load(None, Stream(0))


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("Mend [ISSUE]\nSums fail.\n[/ISSUE] now. [ISSUE]no[/ISSUE]", "Sums fail."),
        ("Sums [ISSUE] fail.", "Sums [ISSUE] fail."),
        # A regular expression takes minutes to find that none of these openings has an end.
        ("[ISSUE]" * 140_000, "[ISSUE]" * 140_000),
    ],
    ids=["marked", "never closed", "a million characters"],
)
def test_a_statement_is_what_the_first_issue_says(tmp_path: Path, statement: str, shown: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**ROW, "problem_statement": statement}) + "\n")
    began = time.process_time()
    (problem,) = RepositoryRows(str(path)).load(None, Stream(0)).problems
    assert time.process_time() - began < 20
    assert f"\n{shown}\n" in problem.prompt


def test_held_out_rows_come_from_a_file_of_their_own(tmp_path: Path) -> None:
    r2e = {"docker_image": "r2e/x", "commit_hash": "abc", "expected_output_json": '{"A.test_a": "PASSED"}'}
    for name, row in {"train": r2e, "test": ROW}.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    source = RepositoryRows(str(tmp_path / "train.jsonl"), str(tmp_path / "test.jsonl"))
    found = split(source, None, 1, Stream(0))
    images = [from_text(problem.answer, "").base.image for problem in (*found.train, *found.heldout)]
    assert images == ["r2e/x", "swebench/sweb.eval.x86_64.means_1776_means-1:latest"]


# What is not a task.


@needs_boxes
def test_a_row_that_is_not_a_task_is_dropped_with_its_reason(tmp_path: Path) -> None:
    sound = small_task(tmp_path)
    harmless = patch("stats/means.py", SOUND, SOUND + "\n# a remark\n")
    wrong = patch("stats/means.py", FAULTY, FAULTY + "\n# a remark\n")
    nothing = "--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n"
    flaky = TESTS + "\n\ndef test_luck():\n    import random\n\n    assert random.random() < 0.5\n"
    fickle = Base(str(tmp_path / "fickle"))
    small_repository(Path(fickle.tree))
    (Path(fickle.tree) / "tests" / "test_means.py").write_text(flaky)
    tasks = {
        "": sound,
        "passes untouched": replace(sound, bug=harmless),
        "tests do not run": replace(sound, command="true {tests}"),
        "a test that must fail passes": replace(sound, fail_to_pass=(*FAIL, *PASS), pass_to_pass=PASS),
        "a test that must keep passing fails": replace(sound, fail_to_pass=FAIL[:1], pass_to_pass=FAIL[1:]),
        "the reference fails": replace(sound, solution=wrong),
        "the reference does not apply": replace(sound, solution=nothing),
        "the fault does not apply": replace(sound, bug=nothing),
    }
    problems = [to_problem(task, str(i), "s", {}) for i, task in enumerate(tasks.values())]
    reported: list[int] = []
    loaded = check_problems(problems, Bubblewrap(), 60, parallel=2, tell=lambda: reported.append(1))
    assert loaded.problems == (problems[0],) and len(reported) == len(problems)
    assert loaded.report.dropped == dict.fromkeys(list(tasks)[1:], 1)
    lucky = to_problem(
        replace(sound, base=fickle, fail_to_pass=(*FAIL, "tests/test_means.py::test_luck")), "x", "s", {}
    )
    reasons = (reason for _ in range(9) for reason in check_problems([lucky], Bubblewrap(), 60).report.dropped)
    assert any(reason in ("tests vary from run to run", "a test that must fail passes") for reason in reasons)


@needs_boxes
def test_history_is_stripped(tmp_path: Path) -> None:
    """A commit with the solution, outside the tree, does not reach the box."""
    task = small_task(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "solution").write_text(FIX)
    box = Repository().boxes.open(task.base)
    assert box.exec("ls -A; git log 2>&1 | tail -1", 20).output.split("\n")[:2] == ["stats", "tests"]
    box.close()
