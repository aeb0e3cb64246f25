"""Makes tasks from source distributions of the package index, each with one fault by mutation."""

import errno
import gzip
import hashlib
import tarfile
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from halfway.curriculum import Problem, Stream, UserError, require
from halfway.curriculum.boxes import make_boxes
from halfway.curriculum.boxes.box import Base, BoxMaker
from halfway.curriculum.boxes.starting_trees import cache_folder
from halfway.curriculum.repositories.judge import reports_of
from halfway.curriculum.repositories.mutation import Mutant, Site, patch, sites
from halfway.curriculum.repositories.task import PYTEST, RepositoryTask, is_test, to_problem
from halfway.curriculum.support.atomic import LARGEST, made_once, reading
from halfway.curriculum.support.extras import blaming
from halfway.curriculum.tasks.sources import Loaded, Source, SourceReport

LEFT_OUT = ("setup.py", "noxfile.py", "docs/", "doc/", "examples/", "benchmarks/", "scripts/", "tools/")
STATEMENT = """\
The tests of {name} failed after the last change. The fault is somewhere below {folder}.
Among the tests that fail:
{tests}
"""
SHOWN_TESTS = 3
MOST_BYTES, MOST_TIMES = 64 * 2**20, 100
"""Maximum number of bytes of an unpacked archive, and maximum multiple of its packed size; the larger limit applies."""

LONGEST_SOURCE = 1 << 20
"""Maximum number of bytes of a file that is changed: its syntax tree may take a hundred times as many."""
MOST_FILES, MOST_LEVELS, LONGEST_NAME = 50_000, 50, 1024
NO_ARCHIVE = (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, ValueError, LookupError, OverflowError)
UNWRITABLE = (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.ENOENT)
"""Errors for which a member's name is to blame, such as a file within a file, and not the disk."""


@dataclass(frozen=True)
class RepositoryArchives(Source):
    """Source distributions (tar.gz) with tests, each mutated many times; a mutant that makes tests fail is a task.

    Every mutant runs the whole suite in a box, so a task costs about as much time as the suite. Tests whose outcome
    differs between two runs of the unchanged suite are ignored.

    Attributes:
        archives: file -> SHA-256 hash of its content.
        seconds: time limit on one run of a suite.
        box: as for the environment `repository`.
    """

    archives: dict[str, str]
    seconds: float = 120.0
    box: dict[str, Any] = field(default_factory=lambda: {"bubblewrap": {}})

    def __post_init__(self) -> None:
        require(bool(self.archives), "repository_archives.archives", self.archives, "give at least one file: hash")
        require(self.seconds > 0, "repository_archives.seconds", self.seconds, "give a positive number")

    def load(self, wanted: int | None, stream: Stream) -> Loaded:
        """Make tasks from all archives in turn."""
        if wanted is None:
            raise UserError(
                "source repository_archives: each task is made by running tests; give their number in problems.train"
            )
        dropped: Counter[str] = Counter()
        examples: list[str] = []
        waiting = [self._tasks(project, stream, dropped) for project in self._projects(dropped, examples)]
        found: list[Problem] = []
        while waiting and len(found) < wanted:
            for tasks in list(waiting):
                problem = next(tasks, None)
                if problem is None:
                    waiting.remove(tasks)
                elif len(found) < wanted:
                    found.append(problem)
        if len(found) < wanted:
            why = ", ".join(f"{n} {reason}" for reason, n in dropped.items())
            first = f"; first: {examples[0]}" if examples else ""
            raise UserError(
                f"source repository_archives: {wanted} problems wanted, {len(found)} found ({why}{first}); ask for "
                "fewer, or give more archives"
            )
        return Loaded(tuple(found), SourceReport(len(found), dict(dropped), tuple(examples)))

    @cached_property
    def boxes(self) -> BoxMaker:
        return make_boxes(self.box, "repository_archives.box")

    def _projects(self, dropped: Counter[str], examples: list[str]) -> Iterator["Project"]:
        for path, sha256 in self.archives.items():
            project = Project(Path(path).name.removesuffix(".tar.gz"), Base(str(unpack(Path(path), sha256))))
            outcomes = [run_suite(self.boxes, project.base, "", self.seconds) for _ in range(2)]
            steady = sorted(test for test in outcomes[0] & outcomes[1])
            if steady:
                yield Project(project.name, project.base, tuple(steady))
            else:
                dropped["archive whose tests do not run"] += 1
                examples.append(
                    f"{path}: no test passes twice; name an environment with its requirements in box.bubblewrap.python"
                )

    def _tasks(self, project: "Project", stream: Stream, dropped: Counter[str]) -> Iterator[Problem]:
        """Yield valid mutants of one project, in an order drawn from the stream."""
        for mutant in project.shuffle(stream.at(project.name)):
            before = (Path(project.base.tree) / mutant.path).read_text()
            bug = patch(mutant.path, before, mutant.text)
            passed = run_suite(self.boxes, project.base, bug, self.seconds)
            failing = tuple(test for test in project.tests if test not in passed)
            if not failing:
                dropped["mutant that no test notices"] += 1
            elif len(failing) == len(project.tests):
                dropped["mutant under which no test passes"] += 1
            else:
                yield self._problem(project, mutant, bug, failing)

    def _problem(self, project: "Project", mutant: Mutant, bug: str, failing: tuple[str, ...]) -> Problem:
        failed = set(failing)
        going = tuple(test for test in project.tests if test not in failed)
        task = RepositoryTask(f"{project.name}:{mutant.function}:{mutant.kind}", project.base, bug, "", failing, going)
        shown, folder = "\n".join(failing[:SHOWN_TESTS]), mutant.path.partition("/")[0]
        statement = STATEMENT.format(name=project.name, folder=folder, tests=shown)
        features: dict[str, float | str] = {"repository": project.name, "kind": mutant.kind, "file": mutant.path}
        return to_problem(task, statement, "repository_archives", features)


