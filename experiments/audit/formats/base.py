"""What a reader of one trainer's logs is, and how one is found for a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from halfway.curriculum.support.registry import Registry
from halfway.experiments.audit import parquet
from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import LINES, Found, Lines, first_record, first_row
from halfway.experiments.audit.history import Log, Reading

Row = TypeVar("Row")

NULL = msgspec.Raw(b"null")
UNSET = msgspec.Raw(b"")


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file, by which its format is recognised.

    Attributes:
        record: the first line of a file of JSON lines, with its values undecoded; None if it is not a record.
        columns: the record's fields, or the columns of a table in Parquet or CSV.
    """

    found: Found
    record: Mapping[str, Any] | None
    columns: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        return self.found.kind

    def has(self, *names: str) -> bool:
        """Whether all these names are fields of the first record, or columns of the table."""
        return self.columns.issuperset(names)

    def opens(self, name: str) -> bytes:
        """The first byte of a field of the first record; empty if there is no such field."""
        return bytes(self.record[name])[:1] if self.record and name in self.record else b""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a user says about a log.

    Attributes:
        reward: the field or column that is the reward; "" = the format's own.
        passes_at: least reward that counts as passed; None = guessed.
        group_size: rollouts per group, for logs that keep only their order; None = guessed.
    """

    reward: str = ""
    passes_at: float | None = None
    group_size: int | None = None


@dataclass
class Reader:
    """Reads the logs of one trainer. Subclass it, and register the class under the format's name.

    Attributes:
        trainer: the trainer that writes the format.
        named: whether problems have the trainer's own keys.
        choices: the user's choices.
    """

    trainer: ClassVar[str] = ""
    named: ClassVar[bool] = False
    choices: Choices = field(default_factory=Choices)

    @classmethod
    def knows(cls, head: Head) -> bool:
        """Whether a file is of this format."""
        raise NotImplementedError

    @classmethod
    def run_of(cls, found: Found) -> Path:
        """What tells the files of one run from those of another in the same folder."""
        return found.path if found.path == found.given else found.path.parent

    def names_problems(self, files: Sequence[Found]) -> bool:
        """Whether problems have keys in these files; otherwise their prompts are hashed."""
        return self.named

    def reading(self, name: str) -> Reading:
        """What is true of every log in the format."""
        return Reading(format=name, trainer=self.trainer)

    def read(self, files: Sequence[Found], into: HistoryBuilder) -> None:
        """Read all files of a run, in order."""
        for found in files:
            self.read_file(found, into)

    def read_file(self, found: Found, into: HistoryBuilder) -> None:
        """Read one file."""
        raise NotImplementedError

    def log(self, name: str, files: Sequence[Found]) -> Log:
        """A run's log.

        Args:
            name: the format's name.
        """
        into = HistoryBuilder(self.reading(name), self.names_problems(files))
        self.read(files, into)
        history, reading = into.finish(self.choices.passes_at)
        return Log("", history, reading, into.shown_texts(), into.conflicts)


@dataclass
class JsonLines(Reader, Generic[Row]):
    """A reader of files with one JSON record per line.

    Attributes:
        row: the type to which a line is decoded, a `msgspec.Struct`. Texts are best left undecoded (`msgspec.Raw`).
    """

    row: ClassVar[type[Any]]

    def read_file(self, found: Found, into: HistoryBuilder) -> None:
        for rows in Lines(self.row, into.drop).batches(found.path):
            rollouts = self.rollouts(rows, found, into)
            if rollouts is not None:
                into.add(rollouts)

    def rollouts(self, rows: Sequence[Any], found: Found, into: HistoryBuilder) -> RolloutColumns | None:
        """The rollouts of a batch of lines."""
        raise NotImplementedError


FORMATS = Registry(
    what="--format",
    group="halfway.audit_formats",
    builtin={
        "decisions": "halfway.experiments.audit.formats.decisions:Decisions",
        "verl": "halfway.experiments.audit.formats.verl:Verl",
        "trl": "halfway.experiments.audit.formats.trl:Trl",
        "ms_swift": "halfway.experiments.audit.formats.trl:Swift",
        "prime_rl": "halfway.experiments.audit.formats.episodes:Episodes",
        "verifiers": "halfway.experiments.audit.formats.episodes:Results",
        "areal": "halfway.experiments.audit.formats.areal:Areal",
        "nemo_rl": "halfway.experiments.audit.formats.nemo_rl:NemoRl",
        "open_instruct": "halfway.experiments.audit.formats.open_instruct:OpenInstruct",
        "roll": "halfway.experiments.audit.formats.roll:Roll",
        "trinity": "halfway.experiments.audit.formats.trinity:Trinity",
        "trinity_sqlite": "halfway.experiments.audit.formats.trinity:TrinityDatabase",
        "tinker": "halfway.experiments.audit.formats.tinker:Tinker",
        "table": "halfway.experiments.audit.formats.table:Table",
    },
)
"""Formats by name. "table" is asked last and accepts any file with columns of problem and reward."""


def head_of(found: Found) -> Head:
    """The beginning of a file."""
    if found.kind in LINES:
        record = first_record(found.path)
        return Head(found, record, frozenset(record or ()))
    if found.kind == ".parquet":
        return Head(found, None, frozenset(parquet.names(found.path) or ()))
    if found.kind == ".csv":
        return Head(found, None, frozenset(first_row(found.path)))
    return Head(found, None)


def recognised(found: Found) -> str | None:
    """The name of a file's format; None if nobody knows it. Installed formats are asked first, "table" last."""
    head = head_of(found)
    names = sorted(FORMATS.names(), key=lambda name: (name in FORMATS.builtin, name == "table"))
    return next((name for name in names if FORMATS.get(name).knows(head)), None)
