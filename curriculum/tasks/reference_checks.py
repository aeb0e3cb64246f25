"""Checks the answers of a file with their verifiers: many at a time, and once per file.

A verifier with its own processes takes milliseconds for an answer. So the results for a file are cached for the user,
under a hash of the file, of the options with which it was read, and of the verifier.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import cache
from hashlib import blake2b, file_digest
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

from halfway.curriculum import Problem, UserError
from halfway.curriculum.support.atomic import read_json, write_json
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.support.user_cache import user_cache
from halfway.curriculum.tasks.data_files import Bad
from halfway.curriculum.tasks.verifiers.exact_numeric import Batched
from halfway.curriculum.tasks.verifiers.helpers import PROCESSES
from halfway.curriculum.tasks.verifiers.verify import VERIFIERS, find_verifier

PACKAGES = ("latex2sympy2_extended", "math-verify", "reasoning-gym", "sympy")
"""Packages with which built-in verifiers read answers."""

SLOW, PATIENCE, PATIENCE_PER_ANSWER = 1.0, 30.0, 0.1
"""Seconds from which an answer counts as slow, and of all slow answers together, for each process and each answer."""


class AnswerChecks:
    """The checks of one file's answers; the results are cached when the block ends without an error."""

    def __init__(self, path: Path, options: str):
        """
        Args:
            options: all other settings that determine the problems.
        """
        self._path, self._options = path, options
        self._memory: Path | None = None
        self._known: dict[str, str] | None = None
        self._found: dict[str, str] = {}
        self._opened = False
        self._waited = 0.0
        self._state = self._stat()

    def __enter__(self) -> "AnswerChecks":
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None and self._memory is not None and self._known is None and self._stat() == self._state:
            with suppress(UserError):  # only a cache
                write_json(self._memory, self._found)

    def _stat(self) -> tuple[int, ...]:
        """Facts about the file that change with its content."""
        with suppress(OSError):
            found = self._path.stat()
            return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        return ()

    def check(self, numbers: Sequence[int], made: Sequence[Problem | Bad]) -> list[Problem | Bad]:
        """Check rows; a problem whose verifier cannot read its answer becomes a `Bad`.

        Args:
            numbers: number of each row in the file.
        """
        result, apart = list(made), []
        named = {problem.verifier for problem in made if isinstance(problem, Problem)}
        batched = {name for name in named if isinstance(find_verifier(name), Batched)}
        for i, problem in enumerate(made):
            if isinstance(problem, Problem):
                if problem.verifier in batched:
                    apart.append(i)
                elif why := _trouble(problem):
                    result[i] = _unreadable(problem, why)
        if apart:
            whys = self._troubles([str(numbers[i]) for i in apart], [made[i] for i in apart])  # type: ignore[misc]
            for i, why in zip(apart, whys, strict=True):
                if why:
                    result[i] = _unreadable(made[i], why)  # type: ignore[arg-type]
        return result

    def _troubles(self, numbers: Sequence[str], problems: Sequence[Problem]) -> list[str]:
        """Each verifier's complaint about an answer, "" if none: from the cache, or from all helpers together."""
        if not self._opened:
            self._open({problem.verifier for problem in problems})
        if self._known is not None:
            return [self._known.get(number, "") for number in numbers]
        whys = []
        with (
            ThreadPoolExecutor(PROCESSES) as threads,
            closing(cast(Any, threads.map(_timed_trouble, problems))) as found,
        ):
            for why, seconds in found:
                whys.append(why)
                self._waited += seconds if seconds > SLOW else 0
                if self._waited > PATIENCE * PROCESSES + PATIENCE_PER_ANSWER * len(whys):
                    raise UserError(
                        f"{self._path}: verifiers take more than {SLOW:g} s for many of its answers; correct them, or "
                        "set the source's check_answers to false"
                    )
        self._found |= {number: why for number, why in zip(numbers, whys, strict=True) if why}
        return whys

    def _open(self, verifiers: set[str]) -> None:
        self._opened, folder = True, user_cache("answers")
        if folder is None or not verifiers <= VERIFIERS.builtin.keys():
            return
        with open(self._path, "rb") as file:
            content = file_digest(file, "blake2b").digest()
        facts = repr((self._options, _program())).encode()
        self._memory = folder / f"{blake2b(content + facts, digest_size=20).hexdigest()}.json"
        with suppress(UserError):
            if self._memory.exists():
                self._known = read_json(self._memory, kind=dict[str, str])


def _trouble(problem: Problem) -> str:
    """A verifier's complaint about an answer that it cannot read; "" if it can."""
    try:
        find_verifier(problem.verifier)(problem, "")
    except UserError:
        raise
    except Exception as error:
        return one_line(error)
    return ""


def _timed_trouble(problem: Problem) -> tuple[str, float]:
    """The result of `_trouble`, and its seconds."""
    began = time.monotonic()
    return _trouble(problem), time.monotonic() - began


def _unreadable(problem: Problem, why: str) -> Bad:
    return Bad(f"answer that verifier {problem.verifier} cannot read", why)


@cache
def _program() -> tuple[str, ...]:
    """The code of readers and verifiers, and the versions of its packages."""
    code = [blake2b(path.read_bytes()).hexdigest() for path in sorted(Path(__file__).parent.rglob("*.py"))]
    versions = []
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions.append(f"{package} {version(package)}")
    return (*code, *versions)
