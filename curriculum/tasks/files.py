"""Problems from data files."""

import gc
import json
import math
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from halfway.curriculum import Message, Problem, Stream, UserError, require, unknown
from halfway.curriculum.problems import PackedProblems
from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.tasks.data_files import (
    SPEAKERS,
    Bad,
    Block,
    Row,
    blocks,
    json_value,
    kind_of,
    sample,
    shards,
    stem,
    value_at,
)
from halfway.curriculum.tasks.layouts import BOX, CONVERSATIONS, VERL_ANSWER, are_objects, recognise, unseen_options
from halfway.curriculum.tasks.reference_checks import AnswerChecks
from halfway.curriculum.tasks.sources import MAX_EXAMPLES, Loaded, Source, SourceReport, content_id, content_ids
from halfway.curriculum.tasks.verifiers.numbers import final_answer
from halfway.curriculum.tasks.verifiers.verify import ANY_OF, VERIFIERS, find_verifier

MOST_BAD = 1_000_000
"""Bad rows after which to give up a file if more than four rows in five are bad."""
COMPARING = ("exact", "numeric", "symbolic")
"""Verifiers that compare a response with the answer's text."""
LONGEST_VERIFIER = 1000
"""Letters of a verifier's name with its options."""
MOST_NAMES = 8
"""Maximum number of columns to list in a complaint about a row."""
NO_FEATURES: Mapping[str, float] = {}
FLOAT = re.compile(r"-?(?:0|[1-9]\d*)\.\d+")
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")
"""Floating point, and numbers, as programs write them into tables of text."""
PYTHONIC = re.compile(r"\[\s*\{'(?:role|content)': ")
"""The beginning of a list of messages that Python, not JSON, wrote into a text cell."""
HALF = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which JSON may hold and no tokenizer takes."""
REPEATS = "repeats the prompt and answer of an earlier row"
SEVERAL = "has several values"
SHAREGPT = {"human": "user", "gpt": "assistant"}
BARE_BOX = re.compile(r"\\boxed\s+([^\s$.,{][^\s$.,]*)")
"""A box without braces, as in some of MATH's solutions."""
MOST_DIGITS = 400
"""A number that would be longer without its exponent keeps it."""


