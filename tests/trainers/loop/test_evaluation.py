from dataclasses import dataclass, field
from itertools import combinations
from math import isclose, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfway.curriculum.groups import Group, Request
from halfway.curriculum.problems import Problem
from halfway.curriculum.rollouts import NO_TOKENS, Rollout
from halfway.curriculum.streams import Stream
from halfway.trainers.loop.evaluation import evaluate, pass_at_k, summarize

STREAM = Stream(3, ("evaluation",))


@dataclass
class Known:
    """A collector whose problems pass as often as their answers say."""

    streams: list[Stream] = field(default_factory=list)

    def run(self, requests: list[Request], stream: Stream) -> list[Group]:
        self.streams.append(stream)
        return [self._group(request) for request in requests]

    def _group(self, request: Request) -> Group:
        passes = int(request.problem.answer)
        rollouts = tuple(Rollout((), i < passes) for i in range(request.num_rollouts))
        return Group(request, NO_TOKENS, rollouts)


def test_pass_at_1_and_its_error_clustered_by_problem() -> None:
    problems = [Problem(str(i), "", str(k)) for i, k in enumerate([8, 4, 0, 4])]
    collector = Known()
    result = evaluate(collector, problems, 8, STREAM)
    assert result.pass_at_1 == 0.5
    # Rates 1, 1/2, 0, 1/2: variance (1/4 + 1/4) / 3, of the mean a quarter of that.
    assert isclose(result.stderr, sqrt(0.5 / 3 / 4))
    assert result.pass_counts_K == (1, 0, 0, 0, 2, 0, 0, 0, 1)
    assert (result.num_problems, result.samples) == (4, 8)
    assert collector.streams == [STREAM]


def test_passes_are_kept_by_problem_and_by_stratum() -> None:
    strata: list[dict[str, float | str]] = [{"stratum": "late"}, {"stratum": "early"}, {}, {"stratum": "early"}]
    problems = [Problem(str(k), "", str(k), features=own) for k, own in zip([8, 5, 0, 4], strata, strict=True)]
    result = evaluate(Known(), problems, 8, STREAM)
    assert result.passed_G == (8, 5, 0, 4)
    assert list(result.strata.items()) == [("", (1, 0)), ("early", (2, 9)), ("late", (1, 8))]


def test_more_samples_of_the_same_problems_do_not_shrink_the_error() -> None:
    few, many = (summarize(np.asarray([0, samples] * 8), samples) for samples in (4, 400))
    assert few.stderr == many.stderr == pytest.approx(sqrt(0.25 * 16 / 15 / 16))


def test_the_interval_is_normal_and_cut_to_0_and_1() -> None:
    result = summarize(np.asarray([2, 4, 6] * 30), 8)
    low, high = result.interval()
    assert isclose(high - low, 2 * 1.959964 * result.stderr, rel_tol=1e-6) and isclose((low + high) / 2, 0.5)
    wide = summarize(np.asarray([0, 8]), 8).interval()
    assert wide == (0.0, 1.0)


def test_one_problem_shows_no_spread() -> None:
    assert summarize(np.asarray([3]), 8).stderr == 0.5


@given(samples=st.integers(1, 7), passed=st.integers(0, 7), k=st.integers(1, 7))
def test_pass_at_k_is_the_share_of_subsets_with_a_pass(samples: int, passed: int, k: int) -> None:
    if passed > samples or k > samples:
        with pytest.raises(ValueError, match="needs 1 <= k <= samples"):
            pass_at_k(samples, passed, k)
        return
    subsets = list(combinations([i < passed for i in range(samples)], k))
    assert isclose(pass_at_k(samples, passed, k), sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_of_an_evaluation_is_the_mean_over_problems() -> None:
    result = summarize(np.asarray([0, 1, 4]), 4)
    assert isclose(result.pass_at_k(1), result.pass_at_1)
    assert isclose(result.pass_at_k(2), (0 + 0.5 + 1) / 3)
    assert isclose(result.pass_at_k(4), 2 / 3)


@pytest.mark.parametrize(("problems", "samples"), [([], 8), ([Problem("a", "", "1")], 0)])
def test_nothing_to_evaluate_is_refused(problems: list[Problem], samples: int) -> None:
    with pytest.raises(ValueError, match="give at least 1 of each"):
        evaluate(Known(), problems, samples, STREAM)
