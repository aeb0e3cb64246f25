"""Runs a whole audit: reads logs, computes their numbers, and replays controllers; also gives the result as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from halfway.curriculum import require
from halfway.experiments.audit.counterfactual import DEFAULTS, Refused, Replayed, replay
from halfway.experiments.audit.formats.base import Choices
from halfway.experiments.audit.history import Log
from halfway.experiments.audit.log_measures import Findings, findings
from halfway.experiments.audit.log_reading import read_logs
from halfway.experiments.audit.suspects import Suspect, suspects

LIMITS = (
    "how often rollouts would have passed after a prefix or a hint, since it holds only the rollouts that were made",
    "what the policy would have learnt from other rollouts, since all answers come from the policy as it was trained",
    "which rollouts the trainer threw away before writing the log, unless a line above says that they are included",
)
"""Limits of every log of outcomes, each as the end of the sentence "It cannot tell ..."."""


@dataclass(frozen=True, slots=True)
class Audited:
    """One log, with its findings and its replays."""

    log: Log
    findings: Findings
    replays: tuple[Replayed | Refused, ...] = ()

    def plain(self) -> dict[str, Any]:
        """The audited log as data for JSON, without its groups."""
        return {
            "log": self.log.name,
            "reading": msgspec.to_builtins(self.log.reading),
            "problems": len(self.log.history.problems),
            "findings": msgspec.to_builtins(self.findings),
            "replays": [msgspec.to_builtins(each) for each in self.replays],
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit of all logs that were given together."""

    logs: tuple[Audited, ...]
    suspects: tuple[Suspect, ...]

    def plain(self) -> dict[str, Any]:
        """The audit as data for JSON."""
        return {
            "logs": [each.plain() for each in self.logs],
            "suspects": [msgspec.to_builtins(each) for each in self.suspects],
            "cannot_tell": list(LIMITS),
        }


def audit(
    paths: Sequence[Path],
    choices: Choices | None = None,
    format_name: str = "",
    replayed: Sequence[str] = DEFAULTS,
    hours: float | None = None,
) -> Audit:
    """Read the logs at some paths, compute their numbers, and replay controllers against them.

    Args:
        format_name: the format of all files; "" = recognise it.
        replayed: controllers to replay against each log; empty = no counterfactuals.
        hours: duration of each run; None = from the log, if it has one.

    Raises:
        UserError: if nothing at a path can be read, or the hours are not a positive number.
    """
    require(hours is None or 0 < hours < inf, "--hours", hours, "give the duration of the run, such as 340")
    logs = read_logs(paths, choices, format_name)
    audited = [Audited(log, findings(log, hours), tuple(replay(log, replayed)) if replayed else ()) for log in logs]
    return Audit(tuple(audited), tuple(suspects([each.log for each in audited])))
