"""Cost axes, and what comparison.yaml may plan."""

from dataclasses import replace
from typing import Any

import pytest
from contests import comparison_of, run_of

from halfway.curriculum import UserError
from halfway.experiments.report.analysis.arm_summary import timing_of
from halfway.experiments.report.analysis.axes import ROLLOUTS, TOKENS, cost_axis
from halfway.experiments.report.analysis.plan import Contrast, read_design
from halfway.experiments.report.analysis.savings import savings
from halfway.experiments.report.records import Run


def runs(*arms: str) -> list[Run]:
    return [run_of(arm, seed, scores=[0.1, 0.3, 0.4]) for arm in arms for seed in (0, 1)]


def test_cost_weighs_trained_tokens() -> None:
    (run, *_) = runs("a")
    # 2,000 generated and 1,000 trained tokens after two steps.
    assert cost_axis(0.25).of(run.evaluations[2]) == 2250 and cost_axis(1).of(run.steps[1]) == 3000
    assert TOKENS.of(run.steps[0]) == 1000
    assert ROLLOUTS.phrase(1234) == "1,234 rollouts"
    assert cost_axis(0.25).phrase(1234) == "a cost of 1,234 (rho 0.25)"


def judged(found: list[Run], seconds: float) -> list[Run]:
    """The same runs, judged for so many seconds a step."""

    def told(records: Any, first: int) -> list[Any]:
        return [replace(one, judge_seconds=seconds * (i + first)) for i, one in enumerate(records)]

    return [replace(run, steps=told(run.steps, 1), evaluations=told(run.evaluations, 0)) for run in found]


def test_cost_with_judging_by_hand() -> None:
    (run, *_) = judged(runs("a"), 3.0)
    # 2,000 generated tokens + .25 x 1,000 trained tokens + 50 x 6 s.
    axis = cost_axis(0.25, 50)
    assert axis.of(run.evaluations[2]) == axis.of(run.steps[1]) == 2550
    assert (axis.name, axis.phrase(1234)) == ("cost_0.25_judged", "a cost of 1,234 (rho 0.25, judged)")
    assert cost_axis(0.25, 0).of(run.steps[1]) == 2250


def test_judging_is_priced_only_where_it_is_asked_for_and_recorded() -> None:
    found, unknown = judged(runs("a", "b"), 3.0), runs("a", "b")
    plain = read_design(comparison_of(found, costs={"rho": [0.5]}))
    assert [axis.name for axis in plain.costs] == ["cost_0.5"] and plain.judge_second is None
    asked = read_design(comparison_of(found, costs={"rho": [0.5, 2], "judge_second": 50}))
    assert [axis.name for axis in asked.costs] == ["cost_0.5", "cost_0.5_judged", "cost_2", "cost_2_judged"]
    assert [axis.name for axis in read_design(comparison_of(found, costs={"judge_second": 50})).costs] == [
        "cost_0.25",
        "cost_0.25_judged",
        "cost_1",
        "cost_1_judged",
    ]
    assert [
        axis.name for axis in read_design(comparison_of(unknown, costs={"rho": [1], "judge_second": 50})).costs
    ] == ["cost_1"]


def test_an_arm_that_is_judged_for_long_is_dear() -> None:
    """Both end at .4 after two steps: 2,000 + 1 x 1,000 + 10 x 6 s, and 60 s for the other; a grid has 64 steps."""
    found = [*judged(runs("a"), 3.0), *judged(runs("b"), 30.0)]
    planned = read_design(comparison_of(found, costs={"rho": [1], "judge_second": 10}))
    along = {each.axis.name: each for each in savings(comparison_of(found).runs, planned, draws=20)}
    for name, spent in (("cost_1", 3000), ("cost_1_judged", 3060)):
        assert along[name].goals["end"].spent == pytest.approx(spent, rel=1 / 64)
    for name, multiple in (("cost_1", 1.0), ("cost_1_judged", 3600 / 3060)):
        dear = along[name].rows[1].ratios["end"]
        assert dear is not None and dear.value == pytest.approx(multiple, rel=1 / 64)


def test_defaults_of_a_file_that_plans_nothing() -> None:
    design = read_design(comparison_of(runs("grpo", "a", "b")))
    assert design.contrasts == (Contrast("a", "grpo"), Contrast("b", "grpo"), Contrast("b", "a"))
    assert (design.named, design.baseline, design.targets, design.headline) == (False, "grpo", (), ROLLOUTS)
    assert [axis.name for axis in design.costs] == ["cost_0.25", "cost_1"]


def test_contrasts_targets_and_costs_are_read_from_the_file() -> None:
    planned = comparison_of(
        runs("a", "grpo", "b"),
        contrasts={"baseline": "grpo"},
        targets=[0.5, 0.4],
        costs={"rho": [2]},
        budget={"tokens": 100, "rollouts": None},
    )
    design = read_design(planned)
    assert design.contrasts == (Contrast("a", "grpo"), Contrast("b", "grpo"))
    assert (design.named, design.baseline, design.targets, design.headline) == (True, "grpo", (0.4, 0.5), TOKENS)
    assert [axis.name for axis in design.costs] == ["cost_2"]
    pairs = read_design(comparison_of(runs("a", "grpo", "b"), contrasts=[["b", "a"]]))
    assert (pairs.contrasts, pairs.baseline) == ((Contrast("b", "a"),), "a")


def test_without_trained_tokens_there_is_no_cost_axis() -> None:
    found = [replace(run, steps=[replace(step, trained_tokens=None) for step in run.steps]) for run in runs("a")]
    assert read_design(comparison_of(found)).costs == ()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"contrasts": {"baseline": "c"}}, "contrasts.baseline"),
        ({"targets": [50]}, "targets: .*between 0 and 1.* 50$"),
        ({"costs": {"rho": [-1]}}, "costs.rho"),
        ({"costs": {"from": "cluster"}}, "costs.from: unknown name"),
        ({"costs": {"judge_second": -1}}, "costs.judge_second: .*0 or more, not -1.0"),
    ],
)
def test_mistakes_are_reported(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"comparison.yaml: {message}"):
        read_design(comparison_of(runs("a", "b"), **config))


def test_time_and_the_rho_that_it_implies() -> None:
    run = runs("a")[0]
    timing = {"rollout": 1.0, "update": 3.0, "propose": 0.0, "evaluate": 90.0}
    found = timing_of([replace(run, steps=[replace(step, timing=timing) for step in run.steps])])
    assert found is not None and (found.rollouts, found.updates, found.inverted) == (0.25, 0.75, True)
    assert found.rho == pytest.approx(6)  # three times the seconds for half of the tokens
    assert timing_of([run]) is None
