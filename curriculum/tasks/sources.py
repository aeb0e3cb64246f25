"""Where problems come from: sources by name, and the split into a training set and held-out problems."""

import ast
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count as count_up
from typing import Any, NamedTuple

import numpy as np

from halfway.curriculum.problems import Problem, ProblemSet
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import load_extra, one_line
from halfway.curriculum.support.registry import Registry, unknown

SOURCES = Registry(
    what="source",
    group="halfway.sources",
    builtin={
        "file": "halfway.curriculum.tasks.files:File",
        "harbor_tasks": "halfway.curriculum.repositories.harbor:HarborTasks",
        "ledger": "halfway.curriculum.tasks.lab.sources:LedgerAccounts",
        "operator_sheets": "halfway.curriculum.tasks.lab.sources:OperatorSheets",
        "pool": "halfway.curriculum.tasks.files:Pool",
        "reasoning_gym": "halfway.curriculum.tasks.sources:ReasoningGym",
        "repository_archives": "halfway.curriculum.repositories.archives:RepositoryArchives",
        "repository_rows": "halfway.curriculum.repositories.rows:RepositoryRows",
        "running_sums": "halfway.curriculum.tasks.lab.sources:RunningSums",
    },
)

MAX_REPEATS = 1000
"""A generating source gives up after this many consecutive draws of problems that it has drawn before."""

MAX_EXAMPLES = 5
"""How many dropped rows a report names."""

CHUNK = 4096
"""Number of entries in one reasoning-gym data set; longer sequences continue in further data sets."""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What a source kept and what it dropped.

    Attributes:
        kept: problems kept.
        dropped: reason -> number of rows or draws.
        examples: the first few dropped rows, each with where it stands and why.
    """

    kept: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line for a log."""
        if not self.dropped:
            return f"{self.kept} problems kept, none dropped"
        reasons = ", ".join(f"{number} {reason}" for reason, number in self.dropped.items())
        first = f"; first: {self.examples[0]}" if self.examples else ""
        return f"{self.kept} problems kept, {sum(self.dropped.values())} dropped ({reasons}{first})"


class Loaded(NamedTuple):
    """Problems with the report on them."""

    problems: tuple[Problem, ...]
    report: SourceReport


class ProblemSplit(NamedTuple):
    """A training set, problems that never train, and the report on both."""

    train: ProblemSet
    heldout: list[Problem]
    report: SourceReport


class Source:
    """Gives problems. A source is a frozen dataclass whose fields are its options."""

    def load(self, wanted: int | None, stream: Stream) -> Loaded:
        """Problems in an order that is a function of the stream alone; asking for more never changes the first few.

        Args:
            wanted: how many are needed. A generating source gives that many, all with distinct prompts. A finite source
                gives all its problems, whatever is wanted.

        Raises:
            UserError: if a generating source is not told how many, or cannot find that many; if the source is
                malformed.
        """
        raise NotImplementedError

    def heldout(self) -> "Source | None":
        """The source of the held-out problems, if it is a different one."""
        return None


def split(source: Source, train: int | None, heldout: int, stream: Stream) -> ProblemSplit:
    """A training set and held-out problems that share no id and no prompt with it.

    The held-out problems are the first of what `load` gives, or come from the source's own held-out source. They do not
    depend on `train`.

    Args:
        train: size of the training set; None = all that the source has.
        heldout: number of held-out problems; 0 = none.

    Raises:
        UserError: if the source has too few problems.
    """
    own = source.heldout()
    if own is None:
        loaded = source.load(None if train is None else train + heldout, stream)
        kept_out, rest, dropped = loaded.problems[:heldout], loaded.problems[heldout:], Counter(loaded.report.dropped)
    else:
        loaded = source.load(train, stream)
        other = own.load(heldout, stream)
        kept_out, rest = other.problems[:heldout], loaded.problems
        dropped = Counter(loaded.report.dropped) + Counter(other.report.dropped)
    if len(kept_out) < heldout:
        raise UserError(
            f"held-out problems: {heldout} wanted, the source has {len(kept_out)}; lower evaluation.problems"
        )
    ids, prompts = {p.id for p in kept_out}, {p.prompt for p in kept_out}
    free = [p for p in rest if p.id not in ids and p.prompt not in prompts]
    chosen = free if train is None else free[:train]
    if not chosen or (train is not None and len(chosen) < train):
        remedy = (
            "lower evaluation.problems, or give the source more"
            if train is None
            else "lower problems.train or evaluation.problems"
        )
        raise UserError(
            f"training problems: {'some' if train is None else train} wanted, the source has {len(free)} beside the "
            f"{heldout} held out; {remedy}"
        )
    dropped += Counter({"shared with held-out": len(rest) - len(free), "not needed": len(free) - len(chosen)})
    report = SourceReport(len(chosen) + len(kept_out), dict(dropped), loaded.report.examples)
    return ProblemSplit(ProblemSet(chosen, reserved=prompts), list(kept_out), report)


def with_also(parts: ProblemSplit, source: Source, wanted: int | None, stream: Stream) -> ProblemSplit:
    """The split with another source's problems in its training set, behind its own; none of them is held out.

    Args:
        wanted: how many to ask the source for; None = all that it has.

    Raises:
        UserError: if nothing is left of them.
    """
    chosen, report = _beside(parts, source, wanted, stream, "also")
    train = ProblemSet([*parts.train, *chosen], parts.train.generated, parts.train.reserved)
    return ProblemSplit(train, parts.heldout, report)


def with_generated(parts: ProblemSplit, source: Source, stream: Stream) -> ProblemSplit:
    """The split with another source's problems beside its training set, for controllers that propose them.

    Raises:
        UserError: if nothing is left of them.
    """
    chosen, report = _beside(parts, source, None, stream, "generated")
    return ProblemSplit(ProblemSet(parts.train, chosen, parts.train.reserved), parts.heldout, report)


