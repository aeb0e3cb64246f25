"""A small repository with a fault, an agent that follows a script, and a mark for tests that need boxes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halfway.curriculum import Problem, UserError
from halfway.curriculum.boxes.box import Base, BoxLostError
from halfway.curriculum.boxes.bubblewrap import Bubblewrap
from halfway.curriculum.repositories.mutation import patch
from halfway.curriculum.repositories.task import RepositoryTask, to_problem
from halfway.trainers.engines.contract import Completion, Engine, Finished

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
    """Write a repository without a fault."""
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
    """A response in which the policy gives a command."""
    return f"I look.\n\n```bash\n{command}\n```\n"


END = 0


class Letters:
    """A tokenizer whose tokens are Unicode code points; 0 ends a response."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return list(map(ord, text))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return "".join(chr(token) for token in token_ids if token != END)


@dataclass
class Agent(Engine):
    """An engine that gives the commands of a script, one per turn of its context.

    Attributes:
        submits: whether a sequence whose seed is a multiple of 4 submits at once, without mending the fault.
    """

    script: Sequence[str]
    submits: bool = True

    def generate(
        self,
        contexts: Sequence[Any],
        max_new_tokens: Sequence[int],
        seeds: Sequence[int],
        finished: Finished | None = None,
    ) -> list[Completion]:
        assert finished is not None
        completions = []
        for i, context in enumerate(contexts):
            turn = "".join(map(chr, context)).count("I look.")
            command = "submit" if self.submits and seeds[i] % 4 == 0 else self.script[turn]
            tokens_T = np.asarray([*map(ord, said(command)), END], np.int32)
            zeros_T = np.zeros(len(tokens_T), np.float32)
            completions.append(Completion(tokens_T, zeros_T, zeros_T, "end", 0))
            finished(i, completions[-1])
        return completions

    def sync(self, policy: Any, version: int) -> None:
        pass
