"""The corpus: texts of the base generator, judged and labelled, as Parquet files that record their provenance."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from halfway.curriculum import Stream, UserError
from halfway.curriculum.support.atomic import reading, replacing, require_few_values
from halfway.curriculum.support.extras import load_extra
from halfway.curriculum.support.parquet_hash import BLANK, KEY, seal
from halfway.curriculum.tasks.data_files import require_moderate_table
from halfway.trainers.propel.probes.sweep import LabelledRows
from halfway.trainers.propel.propel_options import CorpusOptions
from halfway.trainers.propel.solver import Solver
from halfway.trainers.propel.writing import Author, Written

PROVENANCE = b"halfway"


@dataclass(frozen=True, slots=True)
class CorpusRow:
    """One generated text.

    Attributes:
        id: "chunk/number".
        prompt, text, tokens: the generator's prompt, its text, and the text's number of tokens.
        invalid, detail: why the text is not a valid task; "" if it is valid.
        topic: the task's topic; "" if the text could not be parsed.
        problem_id, problem, answer, verifier, features: fields of the problem; "" if there is none. Features are JSON.
        duplicate: whether an earlier row has the same problem.
        passed: number of the solver's `attempts` trials that passed; -1 without trials, for a duplicate or an invalid
            text.
        attempts: number of solver trials spent on this row.
        oracle_answers: final answers of the oracles, a JSON list with "" for no answer; "" if they were not asked.
        oracle_attempts: number of oracle attempts spent on this row; 0 if its chunk has the problem before.
    """

    id: str
    prompt: str
    text: str
    tokens: int
    invalid: str
    detail: str
    topic: str
    problem_id: str
    problem: str
    answer: str
    verifier: str
    source: str
    features: str
    duplicate: bool
    passed: int
    attempts: int
    oracle_answers: str = ""
    oracle_attempts: int = 0

    @property
    def labelled(self) -> bool:
        return self.passed >= 0


@dataclass(frozen=True)
class Corpus:
    """All rows of a finished corpus.

    Attributes:
        provenance: models, options and seed, which determine the rows.
    """

    rows: tuple[CorpusRow, ...]
    provenance: Mapping[str, Any]

    @property
    def labelled(self) -> tuple[CorpusRow, ...]:
        """The labelled rows: valid rows, each problem once."""
        return tuple(row for row in self.rows if row.labelled)


def build_corpus(
    author: Author,
    solver: Solver,
    options: CorpusOptions,
    provenance: Mapping[str, Any],
    folder: Path,
    stream: Stream,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Corpus:
    """Write, judge and label texts, chunk by chunk; chunks that the folder already has are skipped.

    Raises:
        UserError: if the folder's chunks have another provenance, or no text is a valid task.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[CorpusRow] = []
    for number, first in enumerate(range(0, options.generations, options.chunk)):
        progress(first, options.generations)
        file = folder / f"part-{number:05d}.parquet"
        count = min(options.chunk, options.generations - first)
        if file.exists():
            rows += _read_part(file, provenance)
            continue
        seen = {row.problem_id for row in rows if row.problem_id}
        part = label_texts(author.write(count, stream.at("write", number)), solver, stream.at("solve", number), seen)
        part = [replace(row, id=f"{number}/{row.id}") for row in part]
        write_rows(part, file, provenance)
        rows += part
    progress(options.generations, options.generations)
    if not any(row.labelled for row in rows):
        reason, count = Counter(row.invalid for row in rows).most_common(1)[0]
        raise UserError(
            f"corpus: none of {len(rows)} texts is a valid task ({count} times: {reason}); "
            f"look at {folder}, and fix the generator or the domain's options"
        )
    return Corpus(tuple(rows), provenance)


def try_all(written: Sequence[Written], solver: Solver, stream: Stream) -> list[CorpusRow]:
    """Try the problem of every valid text, even if an earlier text has the same one."""
    return _try_texts(written, [i for i, one in enumerate(written) if one.valid], solver, stream)


