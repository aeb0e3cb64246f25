"""A small repository with a fault, and whether this machine can run boxes."""

from pathlib import Path

import pytest

from halfway.curriculum.boxes.base import Base, BoxLostError
from halfway.curriculum.boxes.bubblewrap import Bubblewrap
from halfway.curriculum.problems import Problem
from halfway.curriculum.repositories.mutation import patch
from halfway.curriculum.repositories.task import RepositoryTask, to_problem
from halfway.curriculum.support.errors import UserError

SOUND = '''"""Means."""


def total(values):
    result = 0
    for value in values:
        result += value
    return result


def mean(values):
    return total(values) / len(values)
'''
FAULTY = SOUND.replace("result += value", "result -= value")
TESTS = """import pytest
from stats.means import mean, total


def test_total():
    assert total([1, 2, 3]) == 6


def test_nothing():
    assert total([]) == 0


@pytest.mark.parametrize("values", [[1, 3], [2, 2]])
def test_mean(values):
    assert mean(values) == 2
"""
FAIL = ("tests/test_means.py::test_total", "tests/test_means.py::test_mean[values0]")
PASS = ("tests/test_means.py::test_nothing",)
MEND = "sed -i 's/result -= value/result += value/' stats/means.py"


def _trouble() -> str:
    try:
        box = Bubblewrap().open(Base(str(Path(__file__).parent)))
        box.close()
    except (UserError, BoxLostError) as error:
        return str(error)
    return ""


TROUBLE = _trouble()
needs_boxes = pytest.mark.skipif(bool(TROUBLE), reason=TROUBLE or "never")


def small_repository(folder: Path) -> Base:
    """Writes a repository without a fault."""
    for path, text in {"stats/__init__.py": "", "stats/means.py": SOUND, "tests/test_means.py": TESTS}.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return Base(str(folder))


def small_task(folder: Path) -> RepositoryTask:
    bug = patch("stats/means.py", SOUND, FAULTY)
    return RepositoryTask("means", small_repository(folder), bug, "", FAIL, PASS)


def small_problem(folder: Path) -> Problem:
    return to_problem(small_task(folder), "Sums are negative.", "test", {})


def said(command: str) -> str:
    """A response of a policy."""
    return f"I look.\n\n```bash\n{command}\n```\n"
