"""Bugs in micro-repositories, written by a generator: PROPEL's software-engineering domain at the lab's size.

The generator reads a repository and names a function, one of its lines, the old text, what changes, as a commit message
would, and the new text, each in a turn:

    prompt  f1c=g(a)+b|f2return c-3|h1c=b*2|h2return c+a|g1c=a+4|g2return c*2|
    text    f2return c-3|-+|return c+3

That is a small patch: like a real patch, it does not apply if the old text it quotes is wrong. Its edit is the bug, and
the message has to be true of the edit; otherwise a generator learns to describe good bugs to a probe while writing
others. What the repository's tests say about the bug is the solver's issue. In the paper the generator works with a
shell, and its diff is the bug (section 4.2, "SWE").
"""

import random
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest

from halfway.curriculum.domains.base import Invalid
from halfway.curriculum.lab.micro import repositories as micro
from halfway.curriculum.lab.micro.repositories import FUNCTIONS, MODULES, MicroOptions, MicroRepository
from halfway.curriculum.lab.micro.testing import MicroTests, Report
from halfway.curriculum.problems import Problem
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import require
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.tasks.sources import content_id

OTHER = "other"
_LINE = r"([a-z0-9+\-*<>=:(), ]{1,24})"
PATCH = re.compile(rf"([fgh])([1-9]){_LINE}\|([a-z0-9+\-*<>=:(), ]{{0,48}})\|{_LINE}")