def label_texts(
    written: Sequence[Written], solver: Solver, stream: Stream, seen: set[str] | frozenset[str] = frozenset()
) -> list[CorpusRow]:
    """Try every problem that is not in `seen` once, however often it occurs."""
    first_of: dict[str, int] = {}
    for i, one in enumerate(written):
        if one.valid and one.problem.id not in seen:
            first_of.setdefault(one.problem.id, i)
    return _try_texts(written, sorted(first_of.values()), solver, stream)


def _try_texts(written: Sequence[Written], chosen: Sequence[int], solver: Solver, stream: Stream) -> list[CorpusRow]:
    """Try the problems of the chosen texts; returns the numbered rows of all texts."""
    passed = dict(zip(chosen, solver.passes([written[i].problem for i in chosen], stream), strict=True))
    return [_row(str(i), one, passed.get(i), solver.attempts) for i, one in enumerate(written)]


def _row(identity: str, one: Written, passed: int | None, attempts: int) -> CorpusRow:
    candidate, problem = one.candidate, one.candidate.problem
    invalid = candidate.invalid
    return CorpusRow(
        id=identity,
        prompt=one.prompt,
        text=candidate.text,
        tokens=one.num_tokens,
        invalid=invalid.reason if invalid else "",
        detail=invalid.detail if invalid else "",
        topic=candidate.topic,
        problem_id=problem.id if problem else "",
        problem=problem.prompt if problem else "",
        answer=problem.answer if problem else "",
        verifier=problem.verifier if problem else "",
        source=problem.source if problem else "",
        features=json.dumps(dict(problem.features)) if problem else "",
        duplicate=problem is not None and passed is None,
        passed=-1 if passed is None else passed,
        attempts=0 if passed is None else attempts,
        oracle_answers=json.dumps(candidate.answers) if candidate.answers else "",
        oracle_attempts=candidate.oracle_attempts,
    )


def write_rows(rows: Sequence[CorpusRow], file: Path, provenance: Mapping[str, Any]) -> None:
    """Write rows to a Parquet file. A failure leaves no incomplete file."""
    kinds = {field.name: field.type for field in fields(CorpusRow)}
    write_table([asdict(row) for row in rows], kinds, file, provenance)


def write_table(
    rows: Sequence[dict[str, Any]], kinds: Mapping[str, Any], file: Path, provenance: Mapping[str, Any]
) -> None:
    """Write rows to a sealed Parquet file that records their provenance. A failure leaves no incomplete file.

    Args:
        kinds: column -> str, int, float, bool or list (of floats).
    """
    arrow, parquet = (load_extra(name, "a corpus or a pool", "propel") for name in ("pyarrow", "pyarrow.parquet"))
    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    types[list] = arrow.list_(arrow.float64())
    schema = arrow.schema(
        [(name, types[kind]) for name, kind in kinds.items()],
        metadata={PROVENANCE: json.dumps(provenance, sort_keys=True), KEY: BLANK},
    )
    table = arrow.Table.from_pylist(rows, schema=schema)
    with replacing(file) as temporary:
        parquet.write_table(table, temporary, compression="zstd", write_page_checksum=True)
        seal(temporary)


def _read_part(file: Path, provenance: Mapping[str, Any]) -> list[CorpusRow]:
    """Read the rows of a file. Raises UserError if it is not part of a corpus, or has another provenance."""
    parquet = load_extra("pyarrow.parquet", "the corpus", "propel")
    with reading(file, "remove it to make it again"):
        written = parquet.read_schema(file).metadata[PROVENANCE]
        require_few_values(written)
        require_moderate_table(file)
        table = parquet.read_table(file, page_checksum_verification=True)
        found: Mapping[str, Any] = json.loads(written)
        rows = [CorpusRow(**values) for values in table.to_pylist()]
    wanted = json.loads(json.dumps(provenance))
    if found != wanted:
        differs = ", ".join(key for key in {**wanted, **found} if wanted.get(key) != found.get(key))
        raise UserError(f"{file}: made with another {differs}; give another name=..., or remove the corpus")
    return rows


