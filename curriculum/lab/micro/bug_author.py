"""The flawed author of bugs in micro-repositories: the lab's generator of bugs learns its habits.

Most of what it writes is hopeless for a solver that has learned to fix operators: constants off by one, other names,
and lines with two faults. One text in eight is not a bug.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from halfway.curriculum.lab.micro import repositories as micro
from halfway.curriculum.lab.micro.bugs_domain import patch
from halfway.curriculum.lab.micro.repositories import KINDS, MicroRepository, Mutant

TWICE = "twice"

HABITS: Mapping[str, float] = {"operator": 0.2, "name": 0.25, "constant": 0.25, "compare": 0.1, TWICE: 0.2}


@dataclass(frozen=True)
class BugAuthor:
    """How bugs are drawn.

    Attributes:
        habits: weight of each kind of mutation, where the repository has a place for it; "twice" mutates one line two
            times.
        flawed: chance that a text is spoilt in one of the ways of `spoil`.
    """

    habits: Mapping[str, float] = field(default_factory=lambda: HABITS)
    flawed: float = 0.12


def write_bug(author: BugAuthor, repository: MicroRepository, rng: random.Random) -> str:
    """One text as the author writes it: where the edit is, what stands there, what it changes, and the new text."""
    if rng.random() < author.flawed:
        return spoil(repository, rng)
    mutants: dict[str, list[Mutant]] = {
        kind: [each for each in micro.mutants(repository) if each.kind == kind] for kind in KINDS
    }
    kinds = [kind for kind, found in mutants.items() if found] + [TWICE]
    (kind,) = rng.choices(kinds, [author.habits.get(kind, 0.0) for kind in kinds])
    edit = _twice(repository, rng) if kind == TWICE else rng.choice(mutants[kind])
    return patch(repository, edit.function, edit.line, edit.text)


def _twice(repository: MicroRepository, rng: random.Random) -> Mutant:
    """A line with two mutations, which differs from the original."""
    while True:
        first = rng.choice(micro.mutants(repository))
        line = (first.function, first.line)
        again = [each for each in micro.mutants(repository.mutated(first)) if (each.function, each.line) == line]
        second = rng.choice(again)
        known = {each.text for each in micro.mutants(repository) if (each.function, each.line) == line}
        if second.text not in known | {repository.lines(first.function)[first.line - 1]}:
            return second


def spoil(repository: MicroRepository, rng: random.Random) -> str:
    """A text that is not a bug: an unchanged line, a line that does not exist, or an expression without its end."""
    name, lines = rng.choice(repository.functions)
    number = rng.randrange(len(lines))
    match rng.randrange(3):
        case 0:
            return patch(repository, name, number + 1, lines[number])
        case 1:
            return f"{name}{len(lines) + 1}{lines[-1]}||{lines[-1]}"
        case _:
            return patch(repository, name, number + 1, lines[number][:-1])
