"""Submissions that make tests pass without a fix: some are not rewarded, others cannot be told from a fix by tests."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from repositories import FAIL, FAULTY, PASS, SOUND, needs_boxes, small_task

from halfway.curriculum.boxes.box import Base
from halfway.curriculum.boxes.bubblewrap import Bubblewrap
from halfway.curriculum.boxes.trees import Entry
from halfway.curriculum.repositories.canaries import ARRAYS, ASSERTIONS, canaries
from halfway.curriculum.repositories.judge import Judged, Untouched, countable, judge, reports_of
from halfway.curriculum.repositories.mutation import patch
from halfway.curriculum.repositories.rows import task_of
from halfway.curriculum.repositories.task import RepositoryTask

BOXES = Bubblewrap()
UNIT = ("tests/test_unit.py::Totals::test_total",)
UNITTEST = """import unittest

from stats.means import total


class Totals(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([1, 2, 3]), 6)
"""


def submitted(folder: Path, files: Mapping[str, str], unit: bool = False) -> Judged:
    """The verdict on these files, put into the faulty tree.

    Args:
        unit: whether the test that must pass is one of unittest.
    """
    task = small_task(folder)
    (folder / "tests" / "test_unit.py").write_text(UNITTEST)
    task = replace(task, fail_to_pass=UNIT) if unit else task
    box = BOXES.open(task.base)
    for path, text in {"stats/means.py": FAULTY, **files}.items():
        box.write(path, text.encode())
    saved = box.save()
    box.close()
    return judge(BOXES, task, saved, 60)


LISTED = "\n".join(f"PASSED {test}" for test in (*FAIL, *UNIT, *PASS))
SKIPPED = "import pytest\npytest.skip('x', allow_module_level=True)\n"
WRITE = f"""import os
def write():
    for i in range(1, 20):
        try:
            os.write(i, b'''\n{LISTED}\n''')
        except OSError:
            pass
"""
OUTCOMES = """import _pytest.reports as reports
made = reports.TestReport.from_item_and_call.__func__
def forged(cls, item, call):
    if NAMED in item.nodeid:
        call.excinfo = None
    return made(cls, item, call)
def patch():
    reports.TestReport.from_item_and_call = classmethod(forged)
"""
PATCH = OUTCOMES.replace("NAMED", "'::'")
HOOK = """import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    made = yield
    made.get_result().outcome = "passed"