def load_corpus(folder: Path, provenance: Mapping[str, Any], generations: int) -> Corpus:
    """Load a corpus from its folder.

    Args:
        provenance: the provenance that it must have.
        generations: the number of texts that it must have.

    Raises:
        UserError: if there is no corpus, it is not finished, or its provenance differs, as by another reference model.
    """
    files = sorted(folder.glob("part-*.parquet"))
    if not files:
        raise UserError(f"{folder}: holds no corpus; make one with `halfway propel corpus`")
    rows = [row for file in files for row in _read_part(file, provenance)]
    if len(rows) < generations:
        raise UserError(f"{folder}: holds {len(rows)} of {generations} texts; continue with `halfway propel corpus`")
    return Corpus(tuple(rows), provenance)


def labelled_rows(corpus: Corpus, solver: Solver) -> LabelledRows:
    """Collect labels and pass rates of the labelled rows. Raises UserError if all belong to one class."""
    passed = [row.passed for row in corpus.labelled]
    labels_N = np.asarray([solver.useful(count) for count in passed], np.bool_)
    if len(set(labels_N.tolist())) < 2:
        which = "useful" if labels_N.all() else "not useful"
        raise UserError(
            f"corpus: all {len(passed)} labelled tasks are {which}, and a probe needs both kinds; "
            "change solver.band or the generator, or label more"
        )
    return LabelledRows(labels_N, np.asarray(passed, float) / solver.attempts)


def surface(corpus: Corpus, names: Sequence[str]) -> dict[str, Any]:
    """Collect surface features of the labelled rows. Raises UserError for a feature that the problems lack."""
    rows = corpus.labelled
    facts = [json.loads(row.features) for row in rows]
    known = {"length", "topic", *facts[0]}
    found: dict[str, Any] = {}
    for name in names:
        if name not in known:
            raise UserError(f"sweep.surface: {name!r} is not a feature of these tasks; choose from {sorted(known)}")
        if name == "length":
            found[name] = np.asarray([len(row.text) for row in rows], float)
        elif name == "topic":
            found[name] = np.asarray([row.topic for row in rows])
        else:
            found[name] = np.asarray([fact[name] for fact in facts])
    return found


@dataclass(frozen=True)
class Costs:
    """The solver trials that a probe costs, and the number that it uses.

    Attributes:
        generations, valid, labelled, positives: texts; valid texts; different valid texts; of these, in the band.
        trials: all trials, including those on rows that no probe saw.
        trials_of_probe: trials on the balanced set's training rows, as PROPEL's table 3 counts.
        trials_discarded: trials on rows that balancing left out.
        oracle_attempts: oracle attempts at reference answers, including tasks that got none; no solver trials.
    """

    generations: int
    valid: int
    labelled: int
    positives: int
    trials: int
    trials_of_probe: int
    trials_discarded: int
    oracle_attempts: int = 0


def costs(corpus: Corpus, rows: LabelledRows, trained: int, discarded: int) -> Costs:
    """Add up the cost of a corpus.

    Args:
        trained: number of rows that a probe was fitted to.
        discarded: number of rows that balancing left out.
    """
    attempts = max(row.attempts for row in corpus.rows)
    return Costs(
        generations=len(corpus.rows),
        valid=sum(not row.invalid for row in corpus.rows),
        labelled=len(rows.labels_N),
        positives=int(rows.labels_N.sum()),
        trials=sum(row.attempts for row in corpus.rows),
        trials_of_probe=attempts * trained,
        trials_discarded=attempts * discarded,
        oracle_attempts=sum(row.oracle_attempts for row in corpus.rows),
    )
