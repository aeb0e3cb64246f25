"""vLLM in process, which is a separate one: sampling, log-probabilities, weight sync in float32."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drivers.vllm_driver import END, TOLERANCE, build_policy, calls, logprobs_by_one_pass
from engine_drivers import run_engine_driver

pytest.importorskip("vllm", reason="vLLM is not installed (extra vllm)", exc_type=ImportError)
pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("float32")
    run_engine_driver("vllm_driver.py", folder, "float32", timeout=300)
    return torch.load(folder / "results.pt", weights_only=False)  # type: ignore[no-any-return]


def test_logprobs_and_entropies_are_those_of_a_plain_forward_pass(results: dict[str, Any], tmp_path: Path) -> None:
    model = build_policy(tmp_path)
    for context_P, done in zip(calls()[0], results["first"], strict=True):
        expected_TV = logprobs_by_one_pass(model, context_P, done["tokens_T"])
        chosen_T = expected_TV[np.arange(len(done["tokens_T"])), done["tokens_T"]]
        np.testing.assert_allclose(done["logprobs_T"], chosen_T, atol=1e-4)
        np.testing.assert_allclose(done["entropies_T"], -(expected_TV.exp() * expected_TV).sum(-1), atol=1e-4)
        assert (done["tokens_T"].dtype, done["logprobs_T"].dtype, done["entropies_T"].dtype) == (
            "int32",
            "float32",
            "float32",
        )


def test_responses_end_at_the_first_end_token_or_at_their_own_limit(results: dict[str, Any]) -> None:
    for limit, done in zip(calls()[1], results["first"], strict=True):
        tokens = done["tokens_T"].tolist()
        assert END not in tokens[:-1]
        assert done["stop"] == ("end" if tokens[-1] == END else "length")
        assert len(tokens) == limit or done["stop"] == "end"
    assert {done["stop"] for done in results["first"]} == {"end", "length"}


def test_equal_calls_and_seeds_give_equal_tokens_in_any_order(results: dict[str, Any]) -> None:
    first = [done["tokens_T"].tolist() for done in results["first"]]
    assert [done["tokens_T"].tolist() for done in results["again"]] == first
    assert [done["tokens_T"].tolist() for done in results["shuffled"]] == [first[i] for i in results["order"]]
    assert first[0][:12] != first[2]  # one context, two seeds


def test_completions_are_reported_as_their_sequences_end(results: dict[str, Any]) -> None:
    assert sorted(results["reported"]) == list(range(12)) != results["reported"]
    for reported, first in zip(results["reported completions"], results["first"], strict=True):
        assert reported["tokens_T"].tolist() == first["tokens_T"].tolist() and reported["stop"] == first["stop"]


def test_completions_say_which_weights_sampled_them(results: dict[str, Any]) -> None:
    assert {done["policy_version"] for done in results["first"]} == {0}
    assert {done["policy_version"] for done in results["synced"]} == {1}


def test_a_request_that_cannot_fit_is_named(results: dict[str, Any]) -> None:
    assert results["too long"].startswith(
        "rollouts.engine.vllm.max_length: a prompt and its response may need 1080 tokens"
    )


def test_the_check_after_a_sync_detects_wrong_weights(results: dict[str, Any]) -> None:
    verdicts = results["syncs"]
    for name in ("before", "right", "right after that", "cache emptied at last"):
        assert verdicts[name] < TOLERANCE, name
    for name in ("not synced", "cache kept", "output layer not repacked"):
        assert "the engine has other weights" in str(verdicts[name])
