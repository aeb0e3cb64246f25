"""A log in one form for every trainer: every group of rollouts, and its problem."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Places = NDArray[np.int32]
Flags = NDArray[np.bool_]
Measure = Literal["tokens", "bytes", "nothing"]

UNKNOWN = -1
"""Stands for a number of tokens, or an outcome of a group, that the log does not tell."""

OUTCOMES = ("trained", "degenerate", "surplus", "carried", "empty", "declined")
"""What may become of a group; `History.outcome_V` holds positions in here, or `UNKNOWN`."""


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Every group of rollouts in a log, in the order of steps. Suffixes: _V groups (visits), _P problems.

    Attributes:
        problems: ids of the problems in the order of their first visits: the trainer's own, or a hash of prompt and
            reference (see `Reading`).
        category_P: the kind of each problem; "" where the log has none.
        problem_V: position of each group's problem.
        step_V: training step as the trainer counts it.
        passed_V, size_V: k and N. What counts as passed may be a guess, see `Reading.guesses`.
        silent_V: whether all rewards of the group are equal, so that it has no advantages.
        tokens_V: amount generated for the group, in the unit of `Reading.measure`; `UNKNOWN` where it was not written.
        fresh_V: whether the rollouts began at the problem itself, without prefix or hint, and it belongs to the data
            set. Only such groups are evidence on their problem.
        outcome_V: what became of the group, a position in `OUTCOMES`, or `UNKNOWN`.
        lost_V: number of rollouts that were never scored.
        skipped: number of problems refused before any rollout, by reason; only some logs have them.
    """

    problems: tuple[str, ...]
    category_P: tuple[str, ...]
    problem_V: Places
    step_V: Ints
    passed_V: Places
    size_V: Places
    silent_V: Flags
    tokens_V: Ints
    fresh_V: Flags
    outcome_V: NDArray[np.int8]
    lost_V: Places
    skipped: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.problem_V)

    @property
    def num_rollouts(self) -> int:
        """Number of rollouts that were scored."""
        return int(self.size_V.sum())

    @property
    def rate_V(self) -> NDArray[np.float64]:
        """k / N; NaN for a group that lost all its rollouts."""
        rates: NDArray[np.float64] = np.full(len(self), np.nan)
        return np.divide(self.passed_V, self.size_V, out=rates, where=self.size_V > 0)

    @property
    def all_passed_V(self) -> Flags:
        """Silent because every rollout passed."""
        return np.asarray(self.silent_V & (2 * self.passed_V > self.size_V))

    @property
    def all_failed_V(self) -> Flags:
        """Silent, and none passed."""
        return np.asarray(self.silent_V & (2 * self.passed_V <= self.size_V))

    @property
    def group_size(self) -> int:
        """N: the commonest size of a fresh group."""
        sizes, counts = np.unique(self.size_V[self.fresh_V], return_counts=True)
        return int(sizes[np.argmax(counts)]) if len(sizes) else 0

    def where(self, chosen_V: Flags | Ints) -> "History":
        """The history with only the chosen groups; the problems stay as they are."""
        columns = {name: getattr(self, name)[chosen_V] for name in _COLUMNS}
        return History(self.problems, self.category_P, **columns, skipped=self.skipped)

    def fresh(self) -> "History":
        """The groups that are evidence on their problems."""
        return self.where(np.asarray(self.fresh_V & (self.size_V > 0)))

    def visits(self) -> "Visits":
        """The fresh groups by problem, each problem's in the order of steps."""
        fresh = self.fresh()
        order_V = np.lexsort((np.arange(len(fresh)), fresh.step_V, fresh.problem_V))
        ordered = fresh.where(order_V)
        first_V = np.flatnonzero(np.diff(ordered.problem_V, prepend=-1))
        lengths = np.diff(np.append(first_V, len(ordered)))
        index_V = np.arange(len(ordered)) - np.repeat(first_V, lengths)
        return Visits(ordered, index_V)


_COLUMNS = (*("problem_V", "step_V", "passed_V", "size_V", "silent_V", "tokens_V", "fresh_V", "outcome_V", "lost_V"),)


class Visits(NamedTuple):
    """Fresh groups in the order of problems, and of steps within a problem.

    Attributes:
        index_V: how often the problem was visited before.
    """

    history: History
    index_V: Ints

    @property
    def last_V(self) -> Flags:
        """Whether it is the problem's last visit."""
        problem_V = self.history.problem_V
        return np.append(problem_V[1:] != problem_V[:-1], True) if len(problem_V) else np.zeros(0, np.bool_)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a log was read, and what it cannot tell.

    Attributes:
        format, trainer: the format, and the trainer that wrote the log.
        files, size: number of files that were read, and their total bytes.
        measure: what `History.tokens_V` counts. Bytes are counted from the response as it is in the log.
        guesses: what the log did not say and was assumed.
        traps: what the format is known to hide, where this log shows signs of it.
        dropped: reason -> number of rows or files that were left out.
        identified: whether a problem is recognised when it comes again in another step.
        keeps_silent: whether groups without a difference in reward are in the log; without them no counterfactual is
            sound, and their shares mean nothing.
        passes_at: the least reward that counts as passed; None where the log itself says what passed.
    """

    format: str
    trainer: str
    files: int = 0
    size: int = 0
    measure: Measure = "nothing"
    guesses: tuple[str, ...] = ()
    traps: tuple[str, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    identified: bool = True
    keeps_silent: bool = True
    passes_at: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """One run's log.

    Attributes:
        name: where it was found.
        texts: problem id -> the beginning of its prompt, for as many problems as were kept.
        conflicts: problem id -> contradictions in its rewards.
        hours: how long the run took, if the log tells; otherwise None.
        hours_from: where that figure comes from.
    """

    name: str
    history: History
    reading: Reading
    texts: Mapping[str, str] = field(default_factory=dict)
    conflicts: Mapping[str, str] = field(default_factory=dict)
    hours: float | None = None
    hours_from: str = ""
