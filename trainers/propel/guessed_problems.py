"""Pools: problems with pass rates predicted by a rate probe, for a run to train on or start from. No solver runs."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.special import expit

from halfway.curriculum import Problem, Stream, UserError
from halfway.curriculum.support.atomic import reading, require_few_values
from halfway.curriculum.support.extras import load_extra
from halfway.curriculum.support.parquet_hash import require_sealed
from halfway.trainers.propel.corpus import PROVENANCE, write_table
from halfway.trainers.propel.domains.candidates import Candidate, read
from halfway.trainers.propel.domains.domain import Domain
from halfway.trainers.propel.probes.heads import Probe, Site
from halfway.trainers.propel.rewards import Reader
from halfway.trainers.propel.writing import Author, Written

COLUMNS = ("id", "prompt", "answer", "verifier", "probed_rate", "probed_by", "topic")


@dataclass(frozen=True)
class Guessed:
    """Problems with pass rates predicted by a probe, and the number of texts left out, by reason."""

    problems: tuple[Problem, ...]
    rates: tuple[float, ...]
    topics: tuple[str, ...]
    left_out: Mapping[str, int]


def write_fresh(author: Author, texts: int, reader: Reader, probe: tuple[Probe, Site], stream: Stream) -> Guessed:
    """Write `texts` new texts with a generator; returns the valid tasks, each problem once.

    Raises:
        UserError: if no text is a valid task.
    """
    written = author.write(texts, stream)
    kept, left_out, seen = [], Counter[str](), set[str]()
    for one in written:
        if not one.valid:
            assert one.candidate.invalid is not None
            left_out[one.candidate.invalid.reason] += 1
        elif one.problem.id in seen:
            left_out["duplicate"] += 1
        else:
            seen.add(one.problem.id)
            kept.append(one)
    if not kept:
        reason, count = left_out.most_common(1)[0]
        raise UserError(f"export: none of {texts} texts is a valid task ({count} times: {reason}); choose another arm")
    return _predict_rates(kept, reader, probe, left_out)


def guess_own(
    domain: Domain[Any], problems: Sequence[Problem], reader: Reader, probe: tuple[Probe, Site], stream: Stream
) -> Guessed:
    """Predict pass rates of problems that no generator wrote; each prompt must be a text of the domain.

    Args:
        stream: stream for the generator's prompt, which precedes every text that a probe reads.

    Raises:
        UserError: if a problem is not a valid task of the domain.
    """
    candidates: list[Candidate[Any]] = read(domain, [problem.prompt for problem in problems])
    kept = []
    for problem, candidate in zip(problems, candidates, strict=True):
        if candidate.problem is None or candidate.problem.prompt != problem.prompt:
            why = candidate.invalid.reason if candidate.invalid else "other prompt"
            raise UserError(
                f"export: problem {problem.id!r} is not a task of the domain {domain.name} ({why}), so its probe "
                "cannot read it; give a run whose problems the generator could have written"
            )
        text = Candidate(candidate.text, candidate.task, problem, None, candidate.topic)
        kept.append(Written(domain.prompt(stream.at(problem.id)), text, 0))
    return _predict_rates(kept, reader, probe, Counter())


def _predict_rates(
    kept: Sequence[Written], reader: Reader, probe: tuple[Probe, Site], left_out: Mapping[str, int]
) -> Guessed:
    rates = expit(reader.logits(kept, [probe], calibrated=True)[0])
    problems, topics = tuple(one.problem for one in kept), tuple(one.candidate.topic for one in kept)
    return Guessed(problems, tuple(map(float, rates)), topics, dict(left_out))


def write_pool(pool: Guessed, file: Path, provenance: Mapping[str, Any]) -> None:
    """Write a Parquet file for the source `pool`, with the problems' features, which a verifier may need.

    A failure leaves no incomplete file.

    Args:
        provenance: origin of the pool; its "reference model" becomes the column probed_by.
    """
    about = {**provenance, "tasks": len(pool.problems), "left out": dict(pool.left_out)}
    judged = [{name: _plain(value) for name, value in p.features.items() if name not in COLUMNS} for p in pool.problems]
    kinds = {name: type(value) for features in judged for name, value in features.items()}
    rows = [
        (p.id, p.prompt, p.answer, p.verifier, rate, provenance["reference model"], topic)
        for p, rate, topic in zip(pool.problems, pool.rates, pool.topics, strict=True)
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_table(
        [{**features, **dict(zip(COLUMNS, row, strict=True))} for features, row in zip(judged, rows, strict=True)],
        {**dict.fromkeys(COLUMNS, str), "probed_rate": float, **kinds},
        file,
        about,
    )


def _plain(feature: float | str | tuple[float, ...]) -> float | str | list[float]:
    """Convert a feature to a type that a table can hold."""
    if isinstance(feature, tuple):
        return list(feature)
    return feature if isinstance(feature, str) else float(feature)


def read_provenance(file: Path) -> dict[str, Any]:
    """Read the provenance from a pool's file."""
    parquet = load_extra("pyarrow.parquet", "a pool", "propel")
    with reading(file, "export it again"):
        require_sealed(file)
        written = parquet.read_schema(file).metadata[PROVENANCE]
        require_few_values(written)
        found: dict[str, Any] = json.loads(written)
    return found
