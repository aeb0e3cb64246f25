"""Reads Trinity-RFT's logs: the explorer's experiences, as `experience_pipeline.save_input` keeps them.

They are saved before any operator is applied, as JSON Lines (`Experience.to_dict` in trinity/common/experience.py,
0.6.0) or, by default, in an SQLite database (`ExperienceModel` in trinity/buffer/schema/sql_schema.py). The database's
columns contain neither prompt nor batch, and the experiences themselves are blobs, which are not opened.
"""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import Any, ClassVar

import msgspec

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import LogFile
from halfway.experiments.audit.formats.base import BY_PROMPT, NULL, Columns, JsonLines, Reader
from halfway.experiments.audit.history import UNKNOWN

NEXT_STEP = "in Trinity-RFT: a chain of uniform and greso selects the tasks (docs/hosts/trinity.md)"
DATABASES = (".db", ".sqlite", ".sqlite3")
COLUMNS = {"task_id", "run_id", "model_version", "reward"}
LONGEST_NAME = 1000
"""Maximum characters of a task's name: a default of the table could put a very long one into every row."""

UNNAMED = f"rollout of a task whose name has more than {LONGEST_NAME:,} characters"
NUMBER = "iif(typeof({0}) IN ('integer', 'real'), {0}, NULL)"
QUERY = (
    f"SELECT {NUMBER.format('model_version')}, substr(task_id, 1, {LONGEST_NAME + 1}), {NUMBER.format('run_id')}, "
    f'{NUMBER.format("reward")} FROM "{{}}" NOT INDEXED'
)
"""Rows in the order of writing. An index, or sorting by a column, might compute its values."""

NAMES = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND typeof(name) = 'text'"


class ExperienceId(msgspec.Struct, gc=False):
    batch: int | str = 0
    task: int | str = 0
    run: int = 0
    step: int = 0


class TrinityRow(msgspec.Struct):
    """The fields to read from a line."""

    eid: ExperienceId
    reward: float | None = None
    prompt_text: msgspec.Raw = NULL
    messages: msgspec.Raw = NULL
    response_text: msgspec.Raw = NULL
    response_length: int = UNKNOWN

    @property
    def batch(self) -> int:
        """The number of the batch; in an evaluation, a name and a slash precede it. 0 if there is no number."""
        digits = str(self.eid.batch).rpartition("/")[2]
        return int(digits) if digits.isdecimal() and len(digits) < 19 else 0

    @property
    def prompt(self) -> msgspec.Raw:
        return self.messages if bytes(self.prompt_text) in (b"null", b'""') else self.prompt_text


class Trinity(JsonLines[TrinityRow]):
    """Reads Trinity-RFT's saved experiences from JSON Lines."""

    trainer = "Trinity-RFT"
    next_step = NEXT_STEP
    known_by = ("eid", "reward", "type", "prompt_length")
    guesses = (
        BY_PROMPT,
        "a step is a batch of the explorer",
        "of a run with several turns, only the first experience counts",
    )
    row = TrinityRow
    columns: ClassVar[Columns] = {
        "steps": "batch",
        "problems": "prompt",
        "rewards": "reward",
        "groups": lambda row: (row.eid.batch, row.eid.task),
        "responses": "response_text",
        "tokens": "response_length",
    }

    def rollouts(self, rows: Sequence[TrinityRow], file: LogFile, into: HistoryBuilder) -> RolloutColumns | None:
        training = into.keep(rows, lambda row: "/" not in str(row.eid.batch), "rollout of an evaluation")
        return super().rollouts(into.keep(training, lambda row: row.eid.step == 0, "further turn of a run"), file, into)


class TrinityDatabase(Reader):
    """Reads Trinity-RFT's saved experiences from its database."""

    trainer = "Trinity-RFT"
    next_step = NEXT_STEP
    named = True
    identified = False
    guesses = ("a step is a version of the policy; repeated run numbers separate the batches of one version",)
    traps = (
        "the database's readable columns have neither prompt nor batch, so repeated visits to a problem are not "
        "recognised; set experience_pipeline.input_save_path to a .jsonl file",
    )

    @classmethod
    def knows(cls, file: LogFile) -> bool:
        if file.kind not in DATABASES:
            return False
        try:
            with closing(_connected(file)) as base:
                return bool(_table_in(base))
        except (sqlite3.Error, UnicodeDecodeError):  # SQLite quotes a damaged schema's bytes in its message
            return False

    def read_file(self, file: LogFile, into: HistoryBuilder) -> None:
        seen: Counter[tuple[int, str, int]] = Counter()
        try:
            with closing(_connected(file)) as base:
                cursor = base.execute(QUERY.format(_table_in(base)))
                while rows := cursor.fetchmany(4096):
                    into.add(_columns(into.keep(rows, lambda row: len(str(row[1])) <= LONGEST_NAME, UNNAMED), seen))
        except (sqlite3.Error, ValueError, OverflowError):
            into.drop("database that could not be read to its end")


def _columns(rows: Sequence[Any], seen: Counter[tuple[int, str, int]]) -> RolloutColumns:
    """The rollouts of rows of `QUERY`; `seen` counts the occurrences of a version, task and run."""
    keys = []
    for version, task, run, _ in rows:
        place = (version or 0, str(task), run or 0)
        keys.append(f"{place[0]}/{seen[place]}/{place[1]}")
        seen[place] += 1
    return RolloutColumns(
        steps=[int(row[0] or 0) for row in rows],
        problems=keys,
        rewards=[row[3] for row in rows],
        groups=keys,
    )


def _table_in(base: sqlite3.Connection) -> str:
    """The name of the table with the columns of an experience's metadata; "" if there is none."""
    for (name,) in base.execute(NAMES).fetchall():
        columns = {row[1] for row in base.execute("SELECT * FROM pragma_table_info(?)", (name,)).fetchall()}
        if columns >= COLUMNS and '"' not in name:
            return str(name)
    return ""


def _connected(file: LogFile) -> sqlite3.Connection:
    """Connect to the database read-only, so that the file and its folder stay unchanged."""
    base = sqlite3.connect(f"{file.path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    base.execute("PRAGMA trusted_schema = OFF")
    return base
