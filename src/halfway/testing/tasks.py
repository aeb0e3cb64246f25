"""What verifiers and environments promise."""

from collections.abc import Callable, Sequence
from typing import Any

from halfway.curriculum.environments.base import Environment
from halfway.curriculum.problems import Problem

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
