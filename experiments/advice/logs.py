"""Reads from a log what advice needs: groups as evidence for the fit, the problems, and how the run was set up."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halfway.curriculum.problems import Problem, ProblemSet
from halfway.curriculum.simulation.evidence import Evidence
from halfway.curriculum.support.errors import UserError
from halfway.experiments.config.run import RunConfig

DECISIONS = "decisions.jsonl"
CONFIG = "config.yaml"
MOST_GIVEN = 0.99


@dataclass(frozen=True, slots=True, eq=False)
class LoggedRun:
    """A run as reconstructed from its log.

    Attributes:
        evidence: the outcomes of the groups.
        problems: the problems that have groups; `evidence.problem_G` holds positions in them. They have features and
            reference solutions if the run's configuration leads to them.
        num_rollouts: N, the rollouts of most groups.
        groups: number of groups rolled out in most steps.
        rollouts: number of rollouts in all groups.
        trained_share: share of all rollouts that belong to groups that trained.
        config: the run's configuration, if it is one of Halfway's runs.
        notes: what could not be found out, in words.
    """

    evidence: Evidence
    problems: ProblemSet
    num_rollouts: int
    groups: int
    rollouts: int
    trained_share: float
    config: RunConfig | None = None
    notes: tuple[str, ...] = ()

    @property
    def groups_per_update(self) -> int:
        return self.config.learner.minibatch_groups if self.config else 0


def read_run(path: Path) -> LoggedRun:
    """The run in one of Halfway's run directories, a decision log, or any log that `halfway audit` reads.

    Raises:
        UserError: if there is no log, or it holds no group.
    """
    file = path / DECISIONS if path.is_dir() else path
    if not file.is_file() or file.name != DECISIONS:
        return _audited(path)
    records = [record for record in _records(file) if record.get("n") and record.get("outcome") != "skipped"]
    if not records:
        raise UserError(f"{file}: no group with rollouts; give the log of a run that has trained")
    config = _config(file.parent / CONFIG)
    records = _once(records)
    ids = sorted({record["problem"] for record in records if record["origin"] != "generated"})
    place = {problem: i for i, problem in enumerate(ids)}
    kept = [record for record in records if record["problem"] in place]
    evidence = Evidence(
        np.array([place[record["problem"]] for record in kept], np.int64),
        np.array([record["step"] for record in kept], np.int64),
        np.array([record["k"] for record in kept], np.int64),
        np.array([record["n"] for record in kept], np.int64),
        np.array([_given(record) for record in kept]),
        np.array([record["origin"] == "fresh" for record in kept]),
        np.array([record["outcome"] == "trained" for record in kept]),
    )
    problems, notes = _problems(ids, config)
    return LoggedRun(evidence, problems, *_sizes(evidence), config, notes)


def of_history(history: Any, notes: Sequence[str] = ()) -> LoggedRun:
    """The run behind an audited log; its problems have only an id and a category."""
    order = np.argsort(history.step_V, kind="stable")
    passed, size = history.passed_V[order].astype(np.int64), history.size_V[order].astype(np.int64)
    seen = size > 0
    told = history.outcome_V[order]
    mixed = ~history.silent_V[order]
    evidence = Evidence(
        history.problem_V[order].astype(np.int64)[seen],
        (history.step_V[order] - history.step_V.min()).astype(np.int64)[seen],
        passed[seen],
        size[seen],
        np.zeros(int(seen.sum())),
        history.fresh_V[order][seen],
        np.where(told == 0, True, (told < 0) & mixed)[seen],
    )
    kinds = zip(history.problems, history.category_P, strict=True)
    problems = ProblemSet([Problem(i, "", "", features={"category": c} if c else {}) for i, c in kinds])
    return LoggedRun(evidence, problems, *_sizes(evidence), None, tuple(notes))


def _audited(path: Path) -> LoggedRun:
    """The run in another trainer's log."""
    from halfway.experiments.audit.reading import read_logs

    first, *others = read_logs([path])
    notes = [*first.reading.guesses, *first.reading.traps]
    notes += [f"{len(others)} further runs here are left out"] if others else []
    if not first.reading.identified:
        raise UserError(f"{path}: problems are not recognised when they come again; log an id or the prompt")
    if not first.reading.keeps_silent:
        raise UserError(
            f"{path}: groups without a difference in reward are not in this log; log them before the filter"
        )
    return of_history(first.history, notes)


def _records(file: Path) -> list[dict[str, Any]]:
    """The complete lines of a decision log."""
    *lines, _ = file.read_text().split("\n")
    try:
        found = [json.loads(line) for line in lines]
    except json.JSONDecodeError as error:
        raise UserError(f"{file}: {error}; it is no decision log, mend it or give another") from None
    if found and not {"problem", "step", "k", "n", "origin", "outcome"} <= set(found[0]):
        raise UserError(f"{file}: its lines are no groups; give a decision log, see `halfway.curriculum.decision_log`")
    return found


def _once(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records without the first mention of groups carried into another step; they count when they train."""
    return [record for record in records if record["outcome"] != "carried"]


def _given(record: Mapping[str, Any]) -> float:
    """The share of each of a group's rollouts that was given by a prefix or a hint."""
    if record.get("hint_share"):
        return min(float(record["hint_share"]), MOST_GIVEN)
    replayed = record.get("prefix_tokens") or 0
    whole = replayed + record["tokens"] / record["n"]
    return min(replayed / whole, MOST_GIVEN) if replayed else 0.0


def _sizes(evidence: Evidence) -> tuple[int, int, int, float]:
    """N, groups per step, number of rollouts, and the share of rollouts that trained."""
    rollouts = int(evidence.size_G.sum())
    per_step = np.bincount(evidence.step_G)
    trained = float(evidence.size_G[evidence.trained_G].sum()) / max(rollouts, 1)
    return int(np.bincount(evidence.size_G).argmax()), int(np.median(per_step[per_step > 0])), rollouts, trained


def _config(file: Path) -> RunConfig | None:
    """The configuration beside a log, if there is one that can be read."""
    from halfway.experiments.config.loading import load_run_config

    return load_run_config(file) if file.is_file() else None


def _problems(ids: Sequence[str], config: RunConfig | None) -> tuple[ProblemSet, tuple[str, ...]]:
    """The problems behind the ids, if the configuration's source still has them."""
    from halfway.experiments.running.build import build_problems

    bare = [Problem(problem, "", "") for problem in ids]
    if config is None:
        return ProblemSet(bare), ("no configuration beside the log: features and reference solutions are unknown",)
    try:
        known = {problem.id: problem for problem in build_problems(config).train}
    except UserError as error:
        return ProblemSet(bare), (f"problems could not be loaded, so features are unknown: {error}",)
    if not set(ids) <= set(known):
        return ProblemSet(bare), ("the problem source has other problems than the log: features are unknown",)
    return ProblemSet([known[problem] for problem in ids]), ()