def keep_and_count(tried: Iterable[tuple[str, Problem | Bad]]) -> Loaded:
    """Keep the problems, in order; all other items, including repeated ids, are counted by reason.

    Args:
        tried: place of each item, and the problem or why it is not one.
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


@dataclass(frozen=True, kw_only=True)
class Rows(Source):
    """Rows with a prompt and an answer.

    A prompt is text, or a list of messages `{"role": ..., "content": ...}` for the policy's chat template.

    A row is bad if it is not JSON or not an object, has no prompt, answer or feature (absent, null, NaN, empty, or
    neither text nor number nor, for a feature, a list of numbers), repeats the id of an earlier row, names no known
    verifier, or has an answer that its verifier cannot read. A row that repeats the prompt and answer of an earlier one
    is left out and counted; blank lines are ignored. An answer may be a list of several if the verifier is `any_of`.

    A number is read as written, but without an exponent. In a column of whole numbers with gaps, which tables store as
    floating point, 42.0 is read as 42.

    The order of the problems is a function of the stream and their ids, so the choice of held-out rows does not depend
    on their order in the file.

    Attributes:
        prompt_column, answer_column: names of columns, or dotted paths such as reward_model.ground_truth. If these
            columns do not exist, those of verl, TRL, prime-rl, GSM8K, MATH, Big-Math, DeepMath and more are found.
        context_column: column of a text to append to a plain prompt, such as Alpaca's "input"; a row may lack it.
        answer_after: mark before the answer proper, such as "####"; its last occurrence counts. After "\\boxed", the
            answer is what stands in braces. Empty = recognised if most of the first rows have GSM8K's or MATH's.
        id_column: column of stable, unique ids; empty = a hash of the content.
        verifier: registered name of the verifier.
        verifier_column: column that names a verifier for each row, or null for `verifier`; empty = no such column.
        solution_column: column of reference solutions, from which hints are cut; empty = none, except GSM8K's and
            MATH's. A row may lack one.
        feature_columns: columns whose numbers, texts or lists of numbers become features of the problems.
        check_answers: whether to check each answer with its verifier while loading (1 ms per row for "symbolic", on
            the first reading of a file).
        on_bad_row: "refuse" the file, or "drop" the row, count it and continue.
        max_problems: maximum number of problems to read; one takes .3 KB of memory beside its text.
    """

    prompt_column: str = "prompt"
    answer_column: str = "answer"
    context_column: str = ""
    answer_after: str = ""
    id_column: str = ""
    verifier: str = "exact"
    verifier_column: str = ""
    solution_column: str = ""
    feature_columns: tuple[str, ...] = ()
    check_answers: bool = True
    on_bad_row: Literal["refuse", "drop"] = "refuse"
    max_problems: int = 1_500_000
    other_features: ClassVar[bool] = False
    """Whether a row's other columns are features too, as in files that Halfway writes."""

    rates: ClassVar[tuple[str, ...]] = ()
    """Features that are numbers from 0 to 1."""

    def __post_init__(self) -> None:
        if self.verifier.partition("(")[0] in VERIFIERS.names():
            find_verifier(self.verifier)  # raises for unknown options
        else:
            raise unknown(f"{type(self).__name__.lower()}.verifier", self.verifier, VERIFIERS.names())
        name = f"{type(self).__name__.lower()}.max_problems"
        require(self.max_problems >= 1, name, self.max_problems, "give at least 1")

    def files(self) -> list[Path]:
        """Find the data files. Raises UserError if there are none."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The problems' source, a part of ids made from content."""
        raise NotImplementedError

    def load(self, wanted: int | None, stream: Stream) -> Loaded:
        """Load all good rows of the files.

        Raises:
            UserError: if a file cannot be read, there are no rows, there are bad rows and `on_bad_row` is "refuse", or
                there are no good rows; the message names the first bad row.
        """
        files = self.files()
        rows = next(filter(None, map(sample, files)), [])
        layout = recognise(rows, self)
        plain = replace(self, **layout.columns) if layout else self
        with without_collection():
            reader = _Reader(plain).read(files)
            if reader.whole_with_gaps:
                reader = _Reader(plain, as_integers=True).read(files)
        problems = reader.problems
        if reader.bad and (self.on_bad_row == "refuse" or not problems):
            raise UserError(reader.complaint())
        if not problems:
            raise UserError(f"{files[0]}: the file has no rows; give a file with at least one problem")
        problems = _shuffle(problems, stream.integer().to_bytes(8, "little"))
        examples = tuple(f"{where} {why}" for where, why in [*reader.examples, *reader.repeated][:MAX_EXAMPLES])
        options = unseen_options(rows, plain)
        unseen = f"warning: prompts do not show the options in the column {options}; write them into the prompts"
        as_text = self.verifier.partition("(")[0] in COMPARING and are_objects(rows, plain)
        objects = f"warning: answers are JSON objects, which {self.verifier} compares as text; give a verifier for them"
        said = ((str(layout), layout), (unseen, options), (objects, as_text and not self.verifier_column))
        notes = (*(note for note, applies in said if applies), *reader.doubts())
        report = SourceReport(len(problems), reader.bad + reader.repeats, examples, notes)
        return Loaded(problems, report)

    def options(self) -> dict[str, Any]:
        """The options for reading rows."""
        return {each.name: getattr(self, each.name) for each in fields(Rows)} | {"features": self.other_features}

    def columns(self) -> list[str] | None:
        """The columns that a table must have; None = all its columns."""
        return None if self.other_features else list(dict.fromkeys((*self._texts(), *self.feature_columns)))

    def features_of(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """The columns of a row that become features."""
        if not self.other_features:
            return self.feature_columns
        known = (*self._texts(), *self.feature_columns)
        return (*self.feature_columns, *(name for name in values if name not in known and values[name] is not None))

    def _texts(self) -> list[str]:
        texts = (self.prompt_column, self.context_column, self.answer_column, self.id_column)
        return [name for name in (*texts, self.verifier_column, self.solution_column) if name]


@contextmanager
def without_collection() -> Iterator[None]:
    """Turn off garbage collection, a fifth of the time, for code that makes many objects without cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True)
class File(Rows):
    """Rows of JSON Lines, JSON, CSV or Parquet files, packed (.gz, .zst) or not.

    Attributes:
        path: a file, a folder of files of one kind, or a pattern such as data/train-*.parquet.
        heldout_path: the same for the held-out problems, with the same columns; empty = they are taken from `path`.
        name: source name of the problems, part of ids made from content; empty = the file's name without endings.
    """

    path: str
    heldout_path: str = ""
    name: str = ""

    def heldout(self) -> Source | None:
        return replace(self, path=self.heldout_path, heldout_path="") if self.heldout_path else None

    def files(self) -> list[Path]:
        return shards(self.path)

    @property
    def label(self) -> str:
        return self.name or stem(self.path)


@dataclass(frozen=True, kw_only=True)
class Pool(File):
    """Problems with pass rates predicted by a probe, as written by `halfway propel export`."""

    id_column: str = "id"
    verifier_column: str = "verifier"
    feature_columns: tuple[str, ...] = ("probed_rate", "probed_by")
    other_features: ClassVar[bool] = True  # a verifier may need them
    rates: ClassVar[tuple[str, ...]] = ("probed_rate",)


@dataclass(frozen=True, kw_only=True)
class Surveyed(File):
    """Problems with the pass rates of a starting policy, as written by `halfway survey`."""

    id_column: str = "id"
    verifier_column: str = "verifier"
    solution_column: str = "solution"
    feature_columns: tuple[str, ...] = ("pass_rate",)
    other_features: ClassVar[bool] = True
    rates: ClassVar[tuple[str, ...]] = ("pass_rate",)


def _shuffle(problems: PackedProblems, key: bytes) -> PackedProblems:
    """The problems in an order that depends on their ids and the key alone: that of the ids' digests."""
    begun, digests = blake2b(key=key), bytearray()
    for name in problems.ids():
        digest = begun.copy()
        digest.update(name.encode())
        digests += digest.digest()[:16]  # the rest of 64 bytes never decides
    words = np.frombuffer(digests, ">u8").reshape(-1, 2)
    return problems.choose(np.lexsort((words[:, 1], words[:, 0])).tolist())


@dataclass
class _Reader:
    """Makes problems from rows, and detects repetitions of earlier rows.

    Attributes:
        as_integers: whether to read numbers such as 42.0 as 42.
        bad: number of rows that are not problems, by reason.
        examples: the first few of them, each with its place.
        repeats, repeated: the same for rows that repeat a problem.
    """

    file: Rows
    as_integers: bool = False
    problems: PackedProblems = field(default_factory=PackedProblems)
    bad: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[str, Bad]] = field(default_factory=list)
    repeats: Counter[str] = field(default_factory=Counter)
    repeated: list[tuple[str, Bad]] = field(default_factory=list)
    gaps: bool = False
    decimals: bool = False
    fractions: bool = False
    _label: str = ""
    _plain: bool = False
    _texts: bool = False
    _verifiers: frozenset[str] = field(default_factory=lambda: frozenset(VERIFIERS.names()))
    _places: "array[int]" = field(default_factory=lambda: array("q"))
    _blocks: list[Block] = field(default_factory=list)
    _starts: list[int] = field(default_factory=lambda: [0])
    _ids: dict[str, int] = field(default_factory=dict)
    _prompts: dict[int | str, int] = field(default_factory=dict)  # by hash, or by text if an earlier one has its hash
    _doubts: list[tuple[int, int]] = field(default_factory=list)

    @property
    def whole_with_gaps(self) -> bool:
        """True if the answers look like integers with gaps, which a table stores as floating point."""
        return self.gaps and self.decimals and not self.fractions and not self.as_integers

    def read(self, files: Sequence[Path]) -> "_Reader":
        self._label = self.file.label
        if _is_broken(self._label):
            raise UserError(f"{files[0]}: its name is not UTF-8; rename it, or set the source's name")
        file = self.file
        more = (file.context_column, file.answer_after, file.id_column, file.verifier_column, file.solution_column)
        self._plain = not any((*more, self.file.feature_columns, self.file.other_features))
        options = repr((self.file.options(), self.as_integers))
        for path in files:
            self._texts = kind_of(path)[0] == "csv"
            with AnswerChecks(path, options) as checks:
                for block in blocks(path, self.file.columns()):
                    self._take(block, checks)
        return self

    def complaint(self) -> str:
        """One line with the first bad row."""
        total = self.bad.total()
        more = f", and {total - 1} more bad rows" if total > 1 else ""
        where, why = self.examples[0]
        if why.reason == f"{self.file.answer_column} {SEVERAL}":
            return (
                f"{where}: {why}{more}; if any one is right, set the source's verifier to any_of({self.file.verifier})"
            )
        if self.problems:
            return f"{where}: {why}{more}; correct the file, or set the source's on_bad_row to drop"
        return f"{where}: {why}{more}; no row is left; {self._remedy()}"

    def _remedy(self) -> str:
        """What to do if all rows are bad, by the reason that most of them have."""
        reason, answer = self.bad.most_common(1)[0][0], self.file.answer_column
        if reason in ("not JSON", "not an object"):
            return "write one object per line, as json.dumps does"
        if reason == f"no {answer}":
            return "name the column of final answers with answer_column, or add one, since a verifier compares them"
        if reason.startswith("answer that verifier"):
            return "take another verifier, or write answers that this one reads"
        if reason == f"{answer} is an object":
            return f"name one of its fields, as in answer_column: {answer}.NAME, or write JSON in quotes for a verifier"
        if reason == f"{answer} is not text":
            return "write answers as text, such as JSON in quotes for a verifier of your own"
        return "name the file's columns with prompt_column, answer_column and the like"

    def doubts(self) -> list[str]:
        """One line of warning if prompts occur with several answers."""
        if not self._doubts:
            return []
        first, second = map(self._where, self._doubts[0])
        more = f", and {len(self._doubts) - 1} more such rows" if len(self._doubts) > 1 else ""
        return [f"warning: {second}: has the prompt of {first} but another answer{more}; both train, so correct one"]

    def _where(self, place: int) -> str:
        block = bisect_right(self._starts, place) - 1
        return self._blocks[block].where(place - self._starts[block])

    def _take(self, block: Block, checks: AnswerChecks) -> None:
        start = self._starts[-1]
        self._blocks.append(block._replace(rows=()))
        self._starts.append(start + len(block.rows))
        made = self._make(block.rows)
        if self.file.check_answers:
            made = checks.check(block.numbers, made)
        for place, problem in enumerate([] if self._all_new(made, start) else made, start):
            if isinstance(problem, Problem):
                problem = self._new(problem, place)
            if isinstance(problem, Bad):
                again = problem.reason == REPEATS
                counts, examples = (self.repeats, self.repeated) if again else (self.bad, self.examples)
                counts[problem.reason] += 1
                if len(examples) < MAX_EXAMPLES:
                    examples.append((self._where(place), problem))
        if (total := self.bad.total()) > MOST_BAD and total > 4 * len(self.problems):
            raise UserError(self.complaint())
        if len(self.problems) > (most := self.file.max_problems):
            remedy = "split the data, or raise the source's max_problems if memory allows"
            raise UserError(f"{block.path}: has more than {most:,} problems; {remedy}")

    def _new(self, problem: Problem, place: int) -> Problem | Bad:
        """Keep a problem, unless an earlier one has its id, or its prompt and answer."""
        number, key = len(self.problems), self._key(problem.prompt)
        same = self._prompts.setdefault(key, number)
        if same != number and self.problems[same].answer == problem.answer:
            return Bad(REPEATS, self._where(self._places[same]))
        by_id = same != number or self.file.id_column  # otherwise the id is a hash of a new prompt
        if by_id and self._ids.setdefault(problem.id, number) != number:
            if same == number:
                del self._prompts[key]
            reason = "repeats the id of an earlier row" if self.file.id_column else REPEATS
            return Bad(reason, self._where(self._places[self._ids[problem.id]]))
        if same != number:
            self._doubts.append((self._places[same], place))
        self.problems.extend([problem])
        self._places.append(place)
        return problem

    def _key(self, prompt: str) -> int | str:
        """The key of a prompt in `_prompts`."""
        same = self._prompts.get(hash(prompt))
        return hash(prompt) if same is None or self.problems[same].prompt == prompt else prompt

    def _make(self, rows: Sequence[Row]) -> list[Problem | Bad]:
        """Make the problem of each row. Rows of two texts, without further columns, take half the time."""
        if not self._plain:
            return [self._problem(row) for row in rows]
        made: list[Problem | Bad] = []
        prompt_column, answer_column, label = self.file.prompt_column, self.file.answer_column, self._label
        verifier, identity, texts, is_float = self.file.verifier, content_ids(label), self._texts, FLOAT.fullmatch
        for row in rows:
            if type(row) is dict:
                prompt, answer = row.get(prompt_column), row.get(answer_column)
                if (
                    type(prompt) is str
                    and type(answer) is str
                    and prompt[:1] != "["
                    and prompt.strip()
                    and answer.strip()
                    and (prompt.isascii() or not _is_broken(prompt))
                    and (answer.isascii() or not _is_broken(answer))
                    and not (texts and is_float(answer))
                ):
                    self.fractions |= texts
                    made.append(Problem(identity(prompt, answer), prompt, answer, label, verifier, NO_FEATURES))
                    continue
            made.append(self._problem(row))
        return made

    def _all_new(self, made: Sequence[Problem | Bad], start: int) -> bool:
        """Keep all rows of a block at once, if they are problems with new prompts and ids."""
        good = [problem for problem in made if isinstance(problem, Problem)]
        hashes = [hash(problem.prompt) for problem in good]
        prompts: dict[int | str, int] = dict(zip(hashes, count(len(self.problems)), strict=False))
        if len(prompts) < len(made) or not self._prompts.keys().isdisjoint(prompts):
            return False
        if self.file.id_column:
            ids = {problem.id: number for number, problem in enumerate(good, len(self.problems))}
            if len(ids) < len(made) or not self._ids.keys().isdisjoint(ids):
                return False
            self._ids |= ids
        self._prompts |= prompts
        self.problems.extend(good)
        self._places.extend(range(start, start + len(good)))
        return True

    def _problem(self, values: Row) -> Problem | Bad:
        if isinstance(values, Bad):
            return values
        file = self.file
        answer = self._answer(values)  # first: a row without a prompt may be the gap in a column of integers
        messages = _messages(values, file.prompt_column)
        if isinstance(messages, Bad):
            return messages
        prompt = message_text(messages) if messages else self._prompt(values)
        if isinstance(prompt, Bad):
            return prompt
        if isinstance(answer, Bad):
            return answer
        identity = _text(values, file.id_column) if file.id_column else content_id(self._label, prompt, answer)
        if isinstance(identity, Bad):
            return identity
        features: dict[str, float | str | tuple[float, ...]] = {}
        for column in file.features_of(values):
            if _is_broken(column):
                return Bad("a column's name has half a surrogate pair", ascii(column))
            feature = _feature(values, column, self._texts)
            if isinstance(feature, Bad):
                return feature
            if column in file.rates and not (isinstance(feature, float) and 0 <= feature <= 1):
                return Bad(f"{column} is not between 0 and 1", one_line(feature))
            features[column] = feature
        verifier = self._verifier(values)
        if verifier is not file.verifier and not (
            isinstance(verifier, str)
            and len(verifier) <= LONGEST_VERIFIER
            and (verifier in self._verifiers or _is_found(verifier))
        ):
            return Bad("unknown verifier", one_line(verifier))
        solution = _optional(values, file.solution_column)
        if isinstance(solution, Bad):
            return solution
        return Problem(identity, prompt, answer, self._label, verifier, features, messages, solution)

    def _verifier(self, values: Mapping[str, Any]) -> Any:
        named = value_at(values, self.file.verifier_column) if self.file.verifier_column else None
        return named or self.file.verifier

    def _prompt(self, values: Mapping[str, Any]) -> str | Bad:
        prompt, context = (
            _text(values, self.file.prompt_column, listed=True),
            _optional(values, self.file.context_column),
        )
        if isinstance(prompt, Bad) or not context:
            return prompt
        return context if isinstance(context, Bad) else f"{prompt}\n\n{context}"

    def _answer(self, values: Mapping[str, Any]) -> str | Bad:
        file = self.file
        value = value_at(values, file.answer_column)
        if self._texts and isinstance(value, str):  # pandas writes integers with gaps as floating point
            value = Decimal(value) if FLOAT.fullmatch(value) else value
            self.fractions |= not isinstance(value, Decimal)
        if value is None or value != value:
            self.gaps = True
        elif type(value) is Decimal and value.is_finite():
            whole = value == value.to_integral_value()
            self.decimals, self.fractions = True, self.fractions or not whole
            if self.as_integers and whole:
                return plain_number(value.to_integral_value())
        if isinstance(value, list) and len(value) > 1:
            return self._any_of(values, value)
        answer = _text(values, file.answer_column, listed=True)
        if file.answer_column == VERL_ANSWER and isinstance(answer, str) and answer.startswith('["'):
            listed = json_value(answer)  # as in Skywork-OR1
            answer = _text({VERL_ANSWER: listed}, VERL_ANSWER, listed=True) if _is_one_text(listed) else answer
        if not file.answer_after or isinstance(answer, Bad):
            return answer
        if file.answer_after == BOX:
            return _read_box(answer) or Bad(f"{file.answer_column} has no {BOX}", one_line(answer))
        _, found, last = answer.rpartition(file.answer_after)
        lacking = Bad(f"{file.answer_column} has nothing after {file.answer_after}", one_line(answer))
        return (found and last.strip()) or lacking

    def _any_of(self, values: Mapping[str, Any], listed: Sequence[Any]) -> str | Bad:
        """Several answers as a JSON list of texts, for the verifier `any_of`."""
        column = self.file.answer_column
        texts = [_text({column: each}, column) for each in listed]
        if any(isinstance(text, Bad) for text in texts):
            return Bad(f"{column} is not text", one_line(listed))
        if not str(self._verifier(values)).startswith(ANY_OF):
            return Bad(f"{column} {SEVERAL}", one_line(listed))
        return json.dumps(texts, ensure_ascii=False)


