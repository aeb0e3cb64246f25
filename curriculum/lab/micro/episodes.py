"""Fixing micro-repositories: what a policy reads and writes, the problems, and the flawed teacher of the warm start.

The prompt is an issue, `@f23=12?`: f(2, 3) should be 12. A command per turn:

    ?f            shows a function         1c=g(a)+b;2return c-3|
    t             runs the tests           2f23:10!12|     two fail, the first since f(2, 3) is 10 and not 12; 0| = none
    f2return c-2  edits a line, and tests  +0|             kept, since fewer tests fail now; -1h31:5!6| = taken back
    !             submits
"""

import random
import re
from dataclasses import dataclass

from halfway.curriculum.lab.micro import repositories as micro
from halfway.curriculum.lab.micro.repositories import KINDS, Kind, MicroOptions, MicroRepository, Mutant
from halfway.curriculum.lab.micro.testing import Report

LOOK = re.compile(r"\?([fgh])")
EDIT = re.compile(r"([fgh])([1-9])([a-z0-9+\-*<>=:(), ]{1,24})")
TEST, SUBMIT = "t", "!"
UNKNOWN = "?|"
_GOT = re.compile(r"(-?\d{1,4}) != -?\d+")

BUGS: dict[str, float] = {"operator": 3.0, "constant": 1.0, "name": 1.0, "compare": 1.0}
"""Weight of each kind of bug, where the repository has a place for it."""


@dataclass(frozen=True, slots=True)
class MicroTask:
    """A repository with a bug.

    Attributes:
        repository: the repository with the bug.
        bug: the edit that introduced the bug.
        fix: the edit that fixes the bug.
        prompt: the issue.
    """

    repository: MicroRepository
    bug: Mutant
    fix: Mutant
    prompt: str


@dataclass(frozen=True)
class MicroTeacher:
    """The flawed teacher.

    Attributes:
        test: chance of running the tests first.
        look: chance of looking at g as well, before the first edit, if f calls it.
        skill: chance of the right edit if the teacher has seen the line; otherwise it edits any line that it has seen.
        give_up: chance of submitting while tests fail, before each edit but the first.
        kinds: weights of the kinds of its edits.
    """

    test: float = 0.3
    look: float = 0.5
    skill: float = 0.25
    give_up: float = 0.35
    kinds: tuple[Kind, ...] = KINDS


def make_task(rng: random.Random, options: MicroOptions | None = None) -> MicroTask:
    """Draw a repository and a bug that makes some of its tests fail, but not all."""
    options = options or MicroOptions()
    while True:
        repository = micro.make(rng, options)
        found = [mutant for mutant in micro.mutants(repository) if mutant.kind in options.kinds]
        if not found:
            continue
        kinds = sorted({mutant.kind for mutant in found})
        (kind,) = rng.choices(kinds, [BUGS[kind] for kind in kinds])
        bug = rng.choice([mutant for mutant in found if mutant.kind == kind])
        broken = repository.mutated(bug)
        failing = micro.failing(broken)
        if 0 < len(failing) < len(repository.tests):
            case = failing[0][0]
            if options.named and case.function != bug.function:
                continue
            fix = bug._replace(text=repository.lines(bug.function)[bug.line - 1])
            return MicroTask(broken, bug, fix, f"@{case.call}={case.wanted}?")


def shown(repository: MicroRepository, function: str) -> str:
    """A function as the policy reads it."""
    return ";".join(f"{i}{line}" for i, line in enumerate(repository.lines(function), 1)) + "|"


def told(repository: MicroRepository, report: Report) -> str:
    """A run of the tests as the policy reads it."""
    if report.fault:
        return "E|"
    failed = [case for case in repository.tests if case.name not in report.passed]
    if not failed:
        return "0|"
    got = _GOT.fullmatch(report.failed.get(failed[0].name, ""))
    return f"{len(failed)}{failed[0].call}:{got.group(1) if got else 'E'}!{failed[0].wanted}|"


def num_failing(repository: MicroRepository, report: Report) -> int:
    """Number of the repository's tests that did not pass; all of them if none could be run."""
    return sum(case.name not in report.passed for case in repository.tests)


def computed(repository: MicroRepository) -> Report:
    """The report on a repository whose lines all come from the grammar, computed without the sandbox."""
    failed = {case.name: f"{got} != {case.wanted}" for case, got in micro.failing(repository)}
    return Report(tuple(case.name for case in repository.tests if case.name not in failed), failed)


def demonstrate(task: MicroTask, teacher: MicroTeacher, max_turns: int, rng: random.Random) -> list[tuple[str, str]]:
    """An episode as the teacher plays it: one (command, observation) per turn."""
    repository, report = task.repository, computed(task.repository)
    turns = [(TEST, told(repository, report))] if rng.random() < teacher.test else []
    seen = [task.prompt[1]]
    if seen == ["f"] and "g(" in repository.lines("f")[0] and rng.random() < teacher.look:
        seen.append("g")
    turns += [(f"?{name}", shown(repository, name)) for name in seen]
    edits = 0
    while report.failed and len(turns) < max_turns - 1 and not (edits and rng.random() < teacher.give_up):
        edits += 1
        edit = _edit(task, repository, seen, teacher, rng)
        after = repository.mutated(edit)
        outcome = computed(after)
        kept = len(outcome.failed) < len(report.failed)
        turns.append((f"{edit.function}{edit.line}{edit.text}", "-+"[kept] + told(after, outcome)))
        if kept:
            repository, report = after, outcome
    return [*turns, (SUBMIT, "")]


def _edit(
    task: MicroTask, repository: MicroRepository, seen: list[str], teacher: MicroTeacher, rng: random.Random
) -> Mutant:
    if task.fix.function in seen and rng.random() < teacher.skill:
        return task.fix
    found = micro.mutants(repository)
    return rng.choice([mutant for mutant in found if mutant.function in seen and mutant.kind in teacher.kinds])
