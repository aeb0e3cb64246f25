"""The learning curves of single runs, committed to remake every table and picture.

A file has a line per run: JSON, compressed. A run of ten evaluations of 192 problems takes about 500 bytes.
"""

import gzip
from collections.abc import Iterable
from pathlib import Path

import msgspec

from halfway.curriculum.support.atomic import has_more_values, reading, write_bytes
from halfway.experiments.report.records import EvaluationRecord, Run

LARGEST = 64 << 20
"""Maximum number of bytes of a file of curves, unpacked."""


class Evaluation(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A run's cost at an evaluation, and the passes of each held-out problem."""

    step: int
    rollouts: int
    tokens: int
    trained_tokens: int
    seconds: float
    passed: tuple[int, ...]


class Curve(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """The evaluations, costs and findings of one run.

    Attributes:
        samples: rollouts of each held-out problem in an evaluation.
        evaluations: none for a trained task generator, which has only facts.
        facts: other findings of the run, by name (see `run_measures.FACTS`).
    """

    regime: str
    arm: str
    seed: int
    lr: float
    samples: int
    evaluations: tuple[Evaluation, ...]
    facts: dict[str, float] = {}

    @property
    def run(self) -> Run:
        """The run with its curve alone, for comparisons of curves."""
        evaluations = [self._record(each) for each in self.evaluations]
        return Run(self.arm, self.seed, Path(), "finished", {"learner": {"lr": self.lr}}, [], [], [], evaluations, 0)

    def _record(self, found: Evaluation) -> EvaluationRecord:
        rate = sum(found.passed) / (len(found.passed) * self.samples)
        spent = {name: getattr(found, name) for name in ("step", "rollouts", "tokens", "trained_tokens", "seconds")}
        return EvaluationRecord(
            pass_at_1=rate,
            stderr=0.0,
            problems=len(found.passed),
            samples=self.samples,
            passed=found.passed,
            **spent,
        )


def curve_of(run: Run, regime: str) -> Curve:
    """Make the curve of a run that recorded passes by problem and trained tokens."""
    evaluations = tuple(
        Evaluation(each.step, each.rollouts, each.tokens, each.trained_tokens or 0, round(each.seconds, 1), each.passed)
        for each in run.evaluations
    )
    return Curve(regime, run.arm, run.seed, run.config["learner"]["lr"], run.evaluations[0].samples, evaluations)


def read_curves(path: Path) -> list[Curve]:
    """Read a file of curves.

    Raises:
        UserError: if the file is not a file of curves.
    """
    with reading(path, "restore it with git, or write it again with collect.py"), gzip.open(path) as file:
        content = file.read(LARGEST + 1)
        if len(content) > LARGEST or has_more_values(content, LARGEST // 2):
            raise ValueError(f"holds more than {LARGEST >> 20} MiB")
        return [msgspec.json.decode(line, type=Curve) for line in content.splitlines()]


def write_curves(path: Path, curves: Iterable[Curve]) -> None:
    """Write a file of curves; equal curves give equal bytes."""
    text = b"".join(msgspec.json.encode(curve) + b"\n" for curve in curves)
    write_bytes(path, gzip.compress(text, mtime=0))


def by_arm(curves: Iterable[Curve]) -> dict[str, list[Run]]:
    """The runs of each arm, in the order of the file."""
    runs: dict[str, list[Run]] = {}
    for curve in curves:
        runs.setdefault(curve.arm, []).append(curve.run)
    return runs
