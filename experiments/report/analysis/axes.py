"""Measures of cost for comparing scores: steps, rollouts, tokens, seconds, and weighted sums of these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from halfway.experiments.report.records import Run

PAPERS_RHO = (0.25, 1.0)
"""What a trained token cost in generated tokens in the published runs. Rollouts take 78 to 91 % of their hours, and
dynamic sampling trains on about a third of the tokens that it generates. The ratio of training to rollout hours,
0.09/0.91 to 0.22/0.78, divided by the ratio of trained to generated tokens, 0.28 to 0.4, gives 0.25 to 1."""


class Spender(Protocol):
    """A record with the run's cost so far, by unit."""

    @property
    def spent(self) -> Mapping[str, float | None]: ...


@dataclass(frozen=True, slots=True)
class Axis:
    """A measure of cost.

    Attributes:
        name: name in summary.json.
        label: name in tables and figures.
        weights: the cost of one unit, by the units of `spent`.
    """

    name: str
    label: str
    weights: Mapping[str, float]

    def phrase(self, amount: float) -> str:
        """An amount of this cost in words."""
        kind, _, detail = self.label.partition(", ")
        return f"a {kind} of {amount:,.0f} ({detail})" if detail else f"{amount:,.0f} {kind}"

    def of(self, record: Spender) -> float:
        """The cost of a run at a record. All units with a weight must have been recorded."""
        spent, total = record.spent, 0.0
        for unit, weight in self.weights.items():
            amount = spent[unit]
            assert amount is not None, f"{unit} were not recorded"
            total += weight * amount
        return total

    def recorded(self, runs: Sequence[Run]) -> bool:
        """True if every record of the runs has all units that the axis weighs."""
        records: list[Spender] = [*(step for run in runs for step in run.steps)]
        records += [evaluation for run in runs for evaluation in run.evaluations]
        return all(record.spent[unit] is not None for record in records for unit in self.weights)


STEPS = Axis("steps", "steps", {"steps": 1.0})
ROLLOUTS = Axis("rollouts", "rollouts", {"rollouts": 1.0})
TOKENS = Axis("tokens", "generated tokens", {"tokens": 1.0})
SECONDS = Axis("seconds", "seconds", {"seconds": 1.0})
PLAIN = (STEPS, ROLLOUTS, TOKENS, SECONDS)


def cost_axis(rho: float, judge_second: float | None = None) -> Axis:
    """The cost of a run in generated tokens: generated tokens + rho x trained tokens (+ price x judging seconds).

    The engine samples generated tokens. Updates process trained tokens: whole sequences, with prompts and replayed
    prefixes, once per epoch. The environment needs judging seconds to answer and judge rollouts: verifiers, tests and
    tools.

    Args:
        rho: price of a trained token in generated tokens.
        judge_second: price of a second of judging in generated tokens; None = judging costs nothing.
    """
    weights = {"tokens": 1.0, "trained_tokens": rho}
    if judge_second is None:
        return Axis(f"cost_{rho:g}", f"cost, rho {rho:g}", weights)
    return Axis(f"cost_{rho:g}_judged", f"cost, rho {rho:g}, judged", {**weights, "judge_seconds": judge_second})
