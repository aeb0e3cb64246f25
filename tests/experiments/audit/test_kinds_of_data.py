"""The kind of data that a log resembles: its signs by hand, how they are read, and advice that was measured."""

from dataclasses import replace

import numpy as np
import pytest
import yaml
from histories import history, log
from paths import REPOSITORY

from halfway.experiments.audit.auditing import Audit, Audited
from halfway.experiments.audit.history import Reading
from halfway.experiments.audit.kinds_of_data import ADVICE, LEAST, Kind, Sign, kind_of, signs
from halfway.experiments.audit.measures import findings
from halfway.experiments.audit.page import page
from halfway.experiments.audit.tables import advice, kind_of_data
from halfway.experiments.config.loading import load_comparison_config

# Each of ten problems four times: always mixed, or always failed.
MIXED = [(step, f"p{i}", 1 + step, 8) for step in range(4) for i in range(10)]
FAILED = [(step, f"p{i}", 0, 8) for step in range(4) for i in range(10)]


def sign(value: float | None, groups: int = LEAST) -> Sign:
    return Sign("a sign", value, groups, facts=0.8, steps=0.2)


def test_the_signs_are_counted_by_hand() -> None:
    groups = history([(0, "a", 0, 8), (0, "b", 3, 8), (1, "a", 8, 8), (1, "b", 0, 8)])
    found = replace(
        groups, fresh_V=np.asarray([1, 1, 1, 0], np.bool_), from_failure_V=np.asarray([0, 0, 0, 1], np.bool_)
    )
    silent, lasting, cut = signs(found, lasting=0.5, visits=7)
    assert (silent.value, silent.groups) == (pytest.approx(2 / 3), 3)
    assert (lasting.value, lasting.groups) == (0.5, 7)
    assert (cut.value, cut.groups) == (1.0, 1)
    assert signs(groups, None, 0)[2].value is None


def test_a_sign_is_read_as_the_nearer_kind_if_it_has_enough_groups() -> None:
    assert (sign(0.6).kind, sign(0.4).kind) == ("missing facts", "unreliable steps")
    assert sign(0.6, LEAST - 1).kind is None and sign(None).kind is None


def test_a_log_is_of_the_kind_of_most_signs() -> None:
    assert kind_of([sign(0.9), sign(0.9), sign(0.1)]) == "missing facts"
    assert kind_of([sign(0.9), sign(0.1), sign(None)]) is None
    assert kind_of([]) is None


@pytest.mark.parametrize(("groups", "kind"), [(MIXED, "unreliable steps"), (FAILED, "missing facts")])
def test_an_audit_ends_with_the_kind_of_data_and_what_to_run_there(
    groups: list[tuple[int, str, int, int]], kind: Kind
) -> None:
    one = Audited(log(groups), findings(log(groups)))
    [table] = kind_of_data(one.findings)
    assert f"Together: {kind}." in table.caption and advice(one) == ADVICE[kind]
    assert ADVICE[kind].recipe.splitlines()[0] in page(Audit((one,), ()))


def test_a_log_without_silent_groups_does_not_say() -> None:
    filtered = replace(log(MIXED), reading=replace(Reading("table", "ours"), keeps_silent=False))
    one = Audited(filtered, findings(filtered))
    assert kind_of_data(one.findings) == [] and advice(one) is None


def test_the_advice_is_an_arm_that_was_measured() -> None:
    arms = load_comparison_config(REPOSITORY / "experiments" / "recipes" / "compare" / "verdict.yaml").arms
    measured = {"missing facts": "replay_frontier", "unreliable steps": "grpo_epochs"}
    assert isinstance(arms, dict) and set(measured) == set(ADVICE)
    for kind, arm in measured.items():
        assert yaml.safe_load(ADVICE[kind].recipe) == arms[arm].fields
