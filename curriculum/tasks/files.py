"""Problems from a JSONL, JSON or Parquet file."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from halfway.curriculum.problems import Message, Problem
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import load_extra, one_line
from halfway.curriculum.support.registry import unknown
from halfway.curriculum.tasks.sources import MAX_EXAMPLES, Loaded, Source, SourceReport, content_id
from halfway.curriculum.tasks.verifiers import VERIFIERS

MOST_NAMES = 8
"""Columns that a complaint about a row lists."""
UNPACKED, DENSEST = 64 << 20, 100
"""Bytes that every Parquet file may stand for, and how many times its size a larger one may."""


class Bad(NamedTuple):
    """Why a row is not a problem. `reason` is what the report counts, `detail` what it shows of the first rows."""

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


def kept_and_counted(tried: Iterable[tuple[str, Problem | Bad]]) -> Loaded:
    """The problems among what was tried, in order; everything else, including repeated ids, is counted by reason.

    Args:
        tried: where each item stands, and the problem or why it is not one.
    """
    found: dict[str, Problem] = {}
    bad: list[tuple[str, Bad]] = []
    for where, problem in tried:
        if isinstance(problem, Bad):
            bad.append((where, problem))
        elif problem.id in found:
            bad.append((where, Bad("repeats an earlier one")))
        else:
            found[problem.id] = problem
    examples = tuple(f"{where}: {why}" for where, why in bad[:MAX_EXAMPLES])
    return Loaded(tuple(found.values()), SourceReport(len(found), Counter(why.reason for _, why in bad), examples))


class FileRow(NamedTuple):
    """A row and where it stands: "file:line" for JSONL, "file:row n" (from 1) for JSON and Parquet."""

    where: str
    values: Mapping[str, Any] | Bad


@dataclass(frozen=True)
class File(Source):
    """Rows with a prompt and an answer.

    A prompt is text, or a list of messages `{"role": ..., "content": ...}` for the policy's chat template.

    A row is bad if it is not JSON or not an object, has no prompt, answer or feature (absent, null, empty, or neither
    text nor number nor, for a feature, a list of numbers), repeats the id or the prompt and answer of an earlier row,
    names no known verifier, or has an answer that its verifier cannot read. Blank lines in JSONL are ignored.

    The order of the problems is a function of the stream and their ids, so which rows are held out does not depend on
    their order in the file.

    Attributes:
        path: file ending in .jsonl, .json (a list of objects) or .parquet.
        heldout_path: file of the held-out problems, with the same columns; empty = they are taken from `path`.
        name: source name of the problems, part of ids made from content; empty = the file's name without ending.
        prompt_column, answer_column: names of columns.
        id_column: column of stable, unique ids; empty = a hash of the content.
        verifier: registered name of the verifier.
        verifier_column: column that names a verifier for each row, or null for `verifier`; empty = no such column.
        solution_column: column of reference solutions, from which hints are cut; empty = there are none. A row may lack
            one.
        feature_columns: columns whose numbers, texts or lists of numbers become features of the problems.
        check_answers: whether each answer is shown to its verifier while loading (about a millisecond per row for
        "symbolic").
        on_bad_row: "refuse" the file, or "drop" the row, count it and continue.
    """

    path: str
    heldout_path: str = ""
    name: str = ""
    prompt_column: str = "prompt"
    answer_column: str = "answer"
    id_column: str = ""
    verifier: str = "exact"
    verifier_column: str = ""
    solution_column: str = ""
    feature_columns: tuple[str, ...] = ()
    check_answers: bool = True
    on_bad_row: Literal["refuse", "drop"] = "refuse"
    other_features: ClassVar[bool] = False
    """Whether whatever other columns a row has are features too, as in files that Halfway writes."""

    def __post_init__(self) -> None:
        if self.verifier not in VERIFIERS.names():
            raise unknown(f"{type(self).__name__.lower()}.verifier", self.verifier, VERIFIERS.names())

    def heldout(self) -> Source | None:
        return replace(self, path=self.heldout_path, heldout_path="") if self.heldout_path else None

    def load(self, wanted: int | None, stream: Stream) -> Loaded:
        """All good rows of the file.

        Raises:
            UserError: if the file cannot be read, has no rows, has bad rows and `on_bad_row` is "refuse", or has no
                good rows; the message names the first bad row.
        """
        reader = _RowReader(self, frozenset(VERIFIERS.names()))
        problems: list[Problem] = []
        bad: list[tuple[str, Bad]] = []
        for row in self._rows():
            problem = reader.problem(row)
            if isinstance(problem, Bad):
                bad.append((row.where, problem))
            else:
                problems.append(problem)
        if bad and (self.on_bad_row == "refuse" or not problems):
            raise UserError(self._complaint(bad, len(problems)))
        if not problems:
            raise UserError(f"{self.path}: the file has no rows; give one with at least one problem")
        key = stream.integer().to_bytes(8, "little")
        problems.sort(key=lambda problem: hashlib.blake2b(problem.id.encode("utf-8", "replace"), key=key).digest())
        examples = tuple(f"{where} {why}" for where, why in bad[:MAX_EXAMPLES])
        return Loaded(tuple(problems), SourceReport(len(problems), Counter(why.reason for _, why in bad), examples))

    def _complaint(self, bad: list[tuple[str, Bad]], good: int) -> str:
        more = f", and {len(bad) - 1} more bad rows" if len(bad) > 1 else ""
        remedy = "no row is left; name the file's columns with prompt_column, answer_column and the like"
        if good:
            remedy = "correct the file, or set the source's on_bad_row to drop"
        where, why = bad[0]
        return f"{where}: {why}{more}; {remedy}"

    def _rows(self) -> Iterator[FileRow]:
        read = {".jsonl": self._read_jsonl, ".json": self._read_json, ".parquet": self._read_parquet}
        ending = Path(self.path).suffix
        if ending not in read:
            raise UserError(f"source file: {self.path!r} ends in {ending!r}; give a .jsonl, .json or .parquet file")
        try:
            yield from read[ending]()
        except FileNotFoundError:
            raise UserError(
                f"problem file: {self.path!r} does not exist; correct the source's path (a relative one is looked for "
                "beside the YAML file, in the current folder and in the repository)"
            ) from None
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({one_line(error)}); check the source's path") from error

    def _read_jsonl(self) -> Iterator[FileRow]:
        with open(self.path, "rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield FileRow(f"{self.path}:{number}", _parsed_line(line))

    def _read_json(self) -> Iterator[FileRow]:
        try:
            values = json.loads(Path(self.path).read_bytes())
        except (ValueError, RecursionError) as error:
            raise UserError(f"{self.path}: not JSON ({one_line(error)}); correct it") from error
        if not isinstance(values, list):
            raise UserError(f"{self.path}: holds a {type(values).__name__}; give a list of objects, one per problem")
        for number, value in enumerate(values, start=1):
            yield FileRow(f"{self.path}:row {number}", value if isinstance(value, dict) else Bad("not an object"))

    def _read_parquet(self) -> Iterator[FileRow]:
        parquet = load_extra("pyarrow.parquet", "Parquet files")
        arrow_error = load_extra("pyarrow", "Parquet files").ArrowException
        try:
            with parquet.ParquetFile(self.path) as table:
                columns = self._columns(table.schema_arrow.names)
                number = unpacked = 0
                stated = sum(table.metadata.row_group(i).total_byte_size for i in range(table.num_row_groups))
                most = max(UNPACKED, DENSEST * Path(self.path).stat().st_size)
                self._require_moderate(stated, most)
                for batch in table.iter_batches(batch_size=64 if stated * 10 < most else 4, columns=columns):
                    whole = (each.dictionary_decode() if hasattr(each, "dictionary") else each for each in batch)
                    unpacked += sum(column.nbytes for column in whole)
                    self._require_moderate(unpacked, most)
                    for values in batch.to_pylist():
                        number += 1
                        yield FileRow(f"{self.path}:row {number}", values)
        except arrow_error as error:
            raise UserError(f"{self.path}: not a Parquet file ({one_line(error)}); correct it") from error

    def _require_moderate(self, unpacked: int, most: int) -> None:
        if unpacked > most:
            raise UserError(f"{self.path}: stands for more than {DENSEST} times its size; give it as JSON Lines")

    def _columns(self, known: list[str]) -> list[str]:
        needed = [self.prompt_column, self.answer_column, self.id_column, self.verifier_column, self.solution_column]
        needed += self.feature_columns
        for name in filter(None, needed):
            if name not in known:
                raise unknown(f"{self.path}: column", name, known)
        return known if self.other_features else list(dict.fromkeys(filter(None, needed)))

    def features_of(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """The columns of a row that become features."""
        texts = (self.prompt_column, self.answer_column, self.id_column, self.verifier_column, self.solution_column)
        others = [name for name in values if name not in (*texts, *self.feature_columns) and values[name] is not None]
        return (*self.feature_columns, *(others if self.other_features else ()))


@dataclass(frozen=True)
class Pool(File):
    """Problems with a probe's guess of their pass rates, as `halfway propel export` writes them."""

    id_column: str = "id"
    verifier_column: str = "verifier"
    feature_columns: tuple[str, ...] = ("probed_rate", "probed_by")
    other_features: ClassVar[bool] = True  # a verifier may need them


