"""Held-out evaluation: sampled pass@1 with an interval, and the unbiased pass@k estimator."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum import Problem, Request, Stream
from halfway.trainers.contracts import Rollouts


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Pass counts of sampled attempts at held-out problems.

    Attributes:
        pass_at_1: mean over problems of (attempts that passed / attempts).
        stderr: standard error of `pass_at_1` over the choice of problems. Attempts at one problem are not independent,
            so a problem, not an attempt, is the unit: standard deviation of the problems' pass rates / sqrt(problems).
            A single problem shows no spread; then it is 1/2, the largest possible value.
        pass_counts_K: number of problems with k = 0..samples passes; samples + 1 entries.
        num_problems: problems tried.
        samples: attempts per problem.
        passed_G: number of passes of each problem, in the order of the held-out problems.
        strata: stratum -> (problems, total passes), by the problem feature `stratum`, in the order of the names; "" =
            problems without a stratum.
    """

    pass_at_1: float
    stderr: float
    pass_counts_K: tuple[int, ...]
    num_problems: int
    samples: int
    passed_G: tuple[int, ...] = ()
    strata: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Normal interval around `pass_at_1`, cut to 0..1. It has no width if all problems have the same pass rate."""
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.stderr
        return max(0.0, self.pass_at_1 - reach), min(1.0, self.pass_at_1 + reach)

    def pass_at_k(self, k: int) -> float:
        """Mean over problems of the unbiased estimate, see the function `pass_at_k`."""
        counts = enumerate(self.pass_counts_K)
        return sum(count * pass_at_k(self.samples, passed, k) for passed, count in counts) / self.num_problems


def evaluate(collector: Rollouts, problems: Sequence[Problem], samples: int, stream: Stream) -> Evaluation:
    """Try every problem `samples` times with the current weights of the engine.

    Use the same stream at every evaluation of a run and in every arm of a comparison, so that the common sampling noise
    largely cancels in differences.

    Raises:
        ValueError: without problems, or if `samples` is below 1.
    """
    if not problems or samples < 1:
        raise ValueError(f"evaluate: {len(problems)} problems x {samples} samples; give at least 1 of each")
    groups = collector.run([Request(problem, samples) for problem in problems], stream)
    passed_G = np.asarray([group.num_passed for group in groups])
    return replace(summarize(passed_G, samples), strata=by_stratum(problems, passed_G))


def by_stratum(problems: Sequence[Problem], passed_G: NDArray[np.int64]) -> dict[str, tuple[int, int]]:
    """Stratum -> (problems, total passes)."""
    problems_of: Counter[str] = Counter()
    passes_of: Counter[str] = Counter()
    for problem, passed in zip(problems, passed_G.tolist(), strict=True):
        stratum = str(problem.features.get("stratum", ""))
        problems_of[stratum] += 1
        passes_of[stratum] += passed
    return {stratum: (problems_of[stratum], passes_of[stratum]) for stratum in sorted(problems_of)}


def summarize(passed_G: NDArray[np.int64], samples: int) -> Evaluation:
    """The evaluation in which problem g passed `passed_G[g]` of `samples` attempts."""
    num_problems = len(passed_G)
    rates_G = passed_G / samples
    spread = rates_G.std(ddof=1) / math.sqrt(num_problems) if num_problems > 1 else 0.5
    return Evaluation(
        pass_at_1=float(rates_G.mean()),
        stderr=float(spread),
        pass_counts_K=tuple(np.bincount(passed_G, minlength=samples + 1).tolist()),
        num_problems=num_problems,
        samples=samples,
        passed_G=tuple(passed_G.tolist()),
    )


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """Unbiased estimate of the probability that one of k attempts passes: 1 - C(samples - passed, k) / C(samples, k).

    Chen et al. 2021 (arXiv 2107.03374), equation 1.

    Raises:
        ValueError: unless 0 <= passed <= samples and 1 <= k <= samples.
    """
    if not (0 <= passed <= samples and 1 <= k <= samples):
        raise ValueError(f"pass@{k} of {passed} passes in {samples} samples; needs 1 <= k <= samples")
    return 1 - math.comb(samples - passed, k) / math.comb(samples, k)
