"""Says which of the lab's kinds of data a log resembles, and what to run on such data.

Success may be limited by missing facts: then problems go from never passed to always passed, and few groups are mixed.
Or by many steps that are each right most of the time: then groups are mixed for long. Each sign of a log is read as the
kind whose value in the lab is nearer, and the log as the kind of most signs. Where the lab's values come from is told
in results/when_does_it_pay, and so is what was measured there. This is a lead for another model, no more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from halfway.experiments.audit.history import History

Kind = Literal["missing facts", "unreliable steps"]
LEAST = 20
"""How many groups a sign needs."""

LAB = {"zero_variance": (0.61, 0.23), "mixed_again": (0.63, 0.91), "zero_variance_after_failure": (0.57, 0.34)}
"""Each sign's mean over the lab's kinds of data whose facts are missing, and over those whose steps are unreliable."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A share of groups that differs between kinds of data.

    Attributes:
        value: the share in this log; None if it has no such group.
        groups: of how many groups it is the share.
        facts, steps: see `LAB`.
    """

    name: str
    value: float | None
    groups: int
    facts: float
    steps: float

    @property
    def kind(self) -> Kind | None:
        """The kind whose value is nearer; None with too few groups."""
        if self.value is None or self.groups < LEAST:
            return None
        return "missing facts" if abs(self.value - self.facts) < abs(self.value - self.steps) else "unreliable steps"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to run on a kind of data.

    Attributes:
        why: what was measured on such data in the lab.
        recipe: fields of a run, as YAML.
    """

    why: str
    recipe: str


ADVICE: dict[Kind, Advice] = {
    "missing facts": Advice(
        "In three kinds of data whose facts are missing, a belief that problems share, in the rounds of dynamic "
        "sampling, was ahead of dynamic sampling along rollouts, clearly in two, and level with the best plain recipe "
        "or ahead at every price. In two, whole batches with two epochs were better still where only rollouts count.",
        """controllers:
  - frontier: {features: [prompt_state], candidates: null, model: {drift: 0.03}}
fill: {policy: refill, request: fixed, groups: 4, request_factor: 1.5, surplus: carry} # a quarter of the lab's batch
""",
    ),
    "unreliable steps": Advice(
        "In two kinds of data whose steps are unreliable, replay with a belief that problems share needed .62 and .96 "
        "of the best plain recipe's rollouts, not clearly fewer. Where a trained token costs as much as a generated "
        "one, nothing was clearly cheaper than dynamic sampling with a quarter of the usual batch.",
        """controllers:
  - replay: {share: 0.5, matched: true, uses: 2, age: 10, order: rare}
  - frontier: {features: [prompt_state], candidates: null, model: {drift: 0.03}}
learner: {num_epochs: 2}
""",
    ),
}


def signs(history: History, lasting: float | None, visits: int) -> tuple[Sign, ...]:
    """The signs of a log.

    Args:
        lasting: of the visits that follow a mixed one of the same problem, the share that is mixed again.
        visits: how many such visits there are.
    """
    fresh = history.fresh()
    cut = history.where(history.from_failure_V & (history.size_V > 0))
    return (
        Sign("groups that have zero variance", _zero_variance(fresh), len(fresh), *LAB["zero_variance"]),
        Sign("visits after a mixed one that are mixed again", lasting, visits, *LAB["mixed_again"]),
        Sign(
            "groups after a prefix of a failure that have zero variance",
            _zero_variance(cut),
            len(cut),
            *LAB["zero_variance_after_failure"],
        ),
    )


def kind_of(found: Sequence[Sign]) -> Kind | None:
    """The kind that most signs of a log are read as; None if there is no such kind."""
    kinds = [sign.kind for sign in found]
    facts, steps = kinds.count("missing facts"), kinds.count("unreliable steps")
    return None if facts == steps else "missing facts" if facts > steps else "unreliable steps"


def _zero_variance(history: History) -> float | None:
    return float(history.zero_variance_V.mean()) if len(history) else None
