"""Some problems of a comparison, arm beside arm: every decision about them, and the saved texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from halfway.curriculum.decision_log import GroupRecord
from halfway.experiments.report.records import Comparison, Run, read_jsonl

Item = TypeVar("Item")
SAMPLES = "samples.jsonl"
MOST_VISITS = 40
MOST_COUNTS = 16
PROMPT = 90  # letters


@dataclass(frozen=True, slots=True)
class Turn:
    replayed: str
    text: str
    observation: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    passed: bool
    truncated: bool
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of samples.jsonl, see `halfway.trainers.loop.samples`."""

    step: int
    problem: str
    visit: int
    origin: str
    k: int
    n: int
    prompt: str
    hint: str
    rollouts: tuple[Attempt, ...]

    @property
    def prompt_parts(self) -> list[tuple[str, bool]]:
        """The prompt in parts; each with True if it is the hint."""
        before, found, after = self.prompt.partition(self.hint) if self.hint else (self.prompt, "", "")
        return [(part, hinted) for part, hinted in ((before, False), (found, True), (after, False)) if part]


def problem_views(comparison: Comparison) -> list[dict[str, Any]]:
    """The problems with texts: name, and for each arm the visits and texts of its first run."""
    first = {arm: runs[0] for arm, runs in comparison.runs.items() if runs}
    samples = {arm: read_jsonl(run.folder / SAMPLES, Sample)[0] for arm, run in first.items()}
    names = sorted({sample.problem for found in samples.values() for sample in found})
    visits = {arm: visits_of(run, names) for arm, run in first.items()}
    return [
        {
            "name": name,
            "arms": [
                {
                    "arm": arm,
                    "counts": [visit["result"] for visit in visits[arm][name] if visit["tried"]],
                    "visits": ends(visits[arm][name], MOST_VISITS),
                    "left_out": max(0, len(visits[arm][name]) - MOST_VISITS),
                    "texts": three([sample for sample in samples[arm] if sample.problem == name]),
                }
                for arm in first
            ],
        }
        for name in names
    ]


def problem_rows(comparison: Comparison, with_texts: Sequence[str]) -> list[dict[str, Any]]:
    """One row per problem rolled out in the first run of an arm: its visits and their cost."""
    first = {arm: runs[0] for arm, runs in comparison.runs.items() if runs}
    prompts = {
        sample.problem: sample.prompt
        for run in first.values()
        for sample in read_jsonl(run.folder / SAMPLES, Sample)[0]
    }
    found: dict[str, dict[str, list[GroupRecord]]] = {}
    for arm, run in first.items():
        for group in run.groups:
            if group.scored and group.origin != "stored":
                found.setdefault(group.problem, {}).setdefault(arm, []).append(group)
    return [
        {
            "name": name,
            "prompt": " ".join(prompts.get(name, name).split())[:PROMPT],
            "place": with_texts.index(name) + 1 if name in with_texts else None,
            "counts": [" ".join(str(group.k) for group in ends(arms.get(arm, []), MOST_COUNTS)) for arm in first],
            "passed": f"{sum(one.k or 0 for one in groups) / sum(one.size for one in groups):.2f}",
            "visits": len(groups),
            "untrained": sum(one.size for one in groups if one.outcome != "trained"),
            "fates": {arm: sorted({one.outcome.replace("_", "-") for one in each}) for arm, each in arms.items()},
        }
        for name, arms in sorted(found.items())
        if (groups := [one for each in arms.values() for one in each])
    ]


def without_texts(comparison: Comparison) -> str:
    """A sentence on the hosts that reported no texts; empty if there are none."""
    first = [runs[0] for runs in comparison.runs.values() if runs]
    hosts = sorted(
        {str(run.config["host"]) for run in first if "host" in run.config and not (run.folder / SAMPLES).exists()}
    )
    return f"No texts to read: {' and '.join(hosts)} reported none." if hosts else ""


def visits_of(run: Run, names: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
    """The lines about these problems in a run's decision log, in words, one entry per line."""
    found: dict[str, list[Mapping[str, Any]]] = {name: [] for name in names}
    for record in run.decisions:
        problems = found.keys() & (record.problems or (record.problem,))
        if not problems:
            continue
        start = record.origin
        if record.parent_passed is not None:
            start += f", {record.prefix_length} {record.prefix_unit} of {record.parent_passed} of {record.parent_size}"
        visit = {
            "step": record.step,
            "start": start,
            "tried": record.scored,
            "result": f"{record.k} of {record.n}" if record.scored else "-",
            "outcome": record.outcome,
            "decisions": record.reason or "; ".join(": ".join(decision) for decision in record.decisions),
        }
        for problem in problems:
            found[problem].append(visit)
    return found


def ends(items: Sequence[Item], most: int) -> list[Item]:
    """The first and the last items, at most `most` together."""
    return [*items] if len(items) <= most else [*items[: most // 2], *items[-most // 2 :]]


def three(samples: Sequence[Sample]) -> list[Sample]:
    """The first, the middle and the last visit, each once."""
    places = dict.fromkeys((0, len(samples) // 2, len(samples) - 1)) if samples else {}
    return [samples[place] for place in places]
