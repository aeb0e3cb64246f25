"""The groups of a rollout log and their problems, in one form for all trainers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Places = NDArray[np.int32]
Flags = NDArray[np.bool_]
Measure = Literal["tokens", "bytes", "nothing"]

UNKNOWN = -1
"""A number of tokens, or a group's outcome, that the log does not contain."""

OUTCOMES = ("trained", "zero_variance", "surplus", "carried", "empty", "declined", "waiting")
"""The possible outcomes of a group; `History.outcome_V` has indices into this tuple, or `UNKNOWN`."""


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Every group of rollouts in a log, ordered by step. Suffixes: _V groups (visits), _P problems.

    Attributes:
        problems: ids of the problems in the order of their first visits: the trainer's own ids, or hashes of prompt and
            reference.
        category_P: the kind of each problem; "" if the log does not have it.
        problem_V: index of each group's problem in `problems`.
        step_V: training step, as counted by the trainer.
        passed_V, size_V: k and N. The pass criterion may be a guess; see `Reading.guesses`.
        zero_variance_V: whether all rewards of the group are equal, so that its advantages are zero.
        one_text_V: whether all responses of the group are one text.
        tokens_V: amount generated for the group in the unit of `Reading.measure`, or `UNKNOWN`.
        fresh_V: whether the problem belongs to the data set and the rollouts began at its start, without prefix or
            hint. Only such groups are evidence about their problem.
        outcome_V: outcome of the group, as an index into `OUTCOMES`, or `UNKNOWN`.
        lost_V: number of rollouts that were never scored.
        skipped: number of problems refused before any rollout; only some logs record them.
    """

    problems: tuple[str, ...]
    category_P: tuple[str, ...]
    problem_V: Places
    step_V: Ints
    passed_V: Places
    size_V: Places
    zero_variance_V: Flags
    one_text_V: Flags
    tokens_V: Ints
    fresh_V: Flags
    outcome_V: NDArray[np.int8]
    lost_V: Places
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.problem_V)

    @property
    def num_rollouts(self) -> int:
        """Number of scored rollouts."""
        return int(self.size_V.sum())

    @property
    def group_size(self) -> int:
        """The most common size N of a fresh group; 0 without any."""
        sizes, counts = np.unique(self.size_V[self.fresh_V], return_counts=True)
        return int(sizes[np.argmax(counts)]) if len(sizes) else 0

    @property
    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The groups as arrays by column."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name.endswith("_V")}

    def where(self, chosen_V: Flags | Ints) -> "History":
        """Select groups by a mask or by indices; the problems do not change."""
        columns = {name: column_V[chosen_V] for name, column_V in self.columns.items()}
        return History(self.problems, self.category_P, **columns, skipped=self.skipped)  # type: ignore[arg-type]

    def fresh(self) -> "History":
        """Select the groups that are evidence about their problems: fresh, with a scored rollout."""
        return self.where(np.asarray(self.fresh_V & (self.size_V > 0)))


@dataclass(slots=True)
class Reading:
    """How a log was read, and its limits; a reader fills it in.

    Attributes:
        format: name of the format.
        trainer: the trainer that wrote the log.
        files, size: number of files read, and their total size in bytes.
        measure: unit of `History.tokens_V`. Bytes are those of the response as written in the log.
        guesses: assumptions where the log has no information.
        traps: known gaps of the format, which this log may have.
        doubts: remarks that decide the finding, such as contradictions between the log's own columns.
        dropped: number of rows or files left out, by reason.
        identified: whether a problem is recognised when it appears again in another step.
        keeps_zero_variance: whether the log seems to contain zero-variance groups; without them, no counterfactual is
            sound.
        passes_at: the lowest reward that counts as passed; None if the log has its own verdicts.
        values: number of different rewards among the first rollouts.
        next_step: advice about zero-variance groups in the trainer that wrote the log; "" if there is none.
    """

    format: str
    trainer: str
    files: int = 0
    size: int = 0
    measure: Measure = "nothing"
    guesses: list[str] = field(default_factory=list)
    traps: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    identified: bool = True
    keeps_zero_variance: bool = True
    passes_at: float | None = None
    values: int = 2
    next_step: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """One run's log.

    Attributes:
        name: path of the log, without the folders that all logs share.
        texts: the beginnings of prompts by problem id, for some of the problems.
        conflicts: contradictions in a problem's rewards, in words, by problem id.
        hours: duration of the run; None if unknown.
    """

    name: str
    history: History
    reading: Reading
    texts: Mapping[str, str] = field(default_factory=dict)
    conflicts: Mapping[str, str] = field(default_factory=dict)
    hours: float | None = None
