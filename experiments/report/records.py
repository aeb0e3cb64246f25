"""Reads the records of one run, or of a comparison of arms over seeds; of unfinished runs, the records so far."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from halfway.curriculum import UserError
from halfway.curriculum.decision_log import MOST_STEPS, GroupRecord, sort_records
from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.atomic import read_json, read_json_lines, reading, require_regular_files
from halfway.curriculum.support.extras import clean, one_line
from halfway.experiments.config.comparison import MOST_ARMS
from halfway.trainers.loop.loop_options import MOST_HELD_OUT

Record = TypeVar("Record")
Count = Annotated[int, Meta(ge=0, lt=MOST_STEPS)]
Amount = Annotated[float, Meta(ge=0, lt=MOST_STEPS)]
HOSTED = "hosted.json"
"""The file that replaces config.yaml in runs of another trainer. It is read as YAML, which contains JSON."""
UNPRINTABLE = re.compile(r"(\\\\)|\\u00(?:0[0-8bcef]|1[0-9a-f])|\\[bf]|[\x7f-\x9f\ud800-\udfff]")
"""In JSON: escapes of characters that control a terminal, and half surrogate pairs; or an escaped backslash."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One line of steps.jsonl.

    `rollouts`, `tokens`, `trained_tokens`, `seconds` and `judge_seconds` are totals since the start of the run;
    `trained_tokens` and `judge_seconds` are None in runs from before they were recorded.
    """

    step: Count
    rollouts: Count
    tokens: Count
    seconds: Amount
    starved: bool = False
    rounds: int = 1
    groups: dict[str, int] = field(default_factory=dict)
    skipped: int = 0
    timing: dict[str, float] = field(default_factory=dict)
    learner: dict[str, float | None] = field(default_factory=dict)
    controllers: dict[str, float | None] = field(default_factory=dict)
    trained_tokens: Count | None = None
    judge_seconds: Amount | None = None
    tools: dict[str, float] = field(default_factory=dict)

    @property
    def spent(self) -> dict[str, float | None]:
        """The run's cost up to the end of the step, by unit."""
        return _spent(self, self.step + 1)


@dataclass(frozen=True, slots=True)
class Stratum:
    """The number of held-out problems of one kind, and their passes in total."""

    problems: int
    passed: int


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """One line of evaluations.jsonl, with the totals of `StepRecord` at the time of the evaluation.

    Attributes:
        step: number of finished steps.
        stderr: standard error of `pass_at_1`, clustered by problem.
        passed: passes of each held-out problem, out of `samples`; empty in runs from before they were recorded.
        strata: the problems and passes of each stratum, by its name.
    """

    step: Count
    rollouts: Count
    tokens: Count
    seconds: Amount
    pass_at_1: Annotated[float, Meta(ge=0, le=1)]
    stderr: Annotated[float, Meta(ge=0)]
    problems: int = 0
    samples: int = 0
    trained_tokens: Count | None = None
    judge_seconds: Amount | None = None
    passed: Annotated[tuple[int, ...], Meta(max_length=MOST_HELD_OUT)] = ()
    strata: dict[str, Stratum] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for passes that no run has; names, which figures show, are made printable."""
        if not all(0 <= passed <= self.samples for passed in self.passed):
            raise ValueError(f"a problem's passes are outside 0 to {self.samples}")
        object.__setattr__(self, "strata", {clean(name): stratum for name, stratum in self.strata.items()})

    @property
    def spent(self) -> dict[str, float | None]:
        """The run's cost up to the evaluation, by unit."""
        return _spent(self, self.step)


@dataclass(frozen=True, slots=True)
class Run:
    """One run, finished or not.

    Attributes:
        groups: every rolled-out group, listed once, with its final outcome.
        skips: problems that the controller refused before any rollout.
        unreadable: number of cut-off last lines left out, over the three record files.
        decisions: the lines of the decision log as they are.
    """

    arm: str
    seed: int
    folder: Path
    state: str
    config: Mapping[str, Any]
    groups: Sequence[GroupRecord]
    skips: Sequence[GroupRecord]
    steps: Sequence[StepRecord]
    evaluations: Sequence[EvaluationRecord]
    unreadable: int
    decisions: Sequence[GroupRecord] = ()

    @property
    def finished(self) -> bool:
        return self.state == "finished"

    @property
    def num_steps(self) -> int:
        return len(self.steps)


