"""The base classes of readers, and the beginning of a file, by which they recognise their format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from halfway.experiments.audit import parquet
from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import LINES, Found, Lines, first_record, first_row
from halfway.experiments.audit.history import Log, Reading

Row = TypeVar("Row")

NULL = msgspec.Raw(b"null")
UNSET = msgspec.Raw(b"")


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file, from which its format is recognised.

    Attributes:
        found: the file.
        record: the first line of a JSON Lines file, with its values undecoded; None if it is not a record.
        columns: names of the record's fields, or of the columns of a Parquet or CSV table.
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
        """The first byte of a field's value in the first record; empty if there is no such field."""
        return bytes(self.record[name])[:1] if self.record and name in self.record else b""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user says about how to read a log.

    Attributes:
        reward: name of the field or column that is the reward; "" = the format's own.
        passes_at: least reward that counts as passed; None = guessed.
        group_size: rollouts per group, for logs in which only the order of lines shows the groups; None = not given.
    """

    reward: str = ""
    passes_at: float | None = None
    group_size: int | None = None


@dataclass
class Reader:
    """Reads the logs of one trainer. To add a format, subclass it and register the class under the format's name.

    Attributes:
        trainer: name of the trainer that writes the format.
        named: whether the logs identify problems by the trainer's own keys.
        choices: what the user says about how to read the log.
    """

    trainer: ClassVar[str] = ""
    named: ClassVar[bool] = False
    choices: Choices = field(default_factory=Choices)

    @classmethod
    def knows(cls, head: Head) -> bool:
        """Whether a file that begins like this has the format."""
        raise NotImplementedError

    @classmethod
    def run_of(cls, found: Found) -> Path:
        """The path that stands for a file's run: files with equal paths belong to the same run."""
        return found.path if found.path == found.given else found.path.parent

    def names_problems(self, files: Sequence[Found]) -> bool:
        """Whether these files identify problems by keys; otherwise prompts are hashed."""
        return self.named

    def reading(self, name: str) -> Reading:
        """The `Reading` of any log in the format, before a file has been read.

        Args:
            name: the format's name.
        """
        return Reading(format=name, trainer=self.trainer)

    def read(self, files: Sequence[Found], into: HistoryBuilder) -> None:
        """Read all files of a run in order, adding their rollouts to `into`."""
        for found in files:
            self.read_file(found, into)

    def read_file(self, found: Found, into: HistoryBuilder) -> None:
        """Read one file, adding its rollouts to `into`."""
        raise NotImplementedError

    def log(self, name: str, files: Sequence[Found]) -> Log:
        """Read the files of one run into a log.

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
        row: the type into which a line is decoded, usually a `msgspec.Struct`. Leave long texts undecoded, as
            `msgspec.Raw`, to save time.
    """

    row: ClassVar[type[Any]]

    def read_file(self, found: Found, into: HistoryBuilder) -> None:
        for rows in Lines(self.row, into.drop).batches(found.path):
            rollouts = self.rollouts(rows, found, into)
            if rollouts is not None:
                into.add(rollouts)

    def rollouts(self, rows: Sequence[Any], found: Found, into: HistoryBuilder) -> RolloutColumns | None:
        """The rollouts of a batch of lines; None if there are none, or they have been added to `into` already."""
        raise NotImplementedError


def head_of(found: Found) -> Head:
    """Read the beginning of a file."""
    if found.kind in LINES:
        record = first_record(found.path)
        return Head(found, record, frozenset(record or ()))
    if found.kind == ".parquet":
        return Head(found, None, frozenset(parquet.names(found.path) or ()))
    if found.kind == ".csv":
        return Head(found, None, frozenset(first_row(found.path)))
    return Head(found, None)
