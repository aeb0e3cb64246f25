"""Findings of checks and their printed lines; programs that checks run."""

import os
import subprocess
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "FAIL", "skip"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried.

    Attributes:
        part: the part of the proof.
        name: what must hold.
        found: what was measured, or why it was not tried.
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
    """A check that is ok if something holds, and failed otherwise."""
    return Check(part, name, "ok" if holds else "FAIL", found, remedy)


def skip(part: str, name: str, why: str) -> Check:
    return Check(part, name, "skip", why)


def run_program(*words: str) -> None:
    """Run a program of a part to its end. Raises CalledProcessError if it fails; its messages are the part's."""
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, env={"OMP_NUM_THREADS": "1"} | os.environ)