PLAN_FILE = "comparison.yaml"
"""The file with the plan in a comparison's folder."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Arms in their declared order, each with its runs ordered by seed; a single run counts as one arm."""

    directory: Path
    config: Mapping[str, Any]
    runs: Mapping[str, Sequence[Run]]

    @property
    def arms(self) -> list[str]:
        """The declared arms, then any others in the directory."""
        declared = list(self.config.get("arms") or ())
        return [*declared, *(arm for arm in self.runs if arm not in declared)]

    @property
    def all_runs(self) -> list[Run]:
        return [run for runs in self.runs.values() for run in runs]

    def started(self) -> "Comparison":
        """The comparison without runs that have not finished a step, and without arms of only such runs."""
        runs = {arm: [run for run in runs if run.steps] for arm, runs in self.runs.items()}
        return replace(self, runs={arm: kept for arm, kept in runs.items() if kept})

    @property
    def ended(self) -> bool:
        """True if every planned run has ended, in whatever state."""
        planned = len(self.config.get("arms") or ()) * len(self.config.get("seeds") or ())
        under_way = any(run.state in ("starting", "running") for run in self.all_runs)
        return not under_way and len(self.all_runs) >= planned

    @property
    def budget(self) -> tuple[str, float] | None:
        """Unit and size of the shared budget; None if none is declared."""
        for config in (self.config, *(run.config for run in self.all_runs)):
            given = {k: v for k, v in (config.get("budget") or {}).items() if v is not None}
            if given:
                unit, total = next(iter(given.items()))
                return str(unit), float(total)
        return None


def read_jsonl(path: Path, kind: type[Record]) -> tuple[list[Record], int]:
    """Read the records of a JSON Lines file; returns them and the number of cut-off lines left out (0 or 1).

    A last line without its newline comes from a run that is still writing or was killed, and is left out.

    Raises:
        UserError: if a complete line is not a record of this kind.
    """
    if not path.exists():
        return [], 0
    whole, _, rest = read_json_lines(path, "remove it").rpartition(b"\n")
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):
        return msgspec.json.Decoder(kind).decode_lines(whole), int(bool(rest))
    # One by one, to find the number of an invalid line, and to read numbers that are not finite.
    lines, records = whole.split(b"\n") if whole else [], list[Record]()
    for i, line in enumerate(lines):
        try:
            records.append(msgspec.convert(_loads(line), kind))
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            raise UserError(f"{path}:{i + 1}: {one_line(error)}; fix or remove the line") from error
    return records, int(bool(rest))


def _loads(line: bytes) -> Any:
    value = json.loads(line)
    plain = line.isascii() and b"\\" not in line and b"\x7f" not in line
    return value if plain else _harmless(value)


def _harmless(value: Any) -> Any:
    """Plain data without characters that control a terminal, and without half pairs, which UTF-8 does not have."""
    text = json.dumps(value, ensure_ascii=False)
    shown = UNPRINTABLE.sub(lambda found: found[1] or "\N{REPLACEMENT CHARACTER}", text)
    return value if shown == text else json.loads(shown)


