"""Tries each problem and records the results, in bundles that can be resumed."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from halfway.curriculum import Group, Problem, Request, Stream
from halfway.curriculum.support.atomic import open_own, read_json_lines, reading, write_text

if TYPE_CHECKING:
    from halfway.trainers.rollouts.collector import Collector

BUNDLE = 32
"""Problems to try together; an interrupted survey repeats at most these."""
RECORDS = "records.jsonl"


@dataclass(frozen=True, slots=True)
class Record:
    """Results of the attempts at one problem.

    Attributes:
        id: the problem's id.
        source: the problem's source.
        features: the problem's numbers and words.
        samples: number of judged attempts, without lost ones.
        passed: number of attempts that passed.
        distinct: number of different texts among the judged attempts.
        truncated: number of attempts ended by a limit.
        malformed: number of other attempts without an answer of the right form; None if no form is known.
        lost: reason -> number of attempts that could not be judged.
        lengths: generated tokens of each judged attempt.
        passing, failing: the first text that passed and the first that failed; empty if there is none.
    """

    id: str
    source: str
    features: dict[str, float | str]
    samples: int
    passed: int
    distinct: int
    truncated: int
    malformed: int | None
    lost: dict[str, int] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    passing: str = ""
    failing: str = ""

    @property
    def rate(self) -> float:
        """Share of the judged attempts that passed; 0 if none was judged."""
        return self.passed / self.samples if self.samples else 0.0


def record_group(group: Group, texts: Sequence[str], form: "re.Pattern[str] | None") -> Record:
    """Make the record of a group whose rollouts have these texts.

    Args:
        form: pattern of an answer of the right form; None = not known.
    """
    problem = group.request.problem
    pairs = list(zip(group.rollouts, texts, strict=True))
    ended = [text for rollout, text in pairs if not rollout.truncated]
    return Record(
        id=problem.id,
        source=problem.source,
        features={name: value for name, value in problem.features.items() if not isinstance(value, tuple)},
        samples=group.size,
        passed=group.num_passed,
        distinct=len(set(texts)),
        truncated=len(texts) - len(ended),
        malformed=None if form is None else sum(form.search(text) is None for text in ended),
        lost=dict(group.dropped),
        lengths=tuple(rollout.num_generated for rollout in group.rollouts),
        passing=next((text for rollout, text in pairs if rollout.success), ""),
        failing=next((text for rollout, text in pairs if not rollout.success), ""),
    )


def response_text(collector: "Collector", group: Group) -> list[str]:
    """The text of each rollout: the policy's responses, without the environment's answers."""
    decode = collector.tokenizer.decode
    return [
        "\n".join(decode(turn.tokens_T.tolist(), skip_special_tokens=True) for turn in rollout.turns)
        for rollout in group.rollouts
    ]


def read_records(folder: Path) -> list[Record]:
    """Read the records of a survey, finished or not, without a last line cut by a kill."""
    path, remedy = folder / RECORDS, f"remove {folder} and survey again"
    lines = read_json_lines(path, remedy).split(b"\n")[:-1] if path.exists() else []
    with reading(path, remedy):
        return [msgspec.json.decode(line, type=Record) for line in lines]


def sample(
    build: "Callable[[], Collector]",
    problems: Sequence[Problem],
    samples: int,
    folder: Path,
    stream: Stream,
    form: "re.Pattern[str] | None" = None,
    progress: Callable[[int], Any] = lambda done: None,
) -> list[Record]:
    """Return one record per problem, in order; problems with a record in the folder are not tried again.

    The attempts at a problem depend only on the stream and its id, so an interrupted survey gives the same result.

    Args:
        build: makes the collector; not called if nothing is left to try.
        form: see `record_group`.
        progress: called with the number of finished problems.
    """
    known = {record.id: record for record in read_records(folder)}
    write_text(folder / RECORDS, "".join(map(_line, known.values())))  # drops a cut line
    progress(len(known))
    left = [problem for problem in problems if problem.id not in known]
    collector = build() if left else None
    with open_own(folder / RECORDS) as file:
        for bundle in (left[i : i + BUNDLE] for i in range(0, len(left), BUNDLE)):
            assert collector is not None
            for group in collector.run([Request(problem, samples) for problem in bundle], stream):
                record = record_group(group, response_text(collector, group), form)
                known[record.id] = record
                file.write(_line(record))
            file.flush()
            progress(len(known))
    return [known[problem.id] for problem in problems]


def _line(record: Record) -> str:
    return json.dumps(asdict(record)) + "\n"