def _beside(
    parts: ProblemSplit, source: Source, wanted: int | None, stream: Stream, field: str
) -> tuple[list[Problem], SourceReport]:
    """Another source's problems and the report of both.

    Problems that share an id or a prompt with the training set or the held-out problems are left out and counted.
    """
    loaded = source.load(wanted, stream)
    known = {"in the training set": parts.train, "shared with held-out": parts.heldout}
    taken = {key: reason for reason, problems in known.items() for p in problems for key in (p.id, p.prompt)}
    why = [taken.get(problem.id) or taken.get(problem.prompt) for problem in loaded.problems]
    chosen = [problem for problem, reason in zip(loaded.problems, why, strict=True) if reason is None]
    if not chosen:
        remedy = "export another pool" if field == "generated" else "give another source"
        raise UserError(f"problems.{field}: no task is left of {len(why)}, all are {' or '.join(known)}; {remedy}")
    own = Counter(loaded.report.dropped) + Counter(reason for reason in why if reason)
    if wanted is not None and len(chosen) > wanted:  # a finite source gives all that it has
        own["not needed"] += len(chosen) - wanted
        chosen = chosen[:wanted]
    dropped = Counter(parts.report.dropped) + Counter({f"{field}, {reason}": n for reason, n in own.items()})
    examples = (*parts.report.examples, *loaded.report.examples)
    return chosen, SourceReport(parts.report.kept + len(chosen), dict(dropped), examples)


def content_id(source: str, prompt: str, answer: str) -> str:
    """An id that depends on what the problem says, and on nothing else."""
    digest = hashlib.blake2b(digest_size=8)
    for text in (source, prompt, answer):
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return f"{source}-{digest.hexdigest()}"


def distinct(name: str, wanted: int | None, draws: Iterator[Problem]) -> Loaded:
    """The first `wanted` problems whose prompts and ids differ."""
    if wanted is None:
        raise UserError(
            f"source {name}: it draws without end; say how many problems to train on, in problems.train or also_train"
        )
    found: dict[str, Problem] = {}
    ids: set[str] = set()
    repeats = in_a_row = 0
    while len(found) < wanted:
        problem = next(draws)
        if problem.prompt not in found and problem.id not in ids:
            found[problem.prompt] = problem
            ids.add(problem.id)
            in_a_row = 0
            continue
        repeats, in_a_row = repeats + 1, in_a_row + 1
        if in_a_row == MAX_REPEATS:
            raise UserError(
                f"source {name}: {wanted} problems wanted, it has only {len(found)}; widen it or ask for fewer"
            )
    dropped = {"drawn before": repeats} if repeats else {}
    return Loaded(tuple(found.values()), SourceReport(len(found), dropped))


@dataclass(frozen=True)
class ReasoningGym(Source):
    """Problems of one reasoning-gym family, judged by the family itself.

    The answer of each problem is a Python literal with the family, its configuration and the whole entry, which is
    what `halfway.curriculum.tasks.verifiers.reasoning_gym` reads.

    A few families (word_ladder, ransom_note, isomorphic_strings and others) depend on Python's hash seed, so each
    process draws different problems. Set PYTHONHASHSEED for them, or write the problems to a file once
    (`write_problems` of `halfway.curriculum.tasks.files`) and train from that. `fingerprint` tells whether two sets are
    equal.

    Attributes:
        family: name of the data set, for example "chain_sum".
        config: its options; seed and size are not among them.
    """

    family: str
    config: dict[str, Any] = field(default_factory=dict)

    def load(self, wanted: int | None, stream: Stream) -> Loaded:
        return distinct(f"reasoning_gym/{self.family}", wanted, self._draws(stream.integer() % 2**31))

    def _draws(self, seed: int) -> Iterator[Problem]:
        # Entry i is a function of seed + i, so that chunks continue each other; families take seeds below 2^32.
        for first in count_up(0, CHUNK):
            create = self._family()
            with self._errors():
                dataset = create(seed=seed + first, size=CHUNK)
            for i in range(CHUNK):
                with self._errors():
                    problem = self._problem(dataset[i])
                yield problem

    def _family(self) -> Callable[..., Any]:
        """A function that makes the family's data set for a seed and a size."""
        families = load_extra("reasoning_gym.factory", "source reasoning_gym").DATASETS
        if self.family not in families:
            raise unknown("source reasoning_gym: family", self.family, families)
        _, config_type = families[self.family]
        options = set(config_type.__dataclass_fields__) - {"seed", "size"}
        for name in self.config:
            if name not in options:
                raise unknown(f"source reasoning_gym: option of {self.family}", name, options)
        return partial(load_extra("reasoning_gym", "source reasoning_gym").create_dataset, self.family, **self.config)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn a family's errors into UserErrors. Families check their configuration in their own ways, some late."""
        try:
            yield
        except Exception as error:
            raise UserError(
                f"source reasoning_gym: {self.family} with config {self.config} raised {one_line(error)}; correct it"
            ) from error

    def _problem(self, entry: Mapping[str, Any]) -> Problem:
        name = f"reasoning_gym/{self.family}"
        answer = repr(_plain({"family": self.family, "config": self.config, "entry": entry}))
        ast.literal_eval(answer)  # raises for an entry that the verifier could not read back
        identity = content_id(name, entry["question"], str(entry["answer"]))
        return Problem(identity, entry["question"], answer, name, "reasoning_gym")


def _plain(value: Any) -> Any:
    """The same value without NumPy scalars, whose text is not a literal."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {_plain(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(_plain(item) for item in value)
    return value