def _messages(values: Mapping[str, Any], column: str) -> tuple[Message, ...] | Bad:
    """The messages of a prompt; () if it is not a list of objects."""
    listed = value_at(values, column)
    if isinstance(listed, str) and listed[:1] == "[":
        if PYTHONIC.match(listed):
            return Bad(f"{column} is a list of messages as Python shows it, not JSON", one_line(listed))
        decoded = json_value(listed)
        if (
            isinstance(decoded, list)
            and decoded
            and all(isinstance(each, dict) and SPEAKERS & each.keys() for each in decoded)
        ):
            listed = decoded
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        return ()
    messages = [_message(entry) for entry in listed]
    if column in CONVERSATIONS:
        while messages and messages[-1][0] == "assistant":
            messages.pop()
    for entry, message in zip(listed, messages, strict=False):
        if not all(isinstance(part, str) and part.strip() for part in message):
            parts = isinstance(entry.get("content"), list)
            what = "with parts that are not text" if parts else "without role and content"
            return Bad(f"{column} has a message {what}", one_line(entry))
        if any(map(_is_broken, message)):
            return Bad(f"{column} has half a surrogate pair", one_line(ascii(entry)))
    if not messages or messages[-1][0] == "assistant":
        return Bad(f"{column} does not end with a message to the policy", one_line(listed))
    return tuple(Message(role, content) for role, content in messages)