@dataclass(frozen=True, slots=True)
class Bug:
    """An edit of one line.

    Attributes:
        number: the repository's number.
        kind: the kind of mutation; "other" for an edit that is not a mutation.
        failing: tests that fail because of the bug; empty until it is checked.
    """

    number: int
    function: str
    line: int
    text: str
    kind: str
    failing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bugs:
    """Bugs in a fixed set of micro-repositories, for the environment `micro_repository`.

    A text holds one edit of the kind that a solver makes, so every bug can be fixed by one edit.

    A bug is valid if it changes a line, the suite still runs, at least one test of the repository fails, at least one
    still passes, and two runs agree; and if the runner can be trusted, that is, a test with an unknown name that has to
    fail is reported as failed. Tests cannot be edited.

    Attributes:
        repositories: number of repositories, each with one prompt.
        seed: seed from which the repositories are drawn.
        micro: how the repositories are drawn.
        seconds: time limit on one run of a suite.
    """

    repositories: int = 256
    seed: int = 0
    micro: MicroOptions = field(default_factory=MicroOptions)
    seconds: float = 2.0

    def __post_init__(self) -> None:
        require(self.repositories >= 1, "bugs.repositories", self.repositories, "give at least 1")
        require(self.seed >= 0, "bugs.seed", self.seed, "give 0 or more")
        MicroTests(self.seconds)

    @property
    def name(self) -> str:
        return "bugs"

    @property
    def open(self) -> bool:
        return False

    @cached_property
    def known(self) -> Mapping[str, tuple[int, MicroRepository]]:
        """Prompt -> number and repository."""
        found: dict[str, tuple[int, MicroRepository]] = {}
        rng = random.Random(self.seed)
        while len(found) < self.repositories:
            repository = micro.make(rng, self.micro)
            found.setdefault(shown(repository), (len(found), repository))
        return found

    @cached_property
    def tests(self) -> MicroTests:
        """What runs the suites; it remembers no run, so that two runs can differ."""
        return MicroTests(self.seconds, keep=0)

    def prompt(self, stream: Stream) -> str:
        return list(self.known)[stream.integer() % self.repositories]

    def parse(self, text: str, prompt: str = "") -> Bug | Invalid:
        if prompt not in self.known:
            return Invalid("of no repository", one_line(prompt))
        number, repository = self.known[prompt]
        match = PATCH.fullmatch(text)
        if match is None:
            return Invalid("unreadable", one_line(text))
        function, line, old, new = match[1], int(match[2]), match[3], match[5]
        lines = repository.lines(function)
        if line > len(lines):
            return Invalid("no such line", f"{function} has {len(lines)}, not {line}")
        if old != lines[line - 1]:
            return Invalid("does not apply", f"{lines[line - 1]}, not {old}")
        if new.strip() == old:
            return Invalid("changes nothing", one_line(text))
        if match[4] != message(old, new):
            return Invalid("says something else", f"{message(old, new)}, not {match[4]}")
        kinds = {(each.function, each.line, each.text): each.kind for each in micro.mutants(repository)}
        return Bug(number, function, line, new, kinds.get((function, line, new), OTHER))

    def check(self, tasks: Sequence[Bug]) -> list[Bug | Invalid]:
        """Run the tests of every edited repository twice, in the sandbox. Repeated tasks are not run again."""
        canary = f"test_{secrets.token_hex(8)}"
        different = list(dict.fromkeys(tasks))
        files = [with_canary(micro.files(self.edited(task)), canary) for task in different for _ in range(2)]
        reports = self.tests.run(files)
        judged = {task: self._judge(task, canary, *reports[2 * i : 2 * i + 2]) for i, task in enumerate(different)}
        return [judged[task] for task in tasks]

    def _judge(self, task: Bug, canary: str, first: Report, second: Report) -> Bug | Invalid:
        for report in (first, second):
            if report.fault:
                return Invalid("the suite does not run", report.fault)
            if canary not in report.failed:
                return Invalid("the runner is not to be trusted")
        names = {case.name for case in self.repository(task.number).tests}
        failing, again = (tuple(sorted(names - set(report.passed))) for report in (first, second))
        if failing != again:
            return Invalid("not deterministic")
        if not failing:
            return Invalid("no test fails")
        return replace(task, failing=failing) if len(failing) < len(names) else Invalid("no test passes")

    def problem(self, task: Bug) -> Problem:
        """The problem, with the id that the lab's own source would give it, so that a bug from both is one problem."""
        assert task.failing, "the bug has not been checked"
        broken = self.edited(task)
        case = next(case for case in broken.tests if case.name in task.failing)
        prompt, answer = f"@{case.call}={case.wanted}?", micro.to_text(broken)
        features: dict[str, float | str] = {
            "repository": str(task.number),
            "kind": task.kind,
            "function": task.function,
            "line": task.line,
            "failing": len(task.failing),
            "topic": self.topic(task),
        }
        identity = content_id("micro_repositories", prompt, answer)
        return Problem(identity, prompt, answer, self.name, "micro_repository", features)

    def topic(self, task: Bug) -> str:
        """The edited file."""
        return f"{MODULES[task.function]}.py"

    def turns(self, text: str) -> tuple[str, ...]:
        """The generator's turns: function, line, old text, message, new text. A text that is no patch is one turn."""
        match = PATCH.fullmatch(text)
        return (match[1], match[2], f"{match[3]}|", f"{match[4]}|", match[5]) if match else (text,)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of mutations."""
        return micro.KINDS

    def mutation(self, prompt: str, stream: Stream, kind: str = "") -> str:
        """A bug by mutation, drawn uniformly from the single edits of the grammar: the baseline for generators.

        Args:
            kind: the only kind drawn, if the repository has a place for it; "" = any.
        """
        _, repository = self.known[prompt]
        every = micro.mutants(repository)
        found = [each for each in every if each.kind == kind] or every
        chosen = found[stream.integer() % len(found)]
        return patch(repository, chosen.function, chosen.line, chosen.text)

    def repository(self, number: int) -> MicroRepository:
        """The repository with this number, without a bug."""
        return list(self.known.values())[number][1]

    def edited(self, task: Bug) -> MicroRepository:
        return self.repository(task.number).edited(task.function, task.line, task.text)


def shown(repository: MicroRepository) -> str:
    """All functions as the generator reads them: each line as the edit that would leave it unchanged."""
    return "".join(f"{name}{i}{line}|" for name in FUNCTIONS for i, line in enumerate(repository.lines(name), 1))


def patch(repository: MicroRepository, function: str, line: int, text: str) -> str:
    """An edit of an existing line, as the generator writes it."""
    old = repository.lines(function)[line - 1]
    return f"{function}{line}{old}|{message(old, text)}|{text}"


def message(old: str, new: str) -> str:
    """What an edit changes: each character that changes and what it becomes, such as "-+" for a minus made a plus.

    Characters are compared from the left; one that the other text lacks is named alone.
    """
    return "".join(before + after for before, after in zip_longest(old, new, fillvalue="") if before != after)


def with_canary(files: Mapping[str, str], name: str) -> dict[str, str]:
    """The files with a test that has to fail."""
    return {**files, "test_m.py": f"{files['test_m.py']} def {name}(self): self.assertEqual(0, 1)\n"}