def load_run_records(folder: Path, arm: str | None = None, seed: int | None = None) -> Run:
    """Read one run directory.

    Args:
        arm, seed: the run's arm and seed in a comparison; by default the folder's name and the seed in its config.

    Raises:
        UserError: if the folder has no run, or a record cannot be read.
    """
    if not (folder / "steps.jsonl").exists():
        raise UserError(f"{folder}: no run here (steps.jsonl is missing); give a run or comparison directory")
    require_regular_files(folder)
    decisions, cut_decisions = read_jsonl(folder / "decisions.jsonl", GroupRecord)
    steps, cut_steps = read_jsonl(folder / "steps.jsonl", StepRecord)
    evaluations, cut_evaluations = read_jsonl(folder / "evaluations.jsonl", EvaluationRecord)
    config = _read_yaml(folder / "config.yaml") or _read_yaml(folder / HOSTED)
    records = sort_records(decisions, last_step=steps[-1].step if steps else -1)
    inside = "host" in config and folder.name == "halfway"  # of the folder of the host's run
    return Run(
        arm=clean((folder.resolve().parent if inside else folder).name if arm is None else arm),
        seed=int(config.get("seed", 0)) if seed is None else seed,
        folder=folder,
        state=str(read_json(folder / "status.json").get("state", "unknown")),
        config=config,
        groups=records.groups,
        skips=records.skips,
        steps=steps,
        evaluations=evaluations,
        unreadable=cut_decisions + cut_steps + cut_evaluations,
        decisions=decisions,
    )


def load_comparison_records(directory: Path) -> Comparison:
    """Read a comparison directory, with runs in `<arm>/seed-<s>/`, or a single run as a comparison of one arm.

    Arms whose runs have not started yet are left out.

    Raises:
        UserError: if there is no run in or below the directory, or a record cannot be read.
    """
    if (directory / "steps.jsonl").exists():
        run = load_run_records(directory)
        return Comparison(directory, {"name": run.arm, **run.config}, {run.arm: [run]})
    require_regular_files(directory)
    config = _read_yaml(directory / PLAN_FILE)
    found: dict[str, list[Run]] = {}
    for path in directory.glob("*/seed-*/steps.jsonl"):
        arm = clean(path.parent.parent.name)
        with reading(path.parent, "rename it seed-NUMBER, or move it elsewhere"):
            seed = msgspec.convert(int(path.parent.name.removeprefix("seed-")), Count)
        found.setdefault(arm, []).append(load_run_records(path.parent, arm, seed))
    if not found:
        raise UserError(f"{directory}: no run here or below; give a run or comparison directory")
    declared = [arm for arm in config.get("arms") or () if arm in found]
    order = [*declared, *sorted(set(found) - set(declared))]
    return Comparison(directory, config, {arm: sorted(found[arm], key=lambda run: run.seed) for arm in order})


def _spent(record: "StepRecord | EvaluationRecord", steps: int) -> dict[str, float | None]:
    return {
        "steps": steps,
        "rollouts": record.rollouts,
        "tokens": record.tokens,
        "trained_tokens": record.trained_tokens,
        "seconds": record.seconds,
        "judge_seconds": record.judge_seconds,
    }


def failed_early(comparison: Comparison, arm: str) -> bool:
    """True if a run of an arm failed before it wrote a record."""
    statuses = (comparison.directory / arm).glob("seed-*/status.json")
    return any(read_json(path).get("state") == "failed" for path in statuses)


def outcome_rollouts(groups: Sequence[GroupRecord]) -> Counter[str]:
    """Number of generated rollouts by outcome: that of their group, or "lost" if they were dropped before scoring.

    Stored groups are left out: they were counted in the step that generated them.
    """
    counts: Counter[str] = Counter()
    for group in groups:
        if group.origin == "stored":
            continue
        counts[group.outcome] += group.size
        counts["lost"] += sum(group.dropped.values())
    return counts


class _Fields(msgspec.Struct):
    """The fields that a report reads from a configuration, apart from its plan."""

    seed: Count = 0
    budget: dict[str, float | None] | None = None
    arms: Annotated[dict[str, Any], Meta(max_length=MOST_ARMS)] | None = None
    instances: list[Any] | None = None
    targets: list[float] | None = None


def _read_yaml(path: Path) -> Any:
    found = yaml_bases.parse(path) if path.exists() else {}
    with reading(path, "put back the file that the run wrote"):
        msgspec.convert(found, _Fields)
        return _harmless(found)
