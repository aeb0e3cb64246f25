"""Micro-repositories: two modules, three short functions and unittest files, from a grammar, with bugs by mutation.

    m.py                          n.py                   test_m.py
    from n import g               def g(a):              import unittest
    def f(a, b):                   c=a+4                 from m import f, h
     c=g(a)+b                      return c*2            from n import g
     return c-3                                          class T(unittest.TestCase):
    def h(a, b): ...                                      def test_f_23(self): self.assertEqual(f(2, 3), 12) ...

`make` draws one that passes its tests, `mutants` lists the single edits of it, `files` writes it out, and
`testing.MicroTests` runs it. What a policy has edited is run there only, that is, in the sandbox; `value` is for
lines that come from this grammar.
"""

import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CodeType
from typing import Any, Literal, NamedTuple

from halfway.curriculum.support.errors import require

Kind = Literal["operator", "name", "constant", "compare"]
KINDS: tuple[Kind, ...] = ("operator", "name", "constant", "compare")

ARGUMENTS = {"f": "ab", "h": "ab", "g": "a"}
MODULES = {"f": "m", "h": "m", "g": "n"}
FUNCTIONS = tuple(ARGUMENTS)
OPERATORS = "+-*"
LARGEST = 99
"""No test wants a result beyond this."""

HEAD = "import unittest\nfrom m import f, h\nfrom n import g\nclass T(unittest.TestCase):\n"
_VALUE = r"(?:g\([ab]\)|[abc]|\d)"
LINE = re.compile(rf"(?:c=|return |if [abc][<>]\d:c=){_VALUE}[-+*]{_VALUE}")
"""A line of the grammar: nothing but arithmetic of small numbers, so that it may run outside the sandbox."""

_PLACES = re.compile(r"(?P<operator>[-+*])|(?P<compare>[<>])|(?P<constant>\d)|(?P<name>\b[abc]\b(?!=))")


class Case(NamedTuple):
    """One test: a call with small numbers, and what it should return."""

    function: str
    arguments: tuple[int, ...]
    wanted: int

    @property
    def call(self) -> str:
        """Such as "f23", for f(2, 3)."""
        return self.function + "".join(map(str, self.arguments))

    @property
    def python(self) -> str:
        """The call as Python."""
        return f"{self.function}({', '.join(map(str, self.arguments))})"

    @property
    def name(self) -> str:
        """Name of the test method."""
        return f"test_{self.function}_{self.call[1:]}"


class Mutant(NamedTuple):
    """One edit: line `line` (from 1) of a function becomes `text`."""

    kind: Kind
    function: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class MicroRepository:
    """A repository as a value.

    Attributes:
        functions: name -> lines of the body.
        tests: the tests that a policy can run.
        hidden: further tests, which decide together with `tests`.
    """

    functions: tuple[tuple[str, tuple[str, ...]], ...]
    tests: tuple[Case, ...]
    hidden: tuple[Case, ...] = ()

    def lines(self, function: str) -> tuple[str, ...]:
        """The body of a function. Raises KeyError for an unknown name."""
        return dict(self.functions)[function]

    def edited(self, function: str, line: int, text: str) -> "MicroRepository":
        """With line `line` (from 1) of a function replaced. Raises KeyError or IndexError if there is no such line."""
        lines = list(self.lines(function))
        if not 1 <= line <= len(lines):
            raise IndexError(f"{function} has lines 1 to {len(lines)}, not {line}")
        lines[line - 1] = text
        return replace(
            self, functions=tuple((name, tuple(lines) if name == function else old) for name, old in self.functions)
        )

    def mutated(self, mutant: Mutant) -> "MicroRepository":
        return self.edited(mutant.function, mutant.line, mutant.text)


@dataclass(frozen=True)
class MicroOptions:
    """Which repositories are drawn.

    Attributes:
        calls: chance that f calls g, which is in the other module.
        branches: chance of a conditional line, for each function.
        tests: tests per function that the policy can run.
        hidden: further tests per function, run at submission.
        kinds: kinds of bugs.
        named: whether the bug is in the function that the issue names, so that the policy need not look elsewhere.
    """

    calls: float = 0.6
    branches: float = 0.15
    tests: int = 2
    hidden: int = 4
    kinds: tuple[Kind, ...] = KINDS
    named: bool = False

    def __post_init__(self) -> None:
        for name in ("calls", "branches"):
            require(0 <= getattr(self, name) <= 1, f"micro_repositories.{name}", getattr(self, name), "give 0 to 1")
        for name in ("tests", "hidden"):
            require(1 <= getattr(self, name) <= 5, f"micro_repositories.{name}", getattr(self, name), "give 1 to 5")
        require(len(self.kinds) > 0, "micro_repositories.kinds", self.kinds, f"give some of {', '.join(KINDS)}")
        possible = self.branches > 0 or set(self.kinds) != {"compare"}
        require(possible, "micro_repositories.kinds", self.kinds, "give another kind too, or branches above 0")


def make(rng: random.Random, options: MicroOptions | None = None) -> MicroRepository:
    """Draw a repository whose tests all pass."""
    options = options or MicroOptions()
    while True:
        functions = tuple((name, _body(name, options, rng)) for name in FUNCTIONS)
        bodies = dict(functions)
        calls = {name: _calls(name, options.tests + options.hidden, rng) for name in FUNCTIONS}
        results = {name: [value(bodies, name, numbers) for numbers in calls[name]] for name in FUNCTIONS}
        if any(abs(result) > LARGEST for found in results.values() for result in found):
            continue
        cases = {name: list(map(Case, [name] * len(calls[name]), calls[name], results[name])) for name in FUNCTIONS}
        tests = tuple(case for name in FUNCTIONS for case in cases[name][: options.tests])
        hidden = tuple(case for name in FUNCTIONS for case in cases[name][options.tests :])
        return MicroRepository(functions, tests, hidden)


