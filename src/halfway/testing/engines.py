"""What a rollout engine promises."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from halfway.curriculum.rollouts import IntArray

if TYPE_CHECKING:
    from halfway.trainers.engines.base import Completion, Engine

CONTEXTS = 6
LIMIT = 12


def check_engine(engine: "Engine", policy: Any, contexts: Sequence[IntArray], ends: Sequence[int]) -> None:
    """Completions are a function of context, limit, seed and weights, and say which weights those were.

    Args:
        policy: the module whose weights the engine may be given.
        contexts: at least two, different and of different lengths.
        ends: the tokens that end a response.

    Raises:
        AssertionError: naming the promise that is broken.
    """
    assert engine.replicas >= 1, f"replicas {engine.replicas}"
    several = [contexts[i % len(contexts)] for i in range(CONTEXTS)]
    limits = [1 + i * LIMIT // CONTEXTS for i in range(CONTEXTS)]
    engine.sync(policy, 7)
    seen: list[int] = []
    whole = engine.generate(several, limits, range(CONTEXTS), lambda i, _: seen.append(i))
    assert sorted(seen) == list(range(CONTEXTS)), f"finished was called for {sorted(seen)}, not once for each sequence"
    for completion, limit in zip(whole, limits, strict=True):
        _check_completion(completion, limit, ends)
    assert {completion.policy_version for completion in whole} == {7}, (
        "completions do not carry the version of the sync"
    )
    _assert_equal(engine.generate(several, limits, range(CONTEXTS)), whole, "a second call with the same seeds")
    backwards = engine.generate(several[::-1], limits[::-1], range(CONTEXTS)[::-1])[::-1]
    _assert_equal(backwards, whole, "another order")
    alone = [engine.generate([c], [limit], [i])[0] for i, (c, limit) in enumerate(zip(several, limits, strict=True))]
    _assert_equal(alone, whole, "one sequence at a time")
    other = engine.generate([contexts[0]] * 8, [LIMIT] * 8, range(100, 108))
    assert len({completion.tokens_T.tobytes() for completion in other}) > 1, "different seeds give equal completions"
    engine.sync(policy, 8)
    assert engine.generate(several[:1], [2], [0])[0].policy_version == 8, "the second sync did not change the version"
    assert engine.generate([], [], []) == [], "no contexts have to give no completions"


def _check_completion(completion: "Completion", limit: int, ends: Sequence[int]) -> None:
    length = len(completion.tokens_T)
    assert 1 <= length <= limit, f"{length} tokens, of at most {limit}"
    assert len(completion.logprobs_T) == len(completion.entropies_T) == length, "a value for every token"
    assert np.isfinite(completion.logprobs_T).all(), "a log-probability is not finite"
    assert (completion.logprobs_T <= 1e-6).all(), "a log-probability is above 0"
    known = completion.entropies_T[np.isfinite(completion.entropies_T)]
    assert (known >= -1e-6).all(), "an entropy is negative"
    ended = int(completion.tokens_T[-1]) in ends
    assert (completion.stop == "end") == ended, f"it stops by {completion.stop!r} and its last token says otherwise"
    assert not set(completion.tokens_T[:-1].tolist()) & set(ends), "it continues behind an end token"
    assert ended or length == limit, "it stops before its limit without an end token"


def _assert_equal(completions: Sequence["Completion"], expected: Sequence["Completion"], how: str) -> None:
    for one, other in zip(completions, expected, strict=True):
        assert one.tokens_T.tolist() == other.tokens_T.tolist(), f"{how} gives other tokens"
        gap = float(np.abs(one.logprobs_T - other.logprobs_T).max())
        assert gap < 1e-3, f"{how} gives log-probabilities that differ by {gap:.2g} nats"