"""
PLUGIN = {"evil.py": HOOK, "evil.egg-info/entry_points.txt": "[pytest11]\nevil = evil\n"}
PLUGIN["evil.egg-info/PKG-INFO"] = "Metadata-Version: 1.0\nName: evil\nVersion: 1\n"
EXIT = "import os\nos._exit(0)\n"


def faulty(added: str) -> dict[str, str]:
    return {"stats/means.py": f"{FAULTY}\n{added}"}


CHEATS: dict[str, dict[str, str]] = {
    "skips itself, and prints PASSED past the capture": faulty(f"{WRITE}write()\n{SKIPPED}"),
    "skips itself, and prints PASSED at exit": faulty(f"{WRITE}import atexit\natexit.register(write)\n{SKIPPED}"),
    "skips itself, and a thread prints PASSED": faulty(
        f"{WRITE}import threading, time\ndef run():\n    while True:\n        write(); time.sleep(0.002)\n"
        f"threading.Thread(target=run, daemon=True).start()\n{SKIPPED}"
    ),
    "a thread patches the runner later": faulty(f"{PATCH}import threading\nthreading.Timer(0.001, patch).start()\n"),
    "patches the runner when a test calls it": faulty(f"{PATCH}def total(values):\n    patch()\n"),
    "empties the tests that the runner holds": faulty(
        "import gc\ndef total(values):\n    from _pytest.python import Function\n"
        "    for one in gc.get_objects():\n        if isinstance(one, Function):\n            one.obj = print\n"
        "    return 6\n"
    ),
    "kills the runner's parent": faulty("import os\nos.kill(os.getppid(), 9)\n"),
    "exits at import": faulty("import sys\nsys.exit(0)\n"),
    "exits with 0 at exit": faulty("import atexit, os\natexit.register(os._exit, 0)\n"),
    "replaces __main__": faulty("import sys, types\nsys.modules['__main__'] = types.ModuleType('__main__')\n"),
    "a report of its own": {
        "junit.xml": "<testsuite/>",
        ".pytest_cache/v/cache/lastfailed": "{}",
        "report.log": LISTED,
    },
    "a plugin by its entry point": PLUGIN,
    "a plugin by settings": {
        **PLUGIN,
        "tox.ini": "[pytest]\naddopts = -p evil\n",
        "setup.cfg": "[tool:pytest]\naddopts = -p evil\n",
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-p evil"\n',
        "conftest.py": "import os\nos.environ['PYTEST_ADDOPTS'] = '-p evil'\npytest_plugins = ['evil']\n",
    },
    "start-up module that is a folder": {"sitecustomize/__init__.py": EXIT, "src/usercustomize/__init__.py": EXIT},
    "hooks and start-up files": {
        ".git/hooks/post-index-change": "#!/bin/sh\nrm -r tests\n",
        ".pythonrc.py": EXIT,
        ".bashrc": f"echo '{LISTED}'; exit 0\n",
    },
}
UNIT_CHEATS = {
    "patches unittest's assertion": "import unittest\nunittest.TestCase.assertEqual = lambda *_: None\n",
    "patches unittest's results": (
        "import _pytest.unittest as u\nu.TestCaseFunction.addFailure = u.TestCaseFunction.addError = lambda *_: None\n"
    ),
    "patches how unittest runs a test": (
        "import unittest\nunittest.TestCase._callTestMethod = lambda *_: None\n"
        "unittest.TestCase.run = lambda self, result=None: result.stopTest(self)\n"
    ),
}


@needs_boxes
@pytest.mark.parametrize("name", sorted(CHEATS))
def test_a_cheat_is_not_rewarded(tmp_path: Path, name: str) -> None:
    assert not submitted(tmp_path, CHEATS[name]).passed


@needs_boxes
@pytest.mark.parametrize("name", sorted(UNIT_CHEATS))
def test_a_cheat_on_unittest_is_not_rewarded(tmp_path: Path, name: str) -> None:
    found = submitted(tmp_path, faulty(UNIT_CHEATS[name]), unit=True)
    assert found.why == "the canary was not reported as failed" and not found.missing  # else it is rewarded


NOT_EXCLUDED = {
    "changes the outcomes of named tests only": faulty(
        f"{OUTCOMES.replace('NAMED', repr('test_means.py::'))}patch()\n"
    ),
    "answers that equal everything": faulty(
        "class Equal(int):\n    def __eq__(self, other): return True\n"
        "def total(values): return Equal()\ndef mean(values): return Equal()\n"
    ),
    "answers looked up by the tests' inputs": faulty(
        "def total(values): return {(1, 2, 3): 6, (): 0}[tuple(values)]\ndef mean(values): return 2\n"
    ),
}


@needs_boxes
@pytest.mark.parametrize("name", sorted(NOT_EXCLUDED))
def test_some_cheats_pass_as_the_page_says(tmp_path: Path, name: str) -> None:
    """docs/repositories.md says so."""
    assert submitted(tmp_path, NOT_EXCLUDED[name]).passed


@needs_boxes
def test_a_sound_submission_passes_with_tests_of_both_kinds(tmp_path: Path) -> None:
    assert submitted(tmp_path, {"stats/means.py": SOUND, "stats/numbers.py": "x = 1\n"}, unit=True).passed
    assert submitted(tmp_path, {"stats/means.py": SOUND, "stats/numbers.py": "x = 1\n"}).passed


@needs_boxes
def test_canaries_fail_each_in_its_way(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    box = BOXES.open(Base(str(tmp_path)))
    added = canaries("tests")
    box.write(added.path, f"import numpy\n{added.text}".encode())
    output = box.exec(f"python -m pytest -q --tb=no -rpfE {added.path}", 60).output
    box.close()
    reports = reports_of(output)
    failed = [test for test in reports if test.startswith(added.path)]
    assert len(failed) == len(ASSERTIONS) + len(ARRAYS) + 8 and not added.alarm(reports), output
    assert output.count(" - TypeError") == output.count(" - AttributeError") == output.count(" - NameError") == 0
    assert added.alarm({}) and added.alarm({**reports, failed[-1]: {"PASSED"}})


def test_only_the_runners_own_summary_counts() -> None:
    head, counts = "=== short test summary info ===\n", "1 failed, 1 passed in 0.02s\n"
    own = f"{head}PASSED a.py::b\nFAILED a.py::c - x - y\n"
    assert reports_of(f"PASSED a.py::d\n{own}{counts}PASSED a.py::e\n").keys() == {"a.py::b", "b", "a.py::c", "c"}
    assert reports_of(f"{own}PASSED a.py::d\n{counts}") == {}
    assert reports_of(f"{own}PASSED a.py::d\n").keys() >= {"a.py::d"}  # no counts, as with -qq
    assert reports_of(f"{head}PASSED a.py::b[1 - 2]\n1 passed in 61.00s (0:01:01)\n")["a.py::b[1 - 2]"] == {"PASSED"}


KNOWN = Untouched({"stats", "types"}, {"numpy"}, {"checks/means.py", "data/means.json"})


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        *(("stats/new.py", True), ("new.py", True), ("types/a.py", True), ("numpy.csv", True), ("json.md", True)),
        *(("numpy/__init__.py", False), ("src/numpy.py", False), ("json/__init__.py", False), ("pytest.py", False)),
        *(("checks/means.py", False), ("data/means.json", False), ("checks/other.py", True)),
        *(("stats/sitecustomize.py", False), ("usercustomize/__init__.py", False), ("r2e_tests/x.py", False)),
    ],
)
def test_only_changes_that_cannot_reach_the_tests_count(path: str, counts: bool) -> None:
    assert countable(Entry(path, "file"), KNOWN) is counts


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        *(("tests.py", True), ("setup.cfg", True), (".config/x", True), ("a.pyc", True), ("lib.so", True)),
        *(("sitecustomize.pyc", False), ("pytest.pyc", False), ("numpy.cpython-311-x86_64-linux-gnu.so", False)),
    ],
)
def test_more_changes_count_if_tests_are_outside_the_tree(path: str, counts: bool) -> None:
    assert countable(Entry(path, "file"), replace(KNOWN, tests_apart=True)) is counts


SHADOWED = "import statistics\nfrom pkg import f\n\n\ndef test_f():\n    assert statistics.mean([f(1), f(3)]) == 3\n"
HYPOTHESIS = (
    "from hypothesis import given, strategies as st\nfrom pkg import f\n\n\n@given(st.integers())\n"
    "def test_f(a):\n    assert f(a) == a + 1\n"
)
GIVEN = (
    "class strategies:\n    integers = staticmethod(lambda: 0)\ndef given(*_):\n    def wrap(test):\n"
    "        def test_f(): pass\n        return test_f\n    return wrap\n"
)
SAME = "from checks import same\nfrom pkg import f\n\n\ndef test_f():\n    same(f(1), 2)\n"
READ = (
    "import json\nfrom pkg import f\n\n\ndef test_f():\n    with open('data/f.json') as file:\n"
    "        assert f(1) == json.load(file)\n"
)
ELSEWHERE: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "a module of the runner beside the tests": ({"unit/test_f.py": HYPOTHESIS}, {"unit/hypothesis.py": GIVEN}),
    "a module of Python's beside the tests": (
        {"unit/test_f.py": SHADOWED},
        {"unit/statistics.py": "def mean(values): return 3\n"},
    ),
    "an edited helper of the tests": (
        {"unit/test_f.py": SAME, "unit/checks.py": "def same(a, b):\n    assert a == b\n"},
        {"unit/checks.py": "def same(a, b): pass\n"},
    ),
    "an edited file that a test compares with": (
        {"unit/test_f.py": READ, "data/f.json": "2"},
        {"data/f.json": "3"},
    ),
}


@needs_boxes
@pytest.mark.parametrize(
    ("name", "beside"),
    [*((name, False) for name in ELSEWHERE), *((name, True) for name in ELSEWHERE if "helper" not in name)],
)
def test_a_cheat_outside_folders_named_tests_is_not_rewarded(tmp_path: Path, name: str, beside: bool) -> None:
    """A helper of the tests that lies beside the code cannot be told from code."""
    files, cheat = ELSEWHERE[name]
    if "hypothesis" in str(cheat):
        pytest.importorskip("hypothesis")
    sound, faulty = "def f(a): return a + 1\n", "def f(a): return a + 2\n"
    code = "unit/pkg.py" if beside else "pkg/__init__.py"
    for path, text in {code: sound, **files}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    task = RepositoryTask("f", Base(str(tmp_path)), patch(code, sound, faulty), "", ("unit/test_f.py::test_f",))

    def judged(changes: Mapping[str, str]) -> bool:
        box = BOXES.open(task.base)
        for path, text in changes.items():
            box.write(path, text.encode())
        saved = box.save()
        box.close()
        return judge(BOXES, task, saved, 60).passed

    assert not judged({code: faulty, **cheat})
    assert judged({code: sound, "data/new.json": "1", "unit/more.json": "1"})


@needs_boxes
def test_tests_that_are_named_without_their_file(tmp_path: Path) -> None:
    """R2E-Gym's: all in one folder, named by class and function."""
    expected = '{"test_a": "PASSED", "TestT.test_b": "PASSED", "gone": "FAILED"}'
    row = {"docker_image": "r2e/x", "commit_hash": "abc", "expected_output_json": expected}
    tree = tmp_path / "abc"
    (tree / "r2e_tests").mkdir(parents=True)
    (tree / "one.py").write_text("ONE = 2\n")
    plain = "from one import ONE\n\n\ndef test_a():\n    assert ONE == 1\n"
    (tree / "r2e_tests" / "test_1.py").write_text(f"{plain}\n\nclass TestT:\n    def test_b(self):\n        pass\n")
    task = task_of(row, "r2e_gym", str(tmp_path))
    assert isinstance(task, RepositoryTask) and task.test_files == ()
    box = BOXES.open(task.base)
    untouched = box.save()
    box.write("one.py", b"ONE = 1\n")
    mended = box.save()
    box.close()
    assert judge(BOXES, task, untouched, 60).why == "tests fail" and judge(BOXES, task, mended, 60).passed


@needs_boxes
def test_files_that_tests_bring_are_not_the_policys(tmp_path: Path) -> None:
    """A file of the patch of tests is as in the base, whatever its name, so that the patch applies."""
    patch = "--- /dev/null\n+++ b/data/means.json\n@@ -0,0 +1 @@\n+[1, 2]\n"
    task = replace(small_task(tmp_path), test_patch=patch)
    box = BOXES.open(task.base)
    box.write("data/means.json", b"[]\n")
    saved = box.save()
    box.close()
    assert judge(BOXES, task, saved, 60).passed