def mutants(repository: MicroRepository) -> tuple[Mutant, ...]:
    """Every single edit of the repository's lines that come from the grammar, in order.

    Another operator, the other comparison, a constant one more or less, another variable that is defined there.
    """
    found: list[Mutant] = []
    for name, lines in repository.functions:
        for i, line in enumerate(lines):
            names = ARGUMENTS[name] + ("c" if i else "")
            found += [Mutant(kind, name, i + 1, text) for kind, text in _edits(line, names)]
    return tuple(found)


def files(repository: MicroRepository, hidden: bool = False) -> dict[str, str]:
    """The repository's files by name, optionally with the hidden tests beside the others."""
    written = {"m.py": "from n import g\n", "n.py": ""}
    for name, lines in repository.functions:
        body = "".join(f" {line}\n" for line in lines)
        written[f"{MODULES[name]}.py"] += f"def {name}({', '.join(ARGUMENTS[name])}):\n{body}"
    cases = repository.tests + (repository.hidden if hidden else ())
    tests = (f" def {case.name}(self): self.assertEqual({case.python}, {case.wanted})\n" for case in cases)
    written["test_m.py"] = HEAD + "".join(tests)
    return written


def value(bodies: Mapping[str, tuple[str, ...]], function: str, arguments: Iterable[int]) -> int:
    """What a call returns, computed in this process. Raises ValueError unless all lines are the grammar's."""
    names: dict[str, Any] = {"__builtins__": {}}
    for name in FUNCTIONS:
        exec(_compiled(name, bodies[name]), names)
    return int(names[function](*arguments))


def failing(repository: MicroRepository, hidden: bool = False) -> list[tuple[Case, int]]:
    """Tests that fail, with what the calls return instead, computed in this process. Raises ValueError like `value`."""
    bodies = dict(repository.functions)
    cases = repository.tests + (repository.hidden if hidden else ())
    found = [(case, value(bodies, case.function, case.arguments)) for case in cases]
    return [(case, got) for case, got in found if got != case.wanted]


def to_text(repository: MicroRepository) -> str:
    """The repository as one line of JSON."""
    cases = {
        place: [[case.function, case.arguments, case.wanted] for case in found]
        for place, found in (("tests", repository.tests), ("hidden", repository.hidden))
    }
    return json.dumps({"functions": dict(repository.functions), **cases}, separators=(",", ":"))


@lru_cache(maxsize=4096)
def from_text(text: str) -> MicroRepository:
    """The inverse of `to_text`. Raises ValueError for other text."""
    try:
        parts = json.loads(text)
        functions = tuple((name, tuple(map(str, parts["functions"][name]))) for name in FUNCTIONS)
        tests, hidden = (
            tuple(Case(name, tuple(numbers), wanted) for name, numbers, wanted in parts[place])
            for place in ("tests", "hidden")
        )
        return MicroRepository(functions, tests, hidden)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a micro-repository: {text[:60]!r}") from error


def _body(name: str, options: MicroOptions, rng: random.Random) -> tuple[str, ...]:
    variables = ARGUMENTS[name]
    calls = name == "f" and rng.random() < options.calls
    first = f"g({rng.choice(variables)})" if calls else rng.choice(variables)
    lines = [f"c={first}{rng.choice(OPERATORS)}{_operand(variables, rng)}"]
    if rng.random() < options.branches:
        lines.append(f"if c{rng.choice('<>')}{rng.randint(1, 9)}:c=c{rng.choice(OPERATORS)}{_operand(variables, rng)}")
    return (*lines, f"return c{rng.choice(OPERATORS)}{_operand(variables, rng)}")


def _operand(variables: str, rng: random.Random) -> str:
    return rng.choice(variables) if rng.random() < 0.4 else str(rng.randint(1, 9))


def _calls(name: str, number: int, rng: random.Random) -> list[tuple[int, ...]]:
    """Distinct arguments; for f and h the two arguments differ, so that swapping them shows."""
    width = len(ARGUMENTS[name])
    found: dict[tuple[int, ...], None] = {}
    while len(found) < number:
        found[tuple(rng.sample(range(10), width))] = None
    return list(found)


def _edits(line: str, names: str) -> Iterator[tuple[Kind, str]]:
    for match in _PLACES.finditer(line):
        old, kind = match.group(), next(kind for kind in KINDS if match.group(kind))
        others: Iterable[str]
        if kind == "operator":
            others = OPERATORS.replace(old, "")
        elif kind == "compare":
            others = "<>".replace(old, "")
        elif kind == "constant":
            others = [str(number) for number in (int(old) - 1, int(old) + 1) if 0 < number < 10]
        else:
            others = names.replace(old, "")
        for new in others:
            yield kind, line[: match.start()] + new + line[match.end() :]


@lru_cache(maxsize=65536)
def _compiled(name: str, lines: tuple[str, ...]) -> CodeType:
    for line in lines:
        if not LINE.fullmatch(line):
            raise ValueError(f"not a line of the grammar: {line!r}; only the sandbox may run it")
    body = "".join(f" {line}\n" for line in lines)
    return compile(f"def {name}({', '.join(ARGUMENTS[name])}):\n{body}", "micro-repository", "exec")
