"""Rows name arms and recipes that exist, and rules judge runs made by hand as they say."""

from dataclasses import replace
from typing import Any

import pytest
from messages import says
from paths import REPOSITORY

from halfway.curriculum import UserError
from halfway.curriculum.support.validation import construct
from halfway.experiments.config import yaml_files
from halfway.experiments.reproduction import judging
from halfway.experiments.reproduction.judging import (
    Ground,
    decided_claims,
    ground_of,
    judge,
    judge_paper,
    read_measured,
)
from halfway.experiments.reproduction.paper_rows import NAMES, Row, find_paper, load_paper
from halfway.experiments.reproduction.reproduce import measured_text
from halfway.experiments.reproduction.run_curves import Curve, Evaluation

BARE = {"place": "Table 1", "claim": "More.", "published": "2 times"}
BASE = {**BARE, "measure": "utility", "arm": "a"}


def runs(arm: str, values: list[float]) -> list[Curve]:
    return [Curve("hand", arm, seed, 0.0, 0, (), {"utility": value}) for seed, value in enumerate(values)]


def status(values: list[float], reference: list[float], **rule: Any) -> judging.Measured:
    row = construct(Row, {**BASE, "against": "b", **rule})
    return judge(row, [*runs("a", values), *runs("b", reference)], Ground(instances=2))


ONES = [1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.02, 0.98]


@pytest.mark.parametrize(
    ("factor", "rule", "expected"),
    [
        (2.0, {"size": 1.5}, "reproduced"),
        (1.2, {"size": 1.5}, "partly"),
        (1.0, {"size": 1.5}, "not reproduced"),
        (0.8, {"size": 1.5}, "not reproduced"),
        (0.5, {"size": 0.75}, "reproduced"),
        (1.0, {"within": [0.95, 1.05]}, "reproduced"),
        (1.3, {"within": [0.95, None]}, "reproduced"),
        (1.3, {"within": [0.95, 1.05]}, "not reproduced"),
    ],
)
def test_a_rule_judges_a_clear_multiple(factor: float, rule: dict[str, Any], expected: str) -> None:
    found = status([factor * value for value in ONES], ONES, **rule)
    assert found.status == expected and found.value == pytest.approx(factor, rel=1e-3)
    assert found.power is not None and found.power > 0.8


def test_without_power_nothing_is_called_not_reproduced() -> None:
    wide = [1.0, 4.0, 0.25, 2.0]
    found = status(wide, wide[::-1], size=1.2)
    assert found.status == "undecided" and found.power is not None and found.power < 0.8
    assert status([1.0], [1.0], size=1.2).status == "undecided"


def test_a_clear_effect_without_power_decides_nothing() -> None:
    found = status([2.1, 2.9, 3.6, 2.4], [1.0, 0.9, 1.4, 1.1], size=1.05)
    assert found.low is not None and found.low > 1.05 and found.power is not None and found.power < 0.8
    assert found.status == "undecided"


def test_an_estimate_has_to_reach_half_of_the_median_published_effect() -> None:
    row = construct(Row, {**BASE, "against": "b", "effects": [1.2, 1.4, 3.0]})
    assert row.least == 1.2 and ">= 1.2," in row.rule
    assert construct(Row, {**BASE, "effects": [0.6, 0.8], "null": 0.5}).least == 0.6


def test_a_trained_token_costs_what_the_recipe_says() -> None:
    greso, pros = load_paper("greso"), load_paper("prefix_sampling")
    assert ground_of(greso, greso.rows["table-2-hours"]).rho == 0.35
    assert ground_of(pros, pros.rows["table-1"]).rho == 0.25
    row = construct(Row, {**BASE, "measure": "cost_per_step", "within": [0, 1000]})
    spent = Curve("hand", "a", 0, 0.0, 1, (Evaluation(2, 8, 100, 40, 1.0, (1,)),))
    assert judge(row, [spent], Ground(rho=0.25)).arm == 55
    assert judge(row, [spent], Ground(rho=1.0)).arm == 70


