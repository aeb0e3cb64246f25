"""Findings of checks, and their printed lines."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "FAIL", "skip"]


@dataclass(frozen=True, slots=True)
class Check:
    """The finding of one check.

    Attributes:
        part: the part of the proof.
        name: the condition.
        found: the measurement, or why the check was skipped.
        remedy: how to fix it; only for a FAIL.
    """

    part: str
    name: str
    verdict: Verdict
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.verdict == "FAIL" and self.remedy else ""
        return f"{self.verdict:4} {self.part}: {self.name}: {self.found}{remedy}"


def judge(part: str, name: str, holds: bool, found: str, remedy: str) -> Check:
    """Make a check: ok if the condition holds, failed otherwise."""
    return Check(part, name, "ok" if holds else "FAIL", found, remedy)


def skip(part: str, name: str, why: str) -> Check:
    return Check(part, name, "skip", why)
