"""The base classes of readers. To add a format, subclass one and register it under the format's name."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from halfway.curriculum import UserError, require
from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import Lines, LogFile
from halfway.experiments.audit.history import Log, Reading

Row = TypeVar("Row")
Columns = Mapping[str, str | Callable[[Any], Any]]

NULL = msgspec.Raw(b"null")
BY_PROMPT = "problems are identified by their prompts, since the log has no key"


@dataclass(frozen=True, slots=True)
class Choices:
    """The user's choices for reading a log.

    Attributes:
        reward: field or column of the reward, or several with weights: "correct=1,format=0.2"; "" = the format's own.
        passes_at: lowest reward that counts as passed; None = guessed.
        problem: column of the problem; "" = the format's own.
    """

    reward: str = ""
    passes_at: float | None = None
    problem: str = ""

    def __post_init__(self) -> None:
        known = self.passes_at is None or math.isfinite(self.passes_at)
        require(known, "--passes-at", self.passes_at, "give the lowest reward that counts as passed")

    @property
    def rewards(self) -> list[str]:
        """The names of the chosen rewards, read as a list of several."""
        return [part.partition("=")[0].strip() for part in self.reward.split(",")]

    def weights(self, names: Iterable[str]) -> dict[str, float]:
        """The weight of each reward chosen among these columns; empty if none was chosen.

        Raises:
            UserError: if a chosen column does not exist, or its weight is not a number.
        """
        names = list(names)
        if not self.reward or self.reward in names:
            return {self.reward: 1.0} if self.reward else {}
        chosen = {}
        for part in self.reward.split(","):
            name, _, weight = (word.strip() for word in part.partition("="))
            require(name in names, "--reward", self.reward, f"the log has {', '.join(names)}")
            try:
                chosen[name] = float(weight or 1)
            except ValueError:
                raise UserError(f"--reward: {self.reward!r}: the weight {weight!r} is not a number") from None
        return chosen


@dataclass
class Reader:
    """Reads the logs of one trainer.

    Attributes:
        trainer: name of the trainer that writes the format.
        known_by: columns that only files of this format have together.
        named: whether the logs identify problems by the trainer's own keys.
        identified: whether a problem is recognised when it appears again in another step.
        chooses: the user's choices that apply; others are refused.
        next_step: advice about zero-variance groups in this trainer.
        guesses, traps: assumptions about every log in the format, and gaps in every such log.
        choices: the user's choices for reading the log.
    """

    trainer: ClassVar[str] = ""
    known_by: ClassVar[tuple[str, ...]] = ()
    named: ClassVar[bool] = False
    identified: ClassVar[bool] = True
    chooses: ClassVar[frozenset[str]] = frozenset()
    next_step: ClassVar[str] = ""
    guesses: ClassVar[tuple[str, ...]] = ()
    traps: ClassVar[tuple[str, ...]] = ()
    choices: Choices = field(default_factory=Choices)

    @classmethod
    def knows(cls, file: LogFile) -> bool:
        """True if a file with this beginning has the format."""
        return bool(cls.known_by) and file.has(*cls.known_by)

    @classmethod
    def run_of(cls, file: LogFile) -> Path:
        """The path of a file's run: files with equal paths belong to the same run."""
        return file.path if file.path == file.given else file.path.parent

    def names_problems(self, files: Sequence[LogFile]) -> bool:
        """True if these files identify problems by keys; otherwise prompts are hashed."""
        return self.named

    def read(self, files: Sequence[LogFile], into: HistoryBuilder) -> None:
        """Read all files of a run in order, and add their rollouts to `into`."""
        for file in files:
            self.read_file(file, into)

    def read_file(self, file: LogFile, into: HistoryBuilder) -> None:
        """Read one file, and add its rollouts to `into`."""
        raise NotImplementedError

    def log(self, name: str, files: Sequence[LogFile]) -> Log:
        """Read the files of one run into a log.

        Args:
            name: the format's name.

        Raises:
            UserError: if the user chose something that the format itself determines.
        """
        for option in ("reward", "problem"):
            value, remedy = getattr(self.choices, option), f"logs of {self.trainer} have one {option}; leave it out"
            require(not value or option in self.chooses, f"--{option}", value, remedy)
        reading = Reading(name, self.trainer, identified=self.identified, next_step=self.next_step)
        reading.guesses, reading.traps = [*self.guesses], [*self.traps]
        into = HistoryBuilder(reading, self.names_problems(files))
        self.read(files, into)
        history = into.finish(self.choices.passes_at)
        return Log("", history, reading, into.shown_texts(), into.conflicts)


@dataclass
class JsonLines(Reader, Generic[Row]):
    """A reader of files with one JSON record per line.

    Attributes:
        row: the type into which a line is decoded, usually a `msgspec.Struct`. Leave long texts undecoded, as
            `msgspec.Raw`, to save time.
        columns: for each column of `RolloutColumns`, a field or a function of a row.
    """

    row: ClassVar[type[Any]]
    columns: ClassVar[Columns] = {}

    def read_file(self, file: LogFile, into: HistoryBuilder) -> None:
        for rows in Lines(self.row, into.drop).batches(file.path):
            rollouts = self.rollouts(rows, file, into)
            if rollouts is not None:
                into.add(rollouts)

    def rollouts(self, rows: Sequence[Any], file: LogFile, into: HistoryBuilder) -> RolloutColumns | None:
        """The rollouts of a batch of lines; None if there are none, or they have been added to `into` already."""
        return RolloutColumns(**{name: _column(rows, source) for name, source in self.columns.items()})


def _column(rows: Sequence[Any], source: str | Callable[[Any], Any]) -> list[Any]:
    values = list(map(attrgetter(source) if isinstance(source, str) else source, rows))
    return list(map(bytes, values)) if values and isinstance(values[0], msgspec.Raw) else values