def test_arms_of_a_study_are_compared_within_seeds() -> None:
    row = construct(Row, {**BASE, "against": "b", "size": 1.5})
    reference = [0.1, 0.4, 1.6]
    both = [*runs("a", [2 * value for value in reference]), *runs("b", reference)]
    assert judge(row, both, Ground(paired=True)).status == "reproduced"
    assert judge(row, both, Ground()).status == "undecided"


def test_a_seed_of_a_study_counts_if_both_arms_have_it() -> None:
    row = construct(Row, {**BASE, "against": "b", "size": 1.5})
    both = [*runs("a", [0.2, 0.8, 3.3]), *runs("b", [0.1, 0.4, 1.6, 9.0, 9.0])]
    found = judge(row, both, Ground(paired=True))
    assert found.runs == (3, 3) and found.left_out == 0
    assert found == judge(row, both[:6], Ground(paired=True))


def test_rows_of_one_measurement_are_one_decided_claim() -> None:
    rows = {
        "one": {**BASE, "size": 2.0},
        "same": {**BASE, "size": 2.0, "rests_on": "one"},
        "late": {**BASE, "size": 2.0, "late": True},
        "open": {**BASE, "size": 2.0},
        "shown": {**BARE, "shown_by": "tests/x.py"},
    }
    paper = replace(load_paper("greso"), rows={name: construct(Row, row) for name, row in rows.items()})
    found = {name: judging.Measured("undecided" if name == "open" else "partly") for name in rows}
    assert decided_claims(paper, found) == {"one"}
    assert decided_claims(paper, {**found, "one": judging.Measured("undecided")}) == {"one"}
    with pytest.raises(UserError, match=says("rows.same.rests_on", "two")):
        replace(paper, rows={"same": construct(Row, {**rows["same"], "rests_on": "two"})})


def test_a_multiple_of_runs_that_ended_at_zero_shows_both_means() -> None:
    row = construct(Row, {**BASE, "against": "b", "size": 2.0})
    found = judge(row, [*runs("a", [0.0, 0.5]), *runs("b", [0.5, 1.0])], Ground())
    assert found.status == "undecided"
    assert measured_text(row, found) == "0.25 against 0.75, no interval, 2 runs of b and 2 runs of a"


def test_a_row_without_runs_was_not_run() -> None:
    assert judge(construct(Row, {**BASE, "size": 2.0}), [], Ground()).status == "not run on this ground"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"measure": "utilty", "size": 2.0}, ("measure", "utilty", "utility")),
        ({}, ("size", "within")),
        ({"size": 1.0}, ("size", "null")),
        ({"measure": "steps_to_target", "size": 0.5}, ("against", "target")),
        ({"cannot": "no GPU"}, ("measure", "leave it out")),
    ],
)
def test_a_wrong_row_costs_one_line(fields: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=says(*words)):
        construct(Row, {**BASE, **fields})


@pytest.mark.parametrize("name", NAMES)
def test_rows_name_arms_and_recipes_that_exist(name: str) -> None:
    paper = load_paper(name)
    for row in paper.rows.values():
        recipe = yaml_files.read(REPOSITORY / paper.recipe_of(row))
        arms = {*recipe["arms"], *(("base",) if paper.study else ())}
        if row.overrides:
            arms |= set(yaml_files.parse_overrides(row.overrides).get("arms", {}))
        assert set(row.arms) <= arms, row.place
        assert not row.shown_by or (REPOSITORY / row.shown_by).exists()
    assert (REPOSITORY / paper.scale.recipe).exists()


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_rows_follow_from_the_committed_runs(name: str) -> None:
    assert read_measured(load_paper(name)) == judge_paper(load_paper(name))


def test_papers_are_found_by_method_and_number() -> None:
    assert find_paper("2506.02177").name == find_paper("GRESO").name == "greso"
    with pytest.raises(UserError, match=says("DAPO", "greso", "halfway list DAPO")):
        find_paper("DAPO")
    with pytest.raises(UserError, match=says("nothing", "greso")):
        find_paper("nothing")
