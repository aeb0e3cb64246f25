"""Marked parts of responses: as the regular expressions that say it in one line find them, and in linear time."""

import re
import time

import numpy as np
import pytest

from halfway.curriculum.support.blocks import between, fenced
from halfway.curriculum.tasks.function_induction import last_python_block
from halfway.trainers.propel.domains.base import Invalid
from halfway.trainers.propel.domains.induction import FunctionInduction
from halfway.trainers.propel.domains.maths import Maths

FENCED = re.compile(r"^```(\w+)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```(bash|sh)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
TAGS = re.compile(r"<a>(.*?)</a>", re.DOTALL)
PIECES = (
    "```",
    "```bash",
    "```python",
    "```sh",
    "\n",
    "\n",
    "\n",
    " ",
    "\t",
    "x",
    "```a b",
    "````",
    "\r\n",
    "é",
    "\u2028",
)


def test_the_blocks_are_those_that_regular_expressions_find() -> None:
    stream = np.random.default_rng(0)
    found = 0
    for _ in range(3000):
        text = "".join(stream.choice(PIECES, stream.integers(1, 30)))
        assert fenced(text) == FENCED.findall(text)
        assert fenced(text, "bash", "sh") == SHELL.findall(text)
        marks = "".join(stream.choice(["<a>", "</a>", "<", "a>", "/", "\n", "x"], stream.integers(1, 20)))
        assert between(marks, "<a>", "</a>") == TAGS.findall(marks)
        found += len(fenced(text)) + len(between(marks, "<a>", "</a>"))
    assert found > 1000


# The regular expressions take more than half an hour.
@pytest.mark.parametrize("name", ["answer", "read", "maths", "between"])
def test_200_000_openings_without_an_end_take_seconds(name: str) -> None:
    count = 200_000
    started = time.process_time()
    if name == "answer":
        assert last_python_block("```python\n" * count) is None
    elif name == "read":
        assert FunctionInduction().parse("```python\n" * count) == Invalid("not one function", "0 python blocks")
    elif name == "maths":
        task = Maths().parse("<problem>" * count)
        assert isinstance(task, Invalid) and task.reason == "unreadable"
    else:
        assert between("<a>" * count, "<a>", "</a>") == []
    assert time.process_time() - started < 20
