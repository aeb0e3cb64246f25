"""Problems, and the indexed set of problems of a run."""

import hashlib
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
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
    def at(self, place: int) -> Problem:
        """The problem at a position from 0."""

    @abstractmethod
    def ids(self) -> list[str]:
        """The ids of all problems, by position."""

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | Sequence[Problem]:
        places = range(len(self))[index]
        return self.at(places) if isinstance(places, int) else tuple(map(self.at, places))

    def column(self, feature: str) -> Any:
        """One feature of all problems, by position; None where it is missing."""
        return [problem.features.get(feature) for problem in self]

    def fingerprint(self, generated: Sequence[Problem]) -> str:
        """A hash of all problems in their order, then of others, to tell whether two runs train on the same set."""
        return fingerprint(chain(self, generated))


class PackedProblems(ProblemTable):
    """Problems of plain values as bytes, a fifth of the memory of objects. Tables of some of them share the bytes."""

    def __init__(self, problems: Iterable[Problem] = ()):
        self._content, self._ends = bytearray(), array("q", [0])
        self._rows: Sequence[int] | None = None  # None = all, in the order in which they were added
        self.extend(problems)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Append problems."""
        assert self._rows is None, "only the table of all problems grows"
        for problem in problems:
            self._content += _ENCODER.encode(msgspec.structs.astuple(problem))
            self._ends.append(len(self._content))

    def choose(self, places: Iterable[int]) -> "PackedProblems":
        """The problems at some positions, in this order."""
        chosen = copy(self)
        chosen._rows = array("q", places if self._rows is None else (self._rows[i] for i in places))
        return chosen

    def __len__(self) -> int:
        return len(self._ends) - 1 if self._rows is None else len(self._rows)

    def at(self, place: int) -> Problem:
        return Problem(*_DECODER.decode(self._packed(place)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedProblems) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def ids(self) -> list[str]:
        return [_ID_DECODER.decode(self._packed(place)).id for place in range(len(self))]

    def _packed(self, place: int) -> bytearray:
        row = place if self._rows is None else self._rows[place]
        return self._content[self._ends[row] : self._ends[row + 1]]


class _Id(msgspec.Struct, array_like=True):
    """The beginning of a packed problem."""

    id: str


_ENCODER, _ID_DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Id)
_DECODER = msgspec.msgpack.Decoder(tuple[tuple(each.type for each in msgspec.structs.fields(Problem))])  # type: ignore


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

    def ids(self) -> list[str]:
        """The ids of all problems, by position."""
        return list(self._position)

    def fingerprint(self) -> str:
        """A hash of all problems in order, generated problems last, to tell whether two runs train on one set."""
        if isinstance(self._problems, ProblemTable):
            return self._problems.fingerprint(self.generated)
        return fingerprint(chain(self._problems, self.generated))

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
        if isinstance(values, np.ndarray):
            return values
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