@dataclass(frozen=True)
class Project:
    """An unpacked source distribution and its usable tests.

    Attributes:
        tests: tests that pass twice on the unchanged tree.
    """

    name: str
    base: Base
    tests: tuple[str, ...] = ()

    def files(self) -> list[str]:
        """List the source files that a mutation may change, by path."""
        root = Path(self.base.tree)
        paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py") if not path.is_symlink())
        return [path for path in paths if not is_test(path) and not path.startswith(LEFT_OUT)]

    def shuffle(self, stream: Stream) -> Iterator[Mutant]:
        """Yield every mutant of every file, in random order."""
        files = self.files()
        ends = list(accumulate(sum(1 for _ in self._sites(path)) for path in files))
        for i in map(int, stream.generator().permutation(ends[-1] if ends else 0)):
            file = bisect_right(ends, i)
            # Made again: all sites together, with the trees that they belong to, may fill the memory.
            site = next(islice(self._sites(files[file]), i - (ends[file - 1] if file else 0), None))
            mutant = site.mutant()
            if mutant is not None:
                yield mutant

    def _sites(self, path: str) -> Iterator[Site]:
        file = Path(self.base.tree) / path
        with suppress(UnicodeDecodeError):
            if file.stat().st_size <= LONGEST_SOURCE:
                yield from sites(path, file.read_text())


def run_suite(boxes: BoxMaker, base: Base, bug: str, seconds: float) -> set[str]:
    """Run the suite in a fresh box with the diff applied; returns the tests that pass.

    Returns none if the suite hangs or the diff does not apply. Test files are named explicitly, so that a suite is
    found wherever it is.
    """
    with closing(boxes.open(base)) as box:
        if bug and box.exec("git apply --whitespace=nowarn -", seconds, bug.encode()).status:
            return set()
        done = box.exec(PYTEST.replace("{tests}", ""), seconds)
    if done.ended != "exit":
        return set()
    return {test for test, outcomes in reports_of(done.output).items() if "::" in test and outcomes == {"PASSED"}}


def unpack(archive: Path, sha256: str) -> Path:
    """Unpack an archive, once; returns the folder.

    Raises:
        UserError: if the file does not exist, is not an archive, or has another hash.
    """
    remedy = "pip download --no-binary :all: gets it"
    if not archive.is_file():
        raise UserError(f"{archive}: is not a file; {remedy}")
    with reading(archive, remedy), archive.open("rb") as file:
        if archive.stat().st_size > LARGEST:
            raise ValueError(f"holds more than {LARGEST >> 20} MiB")
        found = hashlib.file_digest(file, "sha256").hexdigest()
    require(found == sha256, f"{archive}: SHA-256", found, f"expected {sha256}; get that version")
    folder = cache_folder("") / "archives" / found[:24]
    if folder.is_dir():
        return folder
    with made_once(folder) as partial:
        with blaming(f"{archive}: not a source distribution", "give a .tar.gz", *NO_ARCHIVE):
            _extract(archive, partial / "all")
        inside = list((partial / "all").iterdir())
        if not folder.is_dir():
            alone = len(inside) == 1 and inside[0].is_dir() and not inside[0].is_symlink()
            (inside[0] if alone else partial / "all").rename(folder)
    return folder


def _extract(archive: Path, folder: Path) -> None:
    """Unpack an archive as a stream, up to `MOST_BYTES` or `MOST_TIMES` its size, whichever is more.

    Raises:
        ValueError: if it unpacks to more, its folders are nested too deeply, or it would write through a link.
    """
    most = max(MOST_BYTES, MOST_TIMES * archive.stat().st_size)
    folder.mkdir()
    with gzip.open(archive) as unpacked:
        bounded: Any = _Bounded(unpacked, most)  # tarfile only reads a stream
        with tarfile.open(fileobj=bounded, mode="r|") as opened:
            for number, member in enumerate(opened):
                if number == MOST_FILES or member.name.count("/") > MOST_LEVELS:
                    raise ValueError(f"more than {MOST_FILES} files, or folders deeper than {MOST_LEVELS}")
                _require_no_way_out(folder, member)
                try:
                    opened.extract(member, folder, filter="data")
                except OSError as error:
                    if error.errno in UNWRITABLE:
                        raise ValueError(f"member {member.name[:100]!r}: {error.strerror}") from None
                    raise


def _require_no_way_out(folder: Path, member: tarfile.TarInfo) -> None:
    """Refuse a member that would be written through a link: before Python 3.11.14, tarfile resolves no long paths."""
    for name in (member.name, member.linkname):
        if len(name) > LONGEST_NAME:
            raise ValueError(f"a name of more than {LONGEST_NAME} characters")
    for name in (member.name, member.linkname) if member.islnk() else (member.name,):
        path = folder / name.lstrip("/")
        if any(each.is_symlink() for each in (path, *path.parents) if each.is_relative_to(folder)):
            raise ValueError(f"a file behind a link: {name[:100]!r}")


class _Bounded:
    """A file with a limit on the bytes read from it."""

    def __init__(self, file: gzip.GzipFile, most: int):
        self.file, self.most, self.left = file, most, most

    def read(self, size: int) -> bytes:
        found = self.file.read(min(size, self.left + 1))
        self.left -= len(found)
        if self.left < 0:
            raise ValueError(f"it unpacks to more than {self.most} bytes")
        return found
