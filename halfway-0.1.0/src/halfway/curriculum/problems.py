"""Problems, and the indexed set of problems of a run."""

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from halfway.curriculum.support.errors import UserError


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: "system", "user" or "assistant", or another role of the policy's chat template.
    """

    role: str
    content: str


class Problem(msgspec.Struct, frozen=True):
    """One verifiable task.

    Attributes:
        id: stable over epochs, runs and machines; never depends on the visit.
        prompt: the text the policy is given.
        answer: reference for the verifier (or the environment), which defines its format.
        source: where the problem came from, for logs and per-source statistics.
        verifier: registered name of the verifier that judges a response.
        features: optional facts about the problem, for analysis, priors and shared models: a number (difficulty), a
            word (topic) or a vector (an embedding).
        messages: conversation given to the policy instead of `prompt`, which then holds its text.
        solution: reference solution in the form of a response, from which hints are cut; empty if there is none.
    """

    id: str
    prompt: str
    answer: str
    source: str = ""
    verifier: str = "exact"
    features: Mapping[str, float | str | tuple[float, ...]] = msgspec.field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    solution: str = ""


class ProblemTable(Sequence[Problem]):
    """Problems that are built on access, since a million problem objects would take a gigabyte."""

    @abstractmethod
    def ids(self) -> list[str]:
        """The ids of all problems, by position."""

    @abstractmethod
    def column(self, feature: str) -> Sequence[float | str | tuple[float, ...] | None]:
        """One feature of all problems, by position; None where it is missing."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of all problems in their order, to tell whether two runs train on the same set."""


class ProblemSet(Sequence[Problem]):
    """An immutable sequence of problems with a constant-time look-up from id to position.

    Attributes:
        generated: problems from a task generator. They are not part of the set itself, and are proposed only by
            controllers that need them.

    Raises:
        UserError: if the set is empty, or two problems share an id.
    """

    __slots__ = ("_position", "_problems", "generated")

    def __init__(self, problems: Sequence[Problem], generated: Sequence[Problem] = ()):
        rows = problems._problems if isinstance(problems, ProblemSet) else problems
        self._problems: Sequence[Problem] = rows if isinstance(rows, ProblemTable) else tuple(rows)
        self._position = {name: i for i, name in enumerate(_ids(self._problems))}
        self.generated = tuple(generated)
        if not self._problems:
            raise UserError("problems: the source has no problems; check its path, its split and its filters")
        if len(self._position) != len(self._problems):
            raise UserError(f"problems: id {_find_repeated(_ids(self._problems))!r} occurs twice; ids must be unique")
        more = [problem.id for problem in self.generated]
        if len(set(more)) != len(more) or any(name in self._position for name in more):
            twice = _find_repeated([*self._position, *more])
            raise UserError(f"problems: id {twice!r} is generated and occurs twice; ids must be unique")

    def position(self, problem_id: str) -> int:
        """Position of a problem in the set. Raises KeyError for an id that is not in it."""
        try:
            return self._position[problem_id]
        except KeyError:
            raise KeyError(f"unknown problem id {problem_id!r}") from None

    def fingerprint(self) -> str:
        """A hash of all problems in order, generated problems last, to tell whether two runs train on one set."""
        if not isinstance(self._problems, ProblemTable):
            return fingerprint([*self._problems, *self.generated])
        digest = self._problems.fingerprint()
        return f"{digest}+{fingerprint(self.generated)}" if self.generated else digest

    def feature_fingerprint(self, feature: str) -> str:
        """A hash of one feature of all problems; for vectors of their shape only, since their rounding may vary.

        Raises:
            UserError: as `column` does.
        """
        column = self.column(feature)
        facts = column.shape if column.ndim > 1 else column.tolist()
        return hashlib.blake2b(repr(facts).encode("utf-8", "replace"), digest_size=16).hexdigest()

    def column(self, feature: str) -> NDArray[Any]:
        """One feature of all problems, by position: (P,) numbers or words, or (P, D) numbers if it is a vector.

        Raises:
            UserError: if a problem lacks the feature, or the values are of different kinds.
        """
        known = self._problems
        values = known.column(feature) if isinstance(known, ProblemTable) else [p.features.get(feature) for p in known]
        for i, value in enumerate(values):
            if value is None:
                problem = known[i]
                raise UserError(
                    f"problems: {problem.id!r} has no feature {feature!r}; add the column to the problem file, or "
                    f"choose another of its features: {', '.join(sorted(problem.features)) or 'it has none'}"
                )
        kinds = {(type(value) is str, np.asarray(value).shape) for value in values}
        if len(kinds) > 1:
            raise UserError(f"problems: feature {feature!r} mixes kinds of values; give numbers or words")
        return np.asarray(values)

    def __contains__(self, problem_id: object) -> bool:
        return problem_id in self._position

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | Sequence[Problem]:
        return self._problems[index]

    def __len__(self) -> int:
        return len(self._problems)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._problems)


def _ids(problems: Sequence[Problem]) -> Iterable[str]:
    return problems.ids() if isinstance(problems, ProblemTable) else (problem.id for problem in problems)


def _find_repeated(ids: Iterable[str]) -> str:
    seen: set[str] = set()
    return next(name for name in ids if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def fingerprint(problems: Iterable[Problem]) -> str:
    """A hash of all problems in their order, to tell whether two runs train on the same set."""
    digest = hashlib.blake2b(digest_size=16)
    for problem in problems:
        stated = (problem.id, problem.prompt, problem.answer, problem.verifier)
        facts = (*stated, problem.solution) if problem.solution else stated
        digest.update(repr(facts).encode("utf-8", "replace"))
    return digest.hexdigest()
