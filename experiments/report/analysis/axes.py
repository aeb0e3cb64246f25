"""What a score can be held against: steps, rollouts, tokens, seconds, and costs that weigh several of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from halfway.experiments.report.records import Run

PAPERS_RHO = (0.25, 1.0)
"""What a trained token costs in generated tokens where the sources ran: rollouts take 78 to 91 % of their hours, and
dynamic sampling trains on about a third of what it generates. So .09/.91 to .22/.78 of the hours, divided by .28 to .4
of the tokens: .25 to 1."""


class Spender(Protocol):
    """A record that says what was spent until then, by unit."""

    @property
    def spent(self) -> Mapping[str, float | None]: ...


@dataclass(frozen=True, slots=True)
class Axis:
    """A measure of cost.

    Attributes:
        name: in summary.json; label: in tables and figures.
        weights: unit of `spent` -> what one of it costs.
    """

    name: str
    label: str
    weights: Mapping[str, float]

    def phrase(self, amount: float) -> str:
        """An amount of it in words."""
        kind, _, detail = self.label.partition(", ")
        return f"a {kind} of {amount:,.0f} ({detail})" if detail else f"{amount:,.0f} {kind}"

    def of(self, record: Spender) -> float:
        """What was spent until a record."""
        spent, total = record.spent, 0.0
        for unit, weight in self.weights.items():
            amount = spent[unit]
            assert amount is not None, f"{unit} were not recorded"
            total += weight * amount
        return total

    def recorded(self, runs: Sequence[Run]) -> bool:
        """Whether all the runs have what it weighs."""
        records: list[Spender] = [*(step for run in runs for step in run.steps)]
        records += [evaluation for run in runs for evaluation in run.evaluations]
        return all(record.spent[unit] is not None for record in records for unit in self.weights)


STEPS = Axis("steps", "steps", {"steps": 1.0})
ROLLOUTS = Axis("rollouts", "rollouts", {"rollouts": 1.0})
TOKENS = Axis("tokens", "generated tokens", {"tokens": 1.0})
SECONDS = Axis("seconds", "seconds", {"seconds": 1.0})
PLAIN = (STEPS, ROLLOUTS, TOKENS, SECONDS)


def cost_axis(rho: float, judge_second: float | None = None) -> Axis:
    """Generated tokens + rho x trained tokens (+ price x judged seconds): what a run costs, in generated tokens.

    Generated are the tokens that the engine sampled; trained are those that the passes of the updates went over, whole
    sequences with prompts and replayed prefixes, once in every epoch. Judged are the seconds that the environment took
    to answer and judge the rollouts: verifiers, tests and tools.

    Args:
        judge_second: what a judged second costs; None = judging costs nothing.
    """
    weights = {"tokens": 1.0, "trained_tokens": rho}
    if judge_second is None:
        return Axis(f"cost_{rho:g}", f"cost, rho {rho:g}", weights)
    return Axis(f"cost_{rho:g}_judged", f"cost, rho {rho:g}, judged", {**weights, "judge_seconds": judge_second})