@dataclass(frozen=True)
class Surveyed(File):
    """Problems with the pass rates of a starting policy, as `halfway survey` writes them."""

    id_column: str = "id"
    verifier_column: str = "verifier"
    solution_column: str = "solution"
    feature_columns: tuple[str, ...] = ("pass_rate",)
    other_features: ClassVar[bool] = True


@dataclass
class _RowReader:
    """Makes problems from rows, remembering where each earlier row stands."""

    file: File
    verifiers: frozenset[str]
    where_of: dict[tuple[str, str], str] = field(default_factory=dict)

    def problem(self, row: FileRow) -> Problem | Bad:
        file, values = self.file, row.values
        if isinstance(values, Bad):
            return values
        messages = _messages(values, file.prompt_column)
        if isinstance(messages, Bad):
            return messages
        if messages:
            values = {**values, file.prompt_column: message_text(messages)}
        texts: dict[str, str] = {}
        for column in filter(None, (file.prompt_column, file.answer_column, file.id_column)):
            text = _text(values, column)
            if isinstance(text, Bad):
                return text
            texts[column] = text
        prompt, answer = texts[file.prompt_column], texts[file.answer_column]
        name = file.name or Path(file.path).stem
        content = content_id(name, prompt, answer)
        verifier = (values.get(file.verifier_column) if file.verifier_column else None) or file.verifier
        features: dict[str, float | str | tuple[float, ...]] = {}
        for column in file.features_of(values):
            feature = _feature(values, column)
            if isinstance(feature, Bad):
                return feature
            features[column] = feature
        identity = texts.get(file.id_column, content)
        solution = str(values.get(file.solution_column) or "") if file.solution_column else ""
        problem = Problem(identity, prompt, answer, name, verifier, features, messages, solution)
        keys = [("prompt and answer", content), ("id", problem.id)]
        for key in keys:
            if key in self.where_of:
                return Bad(f"repeats the {key[0]} of an earlier row", self.where_of[key])
        trouble = self._verifier_trouble(problem)
        if trouble is None:
            self.where_of.update(dict.fromkeys(keys, row.where))
        return trouble or problem

    def _verifier_trouble(self, problem: Problem) -> Bad | None:
        if not isinstance(problem.verifier, str) or problem.verifier not in self.verifiers:
            return Bad("unknown verifier", one_line(problem.verifier))
        if not self.file.check_answers:
            return None
        try:
            VERIFIERS.get(problem.verifier)(problem, "")
        except UserError:
            raise
        except Exception as error:
            return Bad(f"answer that verifier {problem.verifier} cannot read", one_line(error))
        return None