def _message(entry: Mapping[str, Any]) -> tuple[Any, Any]:
    """The role and the text of a message, whose fields are "from" and "value" in ShareGPT."""
    role, content = entry.get("role") or entry.get("from"), entry.get("content") or entry.get("value")
    return SHAREGPT.get(role, role) if isinstance(role, str) else role, _content(content)


def _content(content: Any) -> Any:
    """The text of a message, possibly a list of parts; None if a part is not text."""
    if not isinstance(content, list):
        return content
    texts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "".join(texts) if len(texts) == len(content) else None


def message_text(messages: Sequence[Message]) -> str:
    """Join messages into one text; a single user message becomes its content."""
    if len(messages) == 1 and messages[0].role == "user":
        return messages[0].content
    return "\n\n".join(f"{message.role}: {message.content}" for message in messages)


def _text(values: Mapping[str, Any], column: str, listed: bool = False) -> str | Bad:
    """The text of a column; with `listed`, also from a list of one."""
    value = value_at(values, column)
    if listed and isinstance(value, list) and len(value) == 1:  # as in OlympiadBench
        [value] = value
    if type(value) is str:
        if _is_broken(value):
            return Bad(f"{column} has half a surrogate pair", one_line(ascii(value)))
        return value if value.strip() else Bad(f"empty {column}")
    if value is None:
        return Bad(f"no {column}", "" if column in values else f"the row has {_names(values)}")
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return Bad(f"{column} is {'an object' if isinstance(value, Mapping) else 'not text'}", one_line(value))
    number = value if isinstance(value, int | Decimal) else Decimal(repr(value))
    return plain_number(number) if isinstance(number, int) or number.is_finite() else Bad(f"{column} is {number}")


