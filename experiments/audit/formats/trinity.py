"""Reads Trinity-RFT's logs: the explorer's experiences, as `experience_pipeline.save_input` keeps them.

They are saved before any operator is applied, as JSON Lines (`Experience.to_dict` in trinity/common/experience.py,
0.6.0) or, by default, in an SQLite database (`ExperienceModel` in trinity/buffer/schema/sql_schema.py). The database's
columns contain neither prompt nor batch, and the experiences themselves are blobs, which are not opened.
"""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing

import msgspec

from halfway.experiments.audit.builder import HistoryBuilder, RolloutColumns
from halfway.experiments.audit.files import Found
from halfway.experiments.audit.formats.base import NULL, Head, JsonLines, Reader
from halfway.experiments.audit.history import UNKNOWN, Reading

DATABASES = (".db", ".sqlite", ".sqlite3")
COLUMNS = {"task_id", "run_id", "model_version", "reward"}


class ExperienceId(msgspec.Struct, gc=False):
    batch: int | str = 0
    task: int | str = 0
    run: int = 0
    step: int = 0


class TrinityRow(msgspec.Struct):
    """The fields of a line that are read."""

    eid: ExperienceId
    reward: float | None = None
    prompt_text: msgspec.Raw = NULL
    messages: msgspec.Raw = NULL
    response_text: msgspec.Raw = NULL
    response_length: int = UNKNOWN


class Trinity(JsonLines[TrinityRow]):
    """Reads Trinity-RFT's saved experiences from JSON Lines."""

    trainer = "Trinity-RFT"
    row = TrinityRow

    @classmethod
    def knows(cls, head: Head) -> bool:
        return head.has("eid", "reward") and head.has("type", "prompt_length")

    def reading(self, name: str) -> Reading:
        return Reading(
            name,
            self.trainer,
            guesses=(
                "problems are told apart by their prompts, since the log has no key",
                "a step is a batch of the explorer",
                "of a run with several turns, only the first experience counts",
            ),
        )

    def rollouts(self, rows: Sequence[TrinityRow], found: Found, into: HistoryBuilder) -> RolloutColumns | None:
        first = [row for row in rows if row.eid.step == 0]
        if len(first) < len(rows):
            into.drop("further turn of a run", len(rows) - len(first))
        return RolloutColumns(
            steps=[_step(row.eid.batch) for row in first],
            problems=[_prompt(row) for row in first],
            rewards=[row.reward for row in first],
            groups=[(row.eid.batch, row.eid.task) for row in first],
            responses=[bytes(row.response_text) for row in first],
            tokens=[row.response_length for row in first],
        )


class TrinityDatabase(Reader):
    """Reads Trinity-RFT's saved experiences from its database."""

    trainer = "Trinity-RFT"
    named = True

    @classmethod
    def knows(cls, head: Head) -> bool:
        return head.kind in DATABASES and table_in(head.found) is not None

    def reading(self, name: str) -> Reading:
        return Reading(
            name,
            self.trainer,
            identified=False,
            guesses=(
                "a step is a version of the policy; batches of one version are told apart by repeated run numbers",
            ),
            traps=(
                "the database's readable columns have neither prompt nor batch, so a problem is not recognised when it "
                "comes again; set experience_pipeline.input_save_path to a .jsonl file",
            ),
        )

    def read_file(self, found: Found, into: HistoryBuilder) -> None:
        table = table_in(found)
        if table is None:
            return
        seen: Counter[tuple[int, str, int]] = Counter()
        try:
            with closing(_connected(found)) as base:
                query = f'SELECT model_version, task_id, run_id, reward FROM "{table}" ORDER BY id'
                cursor = base.execute(query)
                while rows := cursor.fetchmany(4096):
                    keys = []
                    for version, task, run, _ in rows:
                        place = (version or 0, str(task), run or 0)
                        keys.append(f"{place[0]}/{seen[place]}/{place[1]}")
                        seen[place] += 1
                    into.add(
                        RolloutColumns(
                            steps=[int(row[0] or 0) for row in rows],
                            problems=[key.encode() for key in keys],
                            rewards=[row[3] if isinstance(row[3], float | int) else None for row in rows],
                            groups=keys,
                        )
                    )
        except (sqlite3.Error, ValueError):
            into.drop("database that could not be read to its end")


def table_in(found: Found) -> str | None:
    """The name of the table that has the columns of an experience's metadata; None if there is none."""
    try:
        with closing(_connected(found)) as base:
            for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                if '"' in name:
                    continue
                columns = {row[1] for row in base.execute(f'PRAGMA table_info("{name}")').fetchall()}
                if columns >= COLUMNS:
                    return str(name)
    except sqlite3.Error:
        return None
    return None


def _connected(found: Found) -> sqlite3.Connection:
    """Connect to the database read-only, so that the file and its folder stay unchanged."""
    return sqlite3.connect(f"{found.path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)


def _step(batch: int | str) -> int:
    """The number of a batch; in an evaluation, a name and a slash precede it. 0 if there is no number."""
    digits = str(batch).rpartition("/")[2]
    return int(digits) if digits.isdecimal() else 0


def _prompt(row: TrinityRow) -> bytes:
    return bytes(row.messages if bytes(row.prompt_text) in (b"null", b'""') else row.prompt_text)
