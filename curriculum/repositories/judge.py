"""Judges whether a changed work tree passes its task: in a fresh tree, with source changes only, by test reports.

A program under test runs in the test runner's process, so it can tamper with the runner. So the exit status does not
count. The runner's own summary must report every listed test as passed, and canaries, failing tests with random names,
as failed. This does not stop code that changes only the outcomes of the listed tests, nor answers that pass the tests
without solving the task. A Harbor task folder has a script instead, whose reward is trusted: its tests are unknown, so
they cannot get a canary.
"""

import re
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from halfway.curriculum import UserError
from halfway.curriculum.boxes.box import Box, BoxFullError, BoxMaker
from halfway.curriculum.boxes.trees import Changes, Entry, pack, unpack
from halfway.curriculum.repositories.canaries import canaries
from halfway.curriculum.repositories.harbor import run_tests
from halfway.curriculum.repositories.task import RepositoryTask, is_test

SETTINGS = frozenset(
    {
        *("pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "setup.py", "pyproject.toml", "noxfile.py", "Makefile"),
        *("sitecustomize.py", "usercustomize.py", ".coveragerc", "pytest.toml", ".pytest.toml"),
    }
)
"""Files that configure the tests, and are not part of the code."""

RUNNER = frozenset(
    {
        *("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli", "py", "attr"),
        *("coverage", "hypothesis", "xdist", "execnet"),
    }
)
"""Modules of the test runner that a file in the work tree could replace."""

STEERING = frozenset({"sitecustomize", "usercustomize"})
"""Modules that Python imports by itself when it starts."""

MODULE_ENDINGS = (".py", ".pyc", ".so")
CODE = frozenset(
    {
        *("", ".py", ".pyi", ".pyx", ".pxd", ".pxi", ".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".cu", ".f", ".f90"),
        *(".rs", ".go", ".java", ".js", ".ts", ".sh"),
    }
)
"""Endings of source code. Tests may compare with the content of files of other kinds."""

REPORT = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S.*)$", re.MULTILINE)
SUMMARY = re.compile(r"^=+ short test summary info =+$", re.MULTILINE)
COUNTS = re.compile(r"^=* ?\d+ [a-z ]+(?:, \d+ [a-z ]+)* in \d+(?:\.\d+)? ?s", re.MULTILINE)
NUM_PASSED = re.compile(r"\b(\d{1,9}) passed\b")
PATCHED = re.compile(r"^(?:---|\+\+\+) [ab]/(\S+)", re.MULTILINE)

LISTING_SECONDS = 30.0
LISTING = "ls -A . src 2> /dev/null"
MODULES = "python3 -I -c 'import pkgutil\nfor m in pkgutil.iter_modules(): print(m.name)' 2> /dev/null"
PRESENT = "xargs -0 -r ls -d -- 2> /dev/null"
"""Commands that list the top of a work tree, the modules importable without it, and which of some paths exist."""

APPLY = "git apply --recount --whitespace=nowarn -"


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict of the judge.

    Attributes:
        passed: whether every listed test passed, and the reports are credible.
        why: why not, in one of a few phrases for counting; empty if passed.
        missing: listed tests that were not reported as passed.
        seconds: seconds that the tests took.
    """

    passed: bool
    why: str = ""
    missing: tuple[str, ...] = ()
    seconds: float = 0.0


def begin(box: Box, task: RepositoryTask, seconds: float) -> None:
    """Apply the task's fault to an untouched tree. Raises UserError if it does not apply."""
    if not task.bug:
        return
    done = box.exec(APPLY, seconds, task.bug.encode())
    if done.status:
        why = " ".join(done.output.split())[:200]
        raise UserError(f"repository: the bug of {task.name!r} cannot be applied to its base ({why}); drop the row")


@dataclass(frozen=True, slots=True)
class Untouched:
    """The facts about an untouched work tree that decide which changes count.

    Attributes:
        tops: names at the top of the base and of its folder src.
        modules: names of modules importable without the work tree.
        tests: files that the judge runs or adds, whatever their names.
        tests_apart: whether the tests are outside the work tree, so that files of any name may belong to it.
        faulty: files changed by the known fault or its solution; empty if neither is known.
        present: the changed paths, and their parents beside tests, that exist in the base.
    """

    tops: Collection[str] = ()
    modules: Collection[str] = ()
    tests: Collection[str] = ()
    tests_apart: bool = False
    faulty: Collection[str] = ()
    present: Collection[str] = ()

    @property
    def beside(self) -> set[str]:
        """The folders of tests except the root; the test runner may import from them first."""
        return {test.rpartition("/")[0] for test in self.tests} - {""}

    @property
    def helpers(self) -> set[str]:
        """The folders of tests without the fault; all their files belong to the tests."""
        return {folder for folder in self.beside if self.faulty and not any(_in(file, folder) for file in self.faulty)}


def read_untouched(box: Box, task: RepositoryTask, changed: Collection[str] = ()) -> Untouched:
    """Read the facts about the untouched work tree, in a fresh box.

    Args:
        changed: paths that the submission changed.
    """
    tops, modules = (box.exec(command, LISTING_SECONDS).output.split("\n") for command in (LISTING, MODULES))
    tests = {*task.test_files, *PATCHED.findall(task.test_patch)}
    faulty = {*PATCHED.findall(task.bug), *PATCHED.findall(task.solution)}
    known = Untouched(frozenset(tops), frozenset(modules), tests, tests_apart=bool(task.folder), faulty=faulty)
    asked = {*changed, *(f"{folder}/{name}" for path in changed for folder, name in _places(path, known))}
    listed = box.exec(PRESENT, LISTING_SECONDS, "\0".join(sorted(asked)).encode("utf-8", "surrogateescape"))
    return replace(known, present=frozenset(listed.output.split("\n")))


def countable(entry: Entry, known: Untouched) -> bool:
    """True if a change counts in the judged tree: source code, but no configuration of tests.

    A new module must not replace one that the tests can import without the work tree. If the fault is known, files
    beside tests far from it do not count, and neither do existing files other than code, unless the fault is in such
    files.
    """
    parts = entry.path.split("/")
    if entry.kind in ("link", "pipe") or parts[-1].endswith(".pth") or entry.path in known.tests:
        return False
    if any(_module(part) in STEERING for part in parts):
        return False
    if not known.tests_apart and (is_test(entry.path) or any(part.startswith(".") for part in parts)):
        return False
    if not known.tests_apart and (parts[-1] in SETTINGS or parts[-1].endswith((".pyc", ".so", ".egg-link"))):
        return False
    if not known.tests_apart and (
        _is_compared(entry.path, known) or any(_in(entry.path, one) for one in known.helpers)
    ):
        return False
    top = parts[1] if parts[0] == "src" and len(parts) > 1 else parts[0]
    beside = (name for folder, name in _places(entry.path, known) if f"{folder}/{name}" not in known.present)
    return not any(_replaces(name, known) for name in (*beside, *([] if top in known.tops else [top])))


def _is_compared(path: str, known: Untouched) -> bool:
    """True if tests may compare with this existing file: it is not code, and no faulty file has its ending."""
    kinds = CODE | {_ending(file) for file in known.faulty}
    return bool(known.faulty) and path in known.present and _ending(path) not in kinds


def _places(path: str, known: Untouched) -> Iterator[tuple[str, str]]:
    """Yield the folders of tests that contain a path, each with the path's next part."""
    for folder in known.beside:
        if _in(path, folder):
            yield folder, path.removeprefix(f"{folder}/").partition("/")[0]


def _replaces(name: str, known: Untouched) -> bool:
    """True if a file or folder of this name replaces a module that is importable without the work tree."""
    module = _module(name)
    return module in RUNNER or module in sys.stdlib_module_names or module in known.modules


def _in(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def _ending(path: str) -> str:
    return PurePosixPath(path).suffix


def _module(name: str) -> str:
    """The name by which Python imports a file or folder."""
    return name.partition(".")[0] if name.endswith(MODULE_ENDINGS) else name


def source_changes(box: Box, task: RepositoryTask, saved: bytes) -> bytes:
    """Select the saved changes that count.

    Args:
        box: a fresh box.
    """
    tree = unpack(saved).tree
    known = read_untouched(box, task, [entry.path for entry in tree])
    return pack(Changes(0, tuple(entry for entry in tree if countable(entry, known))))


def judge(boxes: BoxMaker, task: RepositoryTask, saved: bytes, seconds: float) -> Judged:
    """Judge saved changes in a fresh box.

    Args:
        seconds: wall-clock limit on the tests.

    Raises:
        BoxLostError: if the infrastructure fails.
    """
    try:
        with closing(boxes.open(task.base)) as box:
            box.restore(source_changes(box, task, saved))
            return judge_in(box, task, seconds)
    except BoxFullError:
        return Judged(False, "no room on disk")


def judge_in(box: Box, task: RepositoryTask, seconds: float) -> Judged:
    """Run the task's tests on the present work tree of a box."""
    if task.folder:
        reward, spent = run_tests(box, Path(task.folder), seconds)
        why = "no reward was written" if reward is None else "tests fail"
        return Judged(True, "", (), spent) if reward is not None and reward >= 1 else Judged(False, why, (), spent)
    if task.test_patch and box.exec(APPLY, seconds, task.test_patch.encode()).status:
        return Judged(False, "the patch of tests does not apply")
    folder = task.test_files[0].rpartition("/")[0] if task.test_files else ""
    added = canaries(folder)
    box.write(added.path, added.text.encode())
    done = box.exec(_command(task, [*task.test_files, added.path]), seconds)
    if done.ended != "exit":
        return Judged(False, f"tests end by the limit on {done.ended}", task.tests, done.seconds)
    reports = reports_of(done.output)
    missing = tuple(test for test in task.tests if reports.get(test) != {"PASSED"})
    if added.alarm(reports):
        why = "the canary was not reported as failed" if reports else "no test was reported"
        return Judged(False, why, missing, done.seconds)
    return Judged(not missing, "tests fail" if missing else "", missing, done.seconds)


def reports_of(output: str) -> dict[str, set[str]]:
    """Read pytest's report on each test, also under R2E-Gym's name for it: "Class.test" without the file.

    Of several summaries only the last one counts, up to its line of totals; the result is empty if it reports more
    passed tests than that line. Otherwise a program could print reports of skipped tests.
    """
    header = None
    for header in SUMMARY.finditer(output):  # noqa: B007 - the last one is meant
        pass
    summary = output[header.end() :] if header else output
    counts = COUNTS.search(summary) if header else None
    reported = REPORT.findall(summary[: counts.start()] if counts else summary)
    if counts:
        said = NUM_PASSED.search(counts[0])
        if sum(outcome == "PASSED" for outcome, _ in reported) > (int(said[1]) if said else 0):
            return {}
    found: dict[str, set[str]] = {}
    for outcome, rest in reported:
        test = rest.strip() if outcome == "PASSED" else rest.split(" - ")[0].strip()
        for name in {test, ".".join(test.split("::")[1:]) or test}:
            found.setdefault(name, set()).add(outcome)
    return found


def _command(task: RepositoryTask, files: Sequence[str]) -> str:
    return task.command.replace("{tests}", " ".join(shlex.quote(file) for file in files))
