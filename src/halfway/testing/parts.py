"""The contracts of engines, verifiers and environments."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from halfway.curriculum import IntArray, Problem
from halfway.curriculum.environments.contract import Environment

if TYPE_CHECKING:
    from halfway.trainers.engines.contract import Completion, Engine

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


ODD = ("", " ", "\x00", "0" * 10_000, "()[]{}", "\N{SNOWMAN}", "<answer></answer>")
"""Responses that a policy may well give, and that no verifier may choke on."""


def check_verifier(verifier: Callable[[Problem, str], bool], right: Sequence[tuple[Problem, str]]) -> None:
    """A verifier is a function of problem and response that says True or False and never raises.

    Args:
        right: problems, each with a response that is to pass.

    Raises:
        AssertionError: naming the promise that is broken.
    """
    assert right, "give at least one problem with a response that is to pass"
    for problem, response in right:
        verdicts = [verifier(problem, response) for _ in range(3)]
        assert all(type(verdict) is bool for verdict in verdicts), f"{problem.id!r}: {verdicts[0]!r} is not a bool"
        assert verdicts == [True] * 3, f"{problem.id!r}: the right response passed as {verdicts}"
        for odd in ODD:
            try:
                verdict = verifier(problem, odd)
            except Exception as error:
                raise AssertionError(f"{problem.id!r}: the response {odd[:20]!r} raised {error!r}") from error
            assert type(verdict) is bool, f"{problem.id!r}: {verdict!r} is not a bool"
            assert not verdict, f"{problem.id!r}: the response {odd[:20]!r} passed"


def check_environment(environment: Environment[Any], episodes: Sequence[tuple[Problem, Sequence[str]]]) -> None:
    """Episodes are values: equal histories make equal episodes, whatever runs beside them; limits hold.

    Args:
        episodes: problems, each with responses that bring an episode to its successful end.

    Raises:
        AssertionError: naming the promise that is broken.
    """
    assert episodes, "give at least one problem with the responses that solve it"
    assert environment.unit in ("tokens", "steps"), f"unit {environment.unit!r}; choose tokens or steps"
    assert environment.max_turns >= 1, f"max_turns {environment.max_turns}"
    assert environment.unit == "steps" or environment.max_turns == 1, "several turns are counted in steps"
    together = _play(environment, episodes)
    for (problem, responses), history in zip(episodes, together, strict=True):
        alone = _play(environment, [(problem, responses)])[0]
        assert alone == history, f"{problem.id!r}: the episode differs when it is played alone"
        assert history[-1][1] is True, f"{problem.id!r}: the given responses end with success {history[-1][1]}"
        assert all(success is None for _, success, _ in history[:-1]), f"{problem.id!r}: the episode ended early"
        assert len(history) <= environment.max_turns, f"{problem.id!r}: more than max_turns turns"
        idle = _play(environment, [(problem, ["?"] * (environment.max_turns + 1))])[0]
        assert idle[-1][1] is False, (
            f"{problem.id!r}: {environment.max_turns} senseless responses do not end in failure"
        )


def _play(
    environment: Environment[Any], episodes: Sequence[tuple[Problem, Sequence[str]]]
) -> list[list[tuple[str, bool | None, bool]]]:
    """Observation, success and truncation after every response, until each episode is over."""
    live = dict(enumerate(environment.start([problem for problem, _ in episodes])))
    histories: list[list[tuple[str, bool | None, bool]]] = [[] for _ in episodes]
    for turn in range(max(len(responses) for _, responses in episodes)):
        going = [i for i in live if turn < len(episodes[i][1])]
        results = environment.step([live[i] for i in going], [episodes[i][1][turn] for i in going]) if going else []
        for i, result in zip(going, results, strict=True):
            histories[i].append((result.observation, result.success, result.truncated))
            live[i] = result.episode
            if result.success is not None:
                del live[i]
    return histories