def _parsed_line(line: bytes) -> Mapping[str, Any] | Bad:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # also text that is not UTF-8
        return Bad("not JSON", one_line(error))
    return value if isinstance(value, dict) else Bad("not an object")


def _messages(values: Mapping[str, Any], column: str) -> tuple[Message, ...] | Bad:
    """The messages of a prompt; none if it is not a list of objects."""
    listed = values.get(column)
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        return ()
    for entry in listed:
        if not all(isinstance(entry.get(key), str) and entry[key].strip() for key in ("role", "content")):
            return Bad(f"{column} has a message without role and content", one_line(entry))
    if not listed or listed[-1]["role"] == "assistant":
        return Bad(f"{column} does not end with a message to the policy", one_line(listed))
    return tuple(Message(entry["role"], entry["content"]) for entry in listed)


def message_text(messages: Sequence[Message]) -> str:
    """Messages as one text; a single user message becomes its content."""
    if len(messages) == 1 and messages[0].role == "user":
        return messages[0].content
    return "\n\n".join(f"{message.role}: {message.content}" for message in messages)


def _text(values: Mapping[str, Any], column: str) -> str | Bad:
    value = values.get(column)
    if value is None:
        return Bad(f"no {column}", "" if column in values else f"the row has {_names(values)}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return Bad(f"{column} is not text", one_line(value))
    return str(value) if str(value).strip() else Bad(f"empty {column}")


def _names(values: Mapping[str, Any]) -> str:
    """The first few columns of a row."""
    shown = [str(name) for name in values][:MOST_NAMES]
    return ", ".join(shown + ["..."] * (len(values) > len(shown))) or "nothing"


def _feature(values: Mapping[str, Any], column: str) -> float | str | tuple[float, ...] | Bad:
    """A feature as it stands in the row: a number, a text, or a vector."""
    value = values.get(column)
    if isinstance(value, list) and value and all(isinstance(x, int | float) and not isinstance(x, bool) for x in value):
        return tuple(map(float, value))
    text = _text(values, column)
    return text if isinstance(text, Bad) else values[column]


def _prompt(problem: Problem) -> Any:
    """The value from which `File` reads the prompt."""
    return [asdict(message) for message in problem.messages] or problem.prompt


def write_problems(problems: Iterable[Problem], path: str, features: bool = False) -> None:
    """Write problems as JSONL that `File(path, id_column="id", verifier_column="verifier")` reads back.

    Reference solutions, if any, are read back by `solution_column="solution"`.

    Args:
        features: whether to write the problems' features too, as further columns (see `File.feature_columns`).
    """
    lines = (
        json.dumps(
            (dict(p.features) if features else {})
            | {"id": p.id, "prompt": _prompt(p), "answer": p.answer, "verifier": p.verifier}
            | ({"solution": p.solution} if p.solution else {})
        )
        + "\n"
        for p in problems
    )
    write_text(Path(path), "".join(lines))
