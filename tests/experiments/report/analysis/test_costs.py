"""Cost axes, the roofline by hand, and what comparison.yaml may plan."""

from dataclasses import replace
from typing import Any

import pytest
from contests import comparison_of, run_of

from halfway.curriculum.support.errors import UserError
from halfway.experiments.report.analysis.axes import ROLLOUTS, TOKENS, cost_axis
from halfway.experiments.report.analysis.design import Contrast, read_design
from halfway.experiments.report.analysis.roofline import Roofline
from halfway.experiments.report.analysis.savings import savings
from halfway.experiments.report.arms import timing_of
from halfway.experiments.report.records import Run
from halfway.trainers.distributed.cluster import DEVICES, ClusterOptions, Device, ShapeOptions

# Head size 5: attention 2 x 10 x 5 x (2 + 1) = 300, feed-forward 3 x 10 x 20 = 600 in each of two layers, and twice 100
# x 10 for the vocabulary: 3,800 parameters. Keys and values: 2 x 2 layers x 1 head x 5 = 20 numbers per token.
SHAPE = ShapeOptions(10, 2, 20, 2, 1, vocab_size=100)
SLOW = Device(flops=1000, bandwidth=100)


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
    """Both end at .4 after two steps: 2,000 + 1 x 1,000 + 10 x 6 s, and 60 s for the other."""
    found = [*judged(runs("a"), 3.0), *judged(runs("b"), 30.0)]
    planned = read_design(comparison_of(found, costs={"rho": [1], "judge_second": 10}))
    along = {each.axis.name: each for each in savings(comparison_of(found).runs, planned, draws=20)}
    for name, spent in (("cost_1", 3000), ("cost_1_judged", 3060)):
        assert along[name].goals["end"].spent == pytest.approx(spent)
    for name, multiple in (("cost_1", 1.0), ("cost_1_judged", 3600 / 3060)):
        dear = along[name].rows[1].ratios["end"]
        assert dear is not None and dear.value == pytest.approx(multiple, rel=0.01)


def test_the_roofline_by_hand() -> None:
    # 2 x 3,800 bytes for 10 sequences, 2 x 20 x 30 for the cache of one: 1,960 bytes, 19.6 s; the products 7.6 s.
    model = Roofline(SLOW, SHAPE, batch=10, context=30)
    assert model.generated == pytest.approx(19.6) and model.trained == pytest.approx(22.8)
    assert model.rho == pytest.approx(22.8 / 19.6)
    # One more forward pass: 8 products for each parameter.
    assert replace(model, passes=1).trained == pytest.approx(30.4)
    # With many short sequences the products dominate, and an update takes three times as long per token.
    assert replace(model, batch=10_000, context=0).rho == pytest.approx(3)


def test_a_small_batch_makes_generating_dear() -> None:
    shape = ShapeOptions(4096, 36, 12288, 32, 8, head_dim=128, vocab_size=151936)
    assert shape.weights == pytest.approx(8.19e9, rel=0.01)  # Qwen3-8B
    few, many = (Roofline(DEVICES["h100"], shape, batch, 2000).rho for batch in (32, 512))
    assert few < 0.35 < 0.45 < many < 0.6


def test_defaults_of_a_file_that_plans_nothing() -> None:
    design = read_design(comparison_of(runs("grpo", "a", "b")))
    assert design.contrasts == (Contrast("a", "grpo"), Contrast("b", "grpo"), Contrast("b", "a"))
    assert (design.named, design.baseline, design.targets, design.headline) == (False, "grpo", (), ROLLOUTS)
    assert [axis.name for axis in design.costs] == ["cost_0.25", "cost_1"]


def test_what_the_file_plans() -> None:
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
        ({"targets": [50]}, "targets: 50"),
        ({"costs": {"rho": [-1]}}, "costs.rho"),
        ({"costs": {"from": "cluster"}}, "costs.from"),
        ({"costs": {"judge_second": -1}}, "costs.judge_second: -1 .*0 or more"),
        ({"costs": {"rho": [1], "judge_second": "device"}}, "costs.judge_second: 'device'"),
    ],
)
def test_mistakes_are_told(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_design(comparison_of(runs("a", "b"), **config))


CLUSTER_RUN = {
    "name": "r",
    "controllers": ["uniform"],
    "problems": {"source": "running_sums"},
    "budget": {"rollouts": 100},
    "model": {"path": "some/model"},
    "rollouts": {"max_sequences": 10, "max_response_tokens": 60},
    "cluster": {"device": "h100", "model": vars(SHAPE)},
}


def test_costs_from_the_cluster_of_the_runs() -> None:
    found = [replace(run, config=CLUSTER_RUN) for run in runs("a", "b")]
    design = read_design(comparison_of(found, base=CLUSTER_RUN, costs={"from": "cluster"}))
    expected = Roofline(DEVICES["h100"], SHAPE, 10, 30).rho
    assert [axis.weights["trained_tokens"] for axis in design.costs] == [round(expected, 3)]
    assert "h100" in design.rho_from and "10 sequences" in design.rho_from
    idle = read_design(
        comparison_of(judged(found, 1.0), base=CLUSTER_RUN, costs={"from": "cluster", "judge_second": "device"})
    )
    assert idle.judge_second == pytest.approx(1 / Roofline(DEVICES["h100"], SHAPE, 10, 30).generated, rel=1e-6)
    longer = read_design(comparison_of(found, base=CLUSTER_RUN, costs={"from": "cluster", "context": 300}))
    assert longer.costs[0].weights["trained_tokens"] < design.costs[0].weights["trained_tokens"]


@pytest.mark.parametrize(
    ("cluster", "message"), [({"model": vars(SHAPE)}, "cluster.device: empty"), ({"device": "h100"}, "cluster.model")]
)
def test_costs_from_an_unknown_cluster_are_refused(cluster: dict[str, Any], message: str) -> None:
    found = [replace(run, config={**CLUSTER_RUN, "cluster": cluster}) for run in runs("a", "b")]
    with pytest.raises(UserError, match=message):
        read_design(comparison_of(found, base=CLUSTER_RUN, costs={"from": "cluster"}))


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UserError, match=r"cluster\.device"):
        ClusterOptions(device="h1000")


def test_time_and_the_rho_that_it_implies() -> None:
    run = runs("a")[0]
    timing = {"rollout": 1.0, "update": 3.0, "propose": 0.0, "evaluate": 90.0}
    found = timing_of([replace(run, steps=[replace(step, timing=timing) for step in run.steps])])
    assert found is not None and (found.rollouts, found.updates, found.inverted) == (0.25, 0.75, True)
    assert found.rho == pytest.approx(6)  # three times the seconds for half of the tokens
    assert timing_of([run]) is None
