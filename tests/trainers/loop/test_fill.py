"""How a batch is filled; when and how a policy is evaluated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import isclose, sqrt

import numpy as np
import pytest
from controller_harness import group, problem_set
from hypothesis import given
from hypothesis import strategies as st
from messages import says

from halfway.curriculum import Group, Origin, Problem, Request, Rollout, Stream, UserError
from halfway.curriculum.rollouts import NO_TOKENS
from halfway.trainers.loop.fill import Filling, adaptive_request
from halfway.trainers.loop.held_out import evaluate, pass_at_k, summarize
from halfway.trainers.loop.loop_options import FillOptions
from halfway.trainers.loop.records import FinishedStep

PROBLEMS = problem_set(500)


def groups(*passed: int, size: int = 8) -> list[Group]:
    return [group(PROBLEMS[i], k, size) for i, k in enumerate(passed)]


def filled(options: FillOptions, answer: Callable[[int, int], Sequence[Group]], carried: Sequence[Group] = ()):
    """The final filling, and the requests of each round, if round i with R requests brings `answer(i, R)`."""
    filling, asked = Filling.begin(options, carried), []
    while wanted := filling.wanted():
        asked.append(wanted)
        filling = filling.add(answer(filling.rounds, wanted))
    return filling, asked


def outcomes(filling: Filling) -> list[tuple[int, int, str]]:
    return [(round_index, g.num_passed, outcome) for round_index, g, outcome in filling.outcomes]


# adaptive_request(default, minimum, safety, missing, v)


@pytest.mark.parametrize(
    ("arguments", "request_size"),
    [
        ((384, 64, 1.25, 128, 0.5), 320),  # 1.25 x 128 / 0.5
        ((384, 64, 1.25, 256, 0.5), 384),  # capped by the default
        ((384, 64, 1.25, 4, 0.0), 64),  # the floor
        ((384, 64, 1.25, 4, 1.0), 384),  # the original divides by zero here
        ((48, 1, 1.25, 7, 0.3), 12),  # 12.5 is floored
        ((48, 1, 1.25, 8, 0.375), 16),  # exactly 16
        ((48, 1, 1.2, 10, 1 / 3), 18),  # exactly 18 in decimals, 17.99... in binary
        ((16, 64, 1.25, 1, 0.0), 64),  # a minimum above the default wins
    ],
)
def test_an_adaptive_request_is_gresos_formula(arguments: tuple, request_size: int):
    assert adaptive_request(*arguments) == request_size


def test_once_is_one_round_and_trains_all_that_is_mixed():
    filling, asked = filled(FillOptions(groups=5), lambda i, wanted: groups(0, 1, 8, 4, 7))
    assert asked == [5]
    assert outcomes(filling) == [
        (0, 0, "zero_variance"),
        (0, 1, "trained"),
        (0, 8, "zero_variance"),
        (0, 4, "trained"),
        (0, 7, "trained"),
    ]
    assert [g.num_passed for g in filling.trained] == [1, 4, 7]
    assert len(filling.groups) == 5 and not filling.starved


def test_zero_variance_groups_are_kept_if_asked_for_and_empty_ones_never():
    options = FillOptions(groups=5, zero_variance="keep")
    filling, asked = filled(options, lambda i, wanted: [*groups(0, 8, 4), group(PROBLEMS[3], 0, 0)])
    assert asked == [5] and [g.num_passed for g in filling.trained] == [0, 8, 4]
    assert [outcome for _, _, outcome in outcomes(filling)] == ["trained"] * 3 + ["empty"]


def test_zero_variance_groups_that_are_kept_leave_room_for_those_that_teach():
    filling, _ = filled(FillOptions(groups=2, zero_variance="keep"), lambda i, wanted: groups(0, 4, 5))
    assert outcomes(filling) == [(0, 0, "surplus"), (0, 4, "trained"), (0, 5, "trained")]
    assert [g.num_passed for g in filling.trained] == [4, 5]


def test_once_with_too_few_requests_is_starved():
    filling, asked = filled(FillOptions(groups=5), lambda i, wanted: groups(4, 4))
    assert asked == [5] and filling.starved and len(filling.trained) == 2


def test_refill_asks_until_the_batch_is_full_and_discards_the_surplus():
    rounds = [groups(4, 0, 8, 0), groups(0, 3, 0, 0), groups(2, 5, 6, 7)]
    options = FillOptions(policy="refill", groups=4)
    filling, asked = filled(options, lambda i, wanted: rounds[i])
    assert asked == [4, 4, 4]
    assert [g.num_passed for g in filling.trained] == [4, 3, 2, 5]
    assert [g.num_passed for g in filling.surplus] == [6, 7]
    assert [o for _, _, o in outcomes(filling)].count("zero_variance") == 6
    assert outcomes(filling)[-2:] == [(2, 6, "surplus"), (2, 7, "surplus")]
    assert (filling.rounds, filling.starved, len(filling.groups)) == (3, False, 12)


def test_a_small_request_is_not_the_last_one():
    # The original would flag the second round, whose request is below the default, and train on 3 groups.
    rounds = [groups(4, 4, 4, 0), groups(0), groups(5)]
    options = FillOptions(policy="refill", groups=4, request="adaptive", request_groups=6)
    filling, asked = filled(options, lambda i, wanted: rounds[i])
    assert asked == [6, 1, 6]  # v = 1/4 -> floor(1.25 / 0.75) = 1; v = 1 -> the default
    assert len(filling.trained) == 4 and not filling.starved


def test_rounds_are_bounded():
    options = FillOptions(policy="refill", groups=4, max_rounds=7)
    filling, asked = filled(options, lambda i, wanted: groups(*[0] * wanted))
    assert asked == [4] * 7
    assert filling.starved and filling.trained == () and len(filling.groups) == 28


@pytest.mark.parametrize("policy", ["once", "refill"])
def test_an_empty_round_ends_the_step(policy):
    filling, asked = filled(FillOptions(policy=policy, groups=4), lambda i, wanted: [])
    assert asked == [4]
    assert filling.starved and filling.groups == () and filling.outcomes == ()


def test_a_short_round_does_not_end_the_step():
    options = FillOptions(policy="refill", groups=3)
    filling, asked = filled(options, lambda i, wanted: groups(4))
    assert asked == [3, 3, 3] and len(filling.trained) == 3 and not filling.starved


def test_a_group_without_rollouts_is_empty_and_not_zero_variance():
    filling, _ = filled(FillOptions(groups=2), lambda i, wanted: [group(PROBLEMS[0], 0, 0), group(PROBLEMS[1], 4)])
    assert [o for _, _, o in outcomes(filling)] == ["empty", "trained"]


def test_carried_surplus_is_trained_first_and_not_observed_again():
    options = FillOptions(policy="refill", groups=4, surplus="carry")
    first, _ = filled(options, lambda i, wanted: groups(1, 2, 3, 4, 5, 6))
    assert [o for _, _, o in outcomes(first)] == ["trained"] * 4 + ["carried"] * 2
    second, asked = filled(options, lambda i, wanted: groups(7, 0, 1), carried=first.surplus)
    assert asked == [4]
    assert [g.num_passed for g in second.trained] == [5, 6, 7, 1]
    assert [g.num_passed for g in second.groups] == [7, 0, 1]
    assert len(second.outcomes) == 5 and second.surplus == ()


def test_carried_surplus_may_fill_a_batch_alone_and_the_rest_waits_on():
    options = FillOptions(policy="refill", groups=2, surplus="carry")
    filling, asked = filled(options, lambda i, wanted: [], carried=groups(1, 2, 3, 4, 5))
    assert asked == [] and filling.rounds == 0 and not filling.starved
    assert [g.num_passed for g in filling.surplus] == [3, 4, 5]
    assert filling.groups == ()


def test_carried_groups_do_not_enter_the_zero_variance_share():
    options = FillOptions(policy="refill", groups=8, request="adaptive", surplus="carry")
    filling, asked = filled(
        options, lambda i, wanted: groups(*([0, 4] * 2 if i == 0 else [4] * 8)), carried=groups(4, 4)
    )
    # After the first round 4 of 8 are there and v = 1/2: floor(1.25 x 4 / 0.5) = 10, capped at 8.
    assert asked == [8, 8]
    assert len(filling.trained) == 8


@pytest.mark.parametrize("request_law", ["fixed", "adaptive"])
@pytest.mark.parametrize("surplus", ["discard", "carry"])
def test_nothing_is_lost_or_counted_twice(request_law, surplus):
    options = FillOptions(policy="refill", groups=6, request=request_law, request_groups=9, surplus=surplus)
    rolled_out = trained = spare = zero_variance = 0
    carried: tuple[Group, ...] = ()
    for step in range(12):
        passed = [(step * 7 + i * 5) % 9 for i in range(200)]
        filling, _ = filled(
            options, lambda i, wanted, passed=passed: groups(*passed[20 * i : 20 * i + wanted]), carried=carried
        )
        carried = filling.surplus if surplus == "carry" else ()
        assert len(filling.trained) == 6 and not filling.starved
        rolled_out += len(filling.groups)
        trained += len(filling.trained)
        spare += len(filling.surplus) if surplus == "discard" else 0
        zero_variance += sum(outcome == "zero_variance" for _, _, outcome in filling.outcomes)
    assert rolled_out == trained + spare + zero_variance + len(carried)


def test_a_step_counts_groups_by_origin() -> None:
    made = [
        group(PROBLEMS[i], k, 2, origin) for i, (k, origin) in enumerate([(1, Origin.FRESH), (0, Origin.GENERATED)])
    ]
    step = FinishedStep(0, 0, {}, [], [], rounds=1, timing={}, controllers={}, groups=made)
    counts = {name: value for name, value in step.record().items() if name.endswith("_counts")}
    assert counts == {
        "fresh_counts": [0, 1, 0],
        "prefix_counts": [],
        "generated_counts": [1, 0, 0],
        "hinted_counts": [],
    }


def test_a_step_counts_answers_that_were_cut_or_lost_and_zero_variance_groups_of_one_text() -> None:
    differ, mixed = group(PROBLEMS[0], 0, 4), group(PROBLEMS[1], 2, 4)
    text = differ.rollouts[0]
    cut = replace(differ, rollouts=(replace(text, truncated=True),), dropped={"no_room": 3})
    made = [differ, mixed, replace(differ, rollouts=(text,) * 4), cut]
    step = FinishedStep(0, 0, {}, [], [], rounds=1, timing={}, controllers={}, groups=made)
    assert step.record()["responses"] == {"scored": 13, "truncated": 1, "lost": 3, "repeated": 1}


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 8),
        ({"request_groups": 5}, 5),
        ({"request_factor": 1.5}, 12),
        ({"request_factor": 1.3}, 11),  # 10.4 is rounded up
        ({"request_factor": 1.1, "groups": 10}, 11),  # exactly 11 in decimals, 11.000000000000002 in binary
        ({"request_factor": 0.25}, 2),
    ],
)
def test_the_first_request_is_a_number_of_groups_or_a_multiple_of_the_batch(options: dict, size: int):
    options = FillOptions(**({"policy": "refill", "groups": 8} | options))
    assert Filling.begin(options).wanted() == size == options.first_request


def test_a_round_of_one_and_a_half_batches_leaves_plain_batches_alone():
    """One base can hold the factor for all arms: arms that do not refill ask for their batch."""
    assert Filling.begin(FillOptions(groups=8, request_factor=1.5)).wanted() == 8
    adaptive = FillOptions(policy="refill", groups=4, request="adaptive", request_factor=1.5)
    _, asked = filled(adaptive, lambda i, wanted: groups(*([0, 8, 4] * wanted)[:wanted]))
    same, asked_in_groups = filled(
        replace(adaptive, request_factor=1.0, request_groups=6),
        lambda i, wanted: groups(*([0, 8, 4] * wanted)[:wanted]),
    )
    assert asked == asked_in_groups and asked[0] == 6 and len(asked) > 1 and len(same.trained) == 4


def test_the_size_of_a_request_is_said_once():
    with pytest.raises(UserError, match=says("fill.request_groups", "6", "fill.request_factor=1.5")):
        FillOptions(policy="refill", groups=4, request_factor=1.5, request_groups=6)
    with pytest.raises(UserError, match=says("fill.request_factor", 0, "positive")):
        FillOptions(request_factor=0)


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
