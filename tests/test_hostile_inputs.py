"""Some of the attacks of `hostile_inputs`, with another seed: each ends in one line or a sound result."""

import pytest
from hostile_inputs import run_apart
from sandboxes import needs_sandbox


@pytest.mark.parametrize(("kind", "count", "inputs"), [("logs", 14, 21), ("recipes", 150, 1)])
def test_changed_inputs_end_in_one_line_or_a_sound_result(kind: str, count: int, inputs: int) -> None:
    assert sum(run_apart(kind, count, seed=1)["outcomes"].values()) == count * inputs


@needs_sandbox
def test_changed_answers_get_a_verdict_from_every_verifier() -> None:
    outcomes = run_apart("answers", 30, seed=1)["outcomes"]
    assert {name.partition(":")[0] for name in outcomes} > {"exact", "numeric", "symbolic", "function_induction"}