def _is_broken(text: str) -> bool:
    return not text.isascii() and HALF.search(text) is not None


def _is_one_text(listed: Any) -> bool:
    return isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], str)


def _read_box(solution: str) -> str:
    """The content of a solution's last box; "" if there is none."""
    text = BARE_BOX.sub(r"\\boxed{\1}", solution)
    return (final_answer(text) or "").strip() if BOX in text else ""


def _optional(values: Mapping[str, Any], column: str) -> str | Bad:
    """The text of a column that a row may lack; "" if it is absent, null, NaN or blank, or the column has no name."""
    value = value_at(values, column) if column else None
    lacking = value is None or value != value or (isinstance(value, str) and not value.strip())
    return "" if lacking else _text(values, column)


def plain_number(number: int | Decimal) -> str:
    """Write a number with all its digits and without an exponent."""
    short = isinstance(number, int) or abs(number.adjusted()) <= MOST_DIGITS
    return f"{number:f}" if short and isinstance(number, Decimal) else str(number)


def _names(values: Mapping[str, Any]) -> str:
    """Names of the first few columns of a row."""
    shown = [str(name) for name in values][:MOST_NAMES]
    return ", ".join(shown + ["..."] * (len(values) > len(shown))) or "nothing"


def _feature(values: Mapping[str, Any], column: str, texts: bool) -> float | str | tuple[float, ...] | Bad:
    """Read a feature of a row: a number, a text, or a vector."""
    value = value_at(values, column)
    if texts and isinstance(value, str) and NUMBER.fullmatch(value):
        value = Decimal(value)
    if isinstance(value, list) and value and all(type(each) in (int, float, Decimal) for each in value):
        numbers = tuple(map(_float, value))
        return numbers if all(map(math.isfinite, numbers)) else Bad(f"{column} has a number that is not finite")
    text = str(value) if isinstance(value, bool) else _text(values, column)
    if isinstance(text, Bad) or not isinstance(value, Decimal | int | float):
        return text
    return number if math.isfinite(number := _float(value)) else Bad(f"{column} is too large a number", one_line(text))


def _float(number: Decimal | int | float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _prompt(problem: Problem) -> Any:
    """The value of the prompt for `File` to read back."""
    return [asdict(message) for message in problem.messages] or problem.prompt


@lru_cache(maxsize=64)
def _is_found(verifier: str) -> bool:
    """True if a verifier has this name, perhaps with options."""
    try:
        find_verifier(verifier)
    except UserError:
        return False
    return True


def write_problems(problems: Iterable[Problem], path: str, features: bool = False) -> None:
    """Write problems as JSONL for `File(path, id_column="id", verifier_column="verifier")` to read back.

    `solution_column="solution"` reads back reference solutions, if there are any.

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
