"""A task on a repository: the initial work tree, and the tests that decide."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from halfway.curriculum import Problem
from halfway.curriculum.boxes.box import Base
from halfway.curriculum.support.extras import blaming
from halfway.curriculum.tasks.sources import content_id

PYTEST = "python3 -m pytest -q --tb=no -rpfE --color=no -o addopts= -p no:cacheprovider {tests}"

TURN_BY_TURN = """\
Answer with one command per turn, in a block like this:

```bash
ls
```

Files are kept between commands; variables and the current folder are not. When you are done, answer:

```bash
submit
```

{statement}
"""

TO_MEND = """\
You work in a shell in the repository at {place}. Its code has the fault described below. Find it and fix it in
the source code, not in the tests.

"""
INSTRUCTIONS = TO_MEND + TURN_BY_TURN


@dataclass(frozen=True, slots=True)
class RepositoryTask:
    """One fault in one repository.

    Attributes:
        name: the task's name, for messages.
        base: the work tree before the fault.
        bug: a diff that introduces the fault; empty if the base has it.
        test_patch: a diff with tests that only the judge sees.
        fail_to_pass: tests that fail because of the fault and must pass.
        pass_to_pass: tests that pass despite the fault and must keep passing.
        command: the command that runs tests, with "{tests}" for the files of the listed tests; it must print pytest's
            lines of passed and failed tests, as with its option -rpfE.
        solution: a diff that fixes the fault, only for checks; empty if it is the fault's reverse.
        folder: a task folder of Harbor, whose script decides instead of listed tests; empty = none.
    """

    name: str
    base: Base
    bug: str = ""
    test_patch: str = ""
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    command: str = PYTEST
    solution: str = ""
    folder: str = ""

    @property
    def tests(self) -> tuple[str, ...]:
        """All tests that must pass."""
        return self.fail_to_pass + self.pass_to_pass

    @property
    def test_files(self) -> tuple[str, ...]:
        """The files that contain these tests, in order. R2E-Gym names its tests without their files."""
        return tuple(dict.fromkeys(test.partition("::")[0] for test in self.tests if "::" in test))


def to_problem(
    task: RepositoryTask,
    statement: str,
    source: str,
    features: Mapping[str, float | str],
    instructions: str = INSTRUCTIONS,
) -> Problem:
    """Make the policy's problem. Its answer is the task, for the environment.

    Args:
        statement: description of the fault.
        instructions: the prompt, with {place} and {statement}.
    """
    prompt = instructions.format(place=task.base.place, statement=statement.strip())
    answer = as_text(task)
    # The base's location on this machine is not part of the task.
    stated = as_text(replace(task, base=replace(task.base, tree=""), folder=""))
    return Problem(content_id(source, prompt, stated), prompt, answer, source, "exact", features)


def as_text(task: RepositoryTask) -> str:
    """Convert a task to JSON."""
    base = task.base
    return json.dumps(
        {
            "name": task.name,
            "base": {"tree": base.tree, "image": base.image, "place": base.place},
            "bug": task.bug,
            "test_patch": task.test_patch,
            "fail_to_pass": task.fail_to_pass,
            "pass_to_pass": task.pass_to_pass,
            "command": task.command,
            "solution": task.solution,
            **({"folder": task.folder} if task.folder else {}),
        }
    )


def from_text(text: str, problem_id: str) -> RepositoryTask:
    """The inverse of `as_text`. Raises UserError for other text."""
    what = f"environment repository: problem {problem_id!r} is of another task"
    remedy = "use a source of repositories, such as repository_rows"
    with blaming(what, remedy, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        facts = json.loads(text)
        base = Base(**facts.pop("base"))
        fail_to_pass, pass_to_pass = (tuple(facts.pop(name)) for name in ("fail_to_pass", "pass_to_pass"))
        return RepositoryTask(base=base, fail_to_pass=fail_to_pass, pass_to_pass=pass_to_pass, **facts)


TEST_FILE = re.compile(r"(^|/)(test_[^/]*|[^/]*_tests?\.py|conftest\.py|tests?\.py)$")
TEST_FOLDERS = frozenset({"test", "tests", "testing", "r2e_tests"})


def is_test(path: str) -> bool:
    """True if a file belongs to the tests, by its name."""
    return bool(TEST_FILE.search(path)) or not TEST_FOLDERS.isdisjoint(path.split("/"))
