"""Sources of problems, and the split of their problems into a training set and held-out problems."""

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from halfway.curriculum import Problem, ProblemSet, Stream, UserError
from halfway.curriculum.problems import PackedProblems

MAX_REPEATS = 1000
"""A generating source stops after this many consecutive repeated draws."""

MAX_EXAMPLES = 5
"""Maximum number of dropped rows that a report names."""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """Counts of the rows that a source kept and dropped.

    Attributes:
        kept: problems kept.
        dropped: reason -> number of rows or draws.
        examples: the first few dropped rows, each with its place and reason.
        notes: notes for the user on the kept rows, one line each.
    """

    kept: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line for a log."""
        if not self.dropped:
            return f"{self.kept} problems kept, none dropped"
        reasons = ", ".join(f"{number} {reason}" for reason, number in self.dropped.items())
        first = f"; first: {self.examples[0]}" if self.examples else ""
        return f"{self.kept} problems kept, {sum(self.dropped.values())} dropped ({reasons}{first})"


class Loaded(NamedTuple):
    """Problems with the report on them."""

    problems: Sequence[Problem]
    report: SourceReport


@dataclass(frozen=True)
class ProblemSplit:
    """Training problems, held-out problems, and the report on all of them.

    Attributes:
        generated: further problems, for controllers that propose them.
    """

    trained: Sequence[Problem]
    heldout: tuple[Problem, ...]
    report: SourceReport
    generated: tuple[Problem, ...] = ()

    @cached_property
    def train(self) -> ProblemSet:
        """The training set."""
        return ProblemSet(self.trained, self.generated)


class Source:
    """Gives problems. A source is a frozen dataclass whose fields are its options."""

    def load(self, wanted: int | None, stream: Stream) -> Loaded:
        """Load problems in an order that depends on the stream alone; a larger `wanted` never changes the first ones.

        Args:
            wanted: number of problems. A generating source gives this many, with distinct prompts. A finite source
                gives all its problems, whatever the number.

        Raises:
            UserError: if a generating source gets no number, or cannot find that many problems; if the source is
                malformed.
        """
        raise NotImplementedError

    def heldout(self) -> "Source | None":
        """The source of the held-out problems; None = the same source."""
        return None


def split(source: Source, train: int | None, heldout: int, stream: Stream) -> ProblemSplit:
    """Split a source into a training set and held-out problems that share no id and no prompt with it.

    The held-out problems are the first problems of `load`, or come from the source's held-out source. They do not
    depend on `train`.

    Args:
        train: size of the training set; None = all problems of the source.
        heldout: number of held-out problems; 0 = none.

    Raises:
        UserError: if the source has too few problems.
    """
    own = source.heldout()
    if own is None:
        loaded = source.load(None if train is None else train + heldout, stream)
        kept_out, dropped = loaded.problems[:heldout], Counter(loaded.report.dropped)
        rest = range(len(kept_out), len(loaded.problems))
        notes = loaded.report.notes
    else:
        loaded = source.load(train, stream)
        other = own.load(heldout, stream)
        kept_out, rest = other.problems[:heldout], range(len(loaded.problems))
        dropped = Counter(loaded.report.dropped) + Counter(other.report.dropped)
        notes = (*loaded.report.notes, *other.report.notes)
    if len(kept_out) < heldout:
        raise UserError(
            f"held-out problems: {heldout} wanted, the source has {len(kept_out)}; lower evaluation.problems"
        )
    ids, prompts = {p.id for p in kept_out}, {p.prompt for p in kept_out}
    every = ((i, loaded.problems[i]) for i in rest)
    free = [i for i, problem in every if problem.id not in ids and problem.prompt not in prompts]
    chosen = free if train is None else free[:train]
    if not chosen or (train is not None and len(chosen) < train):
        remedy = (
            "lower evaluation.problems, or give the source more"
            if train is None
            else "lower problems.train or evaluation.problems"
        )
        raise UserError(
            f"training problems: {'at least 1' if train is None else train} wanted, the source has {len(free)} besides "
            f"the {heldout} held out; {remedy}"
        )
    dropped += Counter({"shared with held-out": len(rest) - len(free), "not needed": len(free) - len(chosen)})
    report = SourceReport(len(chosen) + len(kept_out), dict(dropped), loaded.report.examples, notes)
    return ProblemSplit(_choose(loaded.problems, chosen), tuple(kept_out), report)


def _choose(problems: Sequence[Problem], places: Sequence[int]) -> Sequence[Problem]:
    if isinstance(problems, PackedProblems):
        return problems.choose(places)
    return tuple(problems[i] for i in places)


def with_also(parts: ProblemSplit, source: Source, wanted: int | None, stream: Stream) -> ProblemSplit:
    """Append another source's problems to the training set; none of them is held out.

    Args:
        wanted: number of problems from the source; None = all.

    Raises:
        UserError: if none of them is usable.
    """
    chosen, report = _beside(parts, source, wanted, stream, "also")
    packed = all(isinstance(each, PackedProblems) for each in (parts.trained, chosen))
    trained = (PackedProblems if packed else tuple)(itertools.chain(parts.trained, chosen))
    return replace(parts, trained=trained, report=report)


def with_generated(parts: ProblemSplit, source: Source, stream: Stream) -> ProblemSplit:
    """Add another source's problems beside the training set, for controllers that propose them.

    Raises:
        UserError: if none of them is usable.
    """
    chosen, report = _beside(parts, source, None, stream, "generated")
    return replace(parts, generated=tuple(chosen), report=report)


def _beside(
    parts: ProblemSplit, source: Source, wanted: int | None, stream: Stream, field: str
) -> tuple[Sequence[Problem], SourceReport]:
    """Load another source's problems; returns them and the report of both sources.

    Problems that share an id or a prompt with the training set or the held-out problems are left out and counted.
    """
    loaded = source.load(wanted, stream)
    known = {"in the training set": parts.trained, "shared with held-out": parts.heldout}
    own_keys = {key for p in loaded.problems for key in (p.id, p.prompt)}
    keys = ((key, reason) for reason, problems in known.items() for p in problems for key in (p.id, p.prompt))
    taken = {key: reason for key, reason in keys if key in own_keys}
    why = [taken.get(problem.id) or taken.get(problem.prompt) for problem in loaded.problems]
    free = [i for i, reason in enumerate(why) if reason is None]
    if not free:
        remedy = "export another pool" if field == "generated" else "give another source"
        raise UserError(f"problems.{field}: none of {len(why)} tasks is usable, all are {' or '.join(known)}; {remedy}")
    own = Counter(loaded.report.dropped) + Counter(reason for reason in why if reason)
    if wanted is not None and len(free) > wanted:  # a finite source gives all its problems
        own["not needed"] += len(free) - wanted
        free = free[:wanted]
    dropped = Counter(parts.report.dropped) + Counter({f"{field}, {reason}": n for reason, n in own.items()})
    examples = (*parts.report.examples, *loaded.report.examples)
    notes = (*parts.report.notes, *loaded.report.notes)
    return _choose(loaded.problems, free), SourceReport(parts.report.kept + len(free), dict(dropped), examples, notes)


def content_id(source: str, prompt: str, answer: str) -> str:
    """Make an id from the problem's content alone."""
    return content_ids(source)(prompt, answer)


def content_ids(source: str) -> Callable[[str, str], str]:
    """Make `content_id` for many problems of one source, as a function of prompt and answer."""
    encoded = source.encode("utf-8", "surrogatepass")
    begun = hashlib.blake2b(len(encoded).to_bytes(8, "little") + encoded, digest_size=8)

    def identity(prompt: str, answer: str) -> str:
        first, second = prompt.encode("utf-8", "surrogatepass"), answer.encode("utf-8", "surrogatepass")
        digest = begun.copy()  # half the time of a new one
        digest.update(len(first).to_bytes(8, "little") + first + len(second).to_bytes(8, "little") + second)
        return f"{source}-{digest.hexdigest()}"

    return identity


def distinct(name: str, wanted: int | None, draws: Iterator[Problem]) -> Loaded:
    """Draw the first `wanted` problems with different prompts and ids."""
    if wanted is None:
        raise UserError(f"source {name}: generates problems without end; set problems.train or also_train to a number")
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
