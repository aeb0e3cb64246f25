"""The settings of the loop: how batches fill, how long it trains, when it evaluates and saves. Frozen values."""

import math
from dataclasses import dataclass
from typing import Literal

from halfway.curriculum import require

MOST_HELD_OUT = 50_000
"""Maximum size of the held-out set, which reports resample."""


@dataclass(frozen=True)
class FillOptions:
    """Options for filling a training batch.

    Attributes:
        policy: "once" = one round of `groups` requests, filtered by `zero_variance`; "refill" = further rounds until
            `groups` groups are mixed (DAPO dynamic sampling), at most `max_rounds`.
        groups: number of groups in a training batch.
        max_rounds: maximum number of rounds of a step; a step that is still short trains on a smaller batch and is
            recorded as starved.
        request: size of a round under "refill": "fixed" = always the size of the first round; "adaptive" = GRESO's law.
        request_factor: size of the first round as a multiple of `groups`, rounded up; 1.5 in GRESO's scripts, including
            those for dynamic sampling.
        request_groups: size of the first round in groups; 0 = by `request_factor`.
        min_request: smallest adaptive request, in groups.
        safety: beta of the adaptive law.
        zero_variance: treatment of zero-variance groups: "drop" = they do not train (the group filter); "keep" = they
            train like others. A critic learns from them; without a critic they only add to the token count.
        surplus: mixed groups beyond `groups`: "discard", or "carry" into the batch of the next step.
    """

    policy: Literal["once", "refill"] = "once"
    groups: int = 32
    max_rounds: int = 10
    request: Literal["fixed", "adaptive"] = "fixed"
    request_factor: float = 1.0
    request_groups: int = 0
    min_request: int = 1
    safety: float = 1.25
    zero_variance: Literal["drop", "keep"] = "drop"
    surplus: Literal["discard", "carry"] = "discard"

    def __post_init__(self) -> None:
        require(self.groups >= 1, "fill.groups", self.groups, "give at least 1")
        require(self.max_rounds >= 1, "fill.max_rounds", self.max_rounds, "give at least 1")
        factor, request = self.request_factor, self.request_groups
        require(0 < factor < math.inf, "fill.request_factor", factor, "give a positive number such as 1.5")
        require(request >= 0, "fill.request_groups", request, "give 0 (= by fill.request_factor) or more")
        remedy = f"fill.request_factor={factor:g} has the same effect; leave it at 1, or this at 0"
        require(request == 0 or factor == 1, "fill.request_groups", request, remedy)
        require(self.min_request >= 1, "fill.min_request", self.min_request, "give at least 1")
        require(self.safety >= 1, "fill.safety", self.safety, "give at least 1")
        refill, kept = self.policy == "refill", self.zero_variance
        fixed = refill or self.request == "fixed"
        require(fixed, "fill.request", self.request, "an adaptive request needs fill.policy=refill")
        remedy = "fill.policy=refill samples until enough groups are mixed; use fill.policy=once to keep all"
        require(not refill or kept == "drop", "fill.zero_variance", kept, remedy)
        remedy = "fill.policy=once leaves no surplus to carry; use fill.policy=refill"
        require(refill or self.surplus == "discard", "fill.surplus", self.surplus, remedy)

    @property
    def first_request(self) -> int:
        """Groups in the first round under "refill"."""
        # The small subtrahend keeps an exact product, such as 1.1 x 10, from being raised by one.
        return self.request_groups or math.ceil(self.request_factor * self.groups - 1e-9)


@dataclass(frozen=True)
class Budget:
    """The length of a run, by exactly one field; the arms of a comparison share it.

    Attributes:
        rollouts: number of rollouts generated for training.
        tokens: number of tokens generated for training.
        steps: number of learner steps.
        seconds: wall-clock seconds of the loop, without evaluation and checkpoints.
        tool_seconds: seconds of the environment's tools, summed over the rollouts generated for training, even if they
            ran in parallel; without replayed steps and evaluation.
    """

    rollouts: int | None = None
    tokens: int | None = None
    steps: int | None = None
    seconds: float | None = None
    tool_seconds: float | None = None

    def __post_init__(self) -> None:
        amounts = {k: v for k, v in vars(self).items() if v is not None}
        remedy = "set exactly one of rollouts, tokens, steps, seconds, tool_seconds"
        require(len(amounts) == 1, "budget", amounts, remedy)
        require(next(iter(amounts.values())) > 0, f"budget.{self.unit}", self.total, "give a positive number")

    @property
    def unit(self) -> str:
        return next(k for k, v in vars(self).items() if v is not None)

    @property
    def total(self) -> float:
        return float(getattr(self, self.unit))


@dataclass(frozen=True)
class EvaluationOptions:
    """Held-out pass@1, the mean of `samples` sampled attempts per problem.

    Attributes:
        points: number of evaluations after the start, evenly spaced over the budget, the last at its end; 0 = none.
        samples: attempts per problem.
        problems: size of the held-out set, which never trains.
        oracle_every: steps between two measurements of the pass rates of all training problems, which are made only for
            a controller with a `measured` belief. These rollouts do not count against the budget.
        oracle_samples: attempts per training problem in such a measurement.
    """

    points: int = 4
    samples: int = 8
    problems: int = 128
    oracle_every: int = 20
    oracle_samples: int = 8

    def __post_init__(self) -> None:
        require(self.points >= 0, "evaluation.points", self.points, "give 0 or more")
        require(self.samples >= 1, "evaluation.samples", self.samples, "give at least 1")
        wanted = f"give a number from 0 to {MOST_HELD_OUT:,}"
        require(0 <= self.problems <= MOST_HELD_OUT, "evaluation.problems", self.problems, wanted)
        for name in ("oracle_every", "oracle_samples"):
            require(vars(self)[name] >= 1, f"evaluation.{name}", vars(self)[name], "give at least 1")


@dataclass(frozen=True)
class CheckpointOptions:
    """When to save checkpoints, and how many to keep.

    Attributes:
        every: steps between checkpoints; the last step always saves one.
        keep: number of newest checkpoints kept.
    """

    every: int = 10
    keep: int = 2

    def __post_init__(self) -> None:
        require(self.every >= 1, "checkpoint.every", self.every, "give at least 1")
        require(self.keep >= 1, "checkpoint.keep", self.keep, "give at least 1")
