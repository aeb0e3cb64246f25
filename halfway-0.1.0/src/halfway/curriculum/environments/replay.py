"""Replays prefixes by execution: saved responses go through the environment like fresh ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from halfway.curriculum.environments.contract import Environment, Episode, StepResult


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference between a replay and its recording.

    Attributes:
        step: the step, counted from 1.
        response: the executed response.
        why: the difference, in words.
        lost: whether the environment lost the episode, so that its outcome is unknown.
    """

    step: int
    response: str
    why: str
    lost: bool = False


def replay(
    environment: Environment[Episode],
    episodes: Sequence[Episode],
    responses: Sequence[Sequence[str]],
    observations: Sequence[Sequence[str]],
    states: Sequence[Sequence[str]] | None = None,
    executed: Callable[[int, float], None] = lambda i, seconds: None,
) -> list[Episode | Divergence]:
    """Execute saved responses, turn by turn, and compare the environment's answers with the record.

    No model runs. Episodes go through `environment.step` in batches, one batch per turn. Answers must be exactly equal:
    an environment must remove irrelevant variation from its answers.

    Args:
        episodes: the start of each replay.
        responses: for each episode, the saved responses of its first turns, possibly none.
        observations: for each episode, the recorded observation after each of these responses.
        states: for each episode, the recorded `StepResult.state` after each response; "" is not compared, and None
            compares no states at all.
        executed: called after each response with the index of its episode and the seconds of tools.

    Returns:
        For each episode, the state after its last response; or the divergence: observation or state differed from the
        record, or the episode ended. A diverged episode stops there.

    Raises:
        ValueError: if an episode has not as many observations, or states, as responses.
    """
    states = [[""] * len(said) for said in responses] if states is None else states
    scripts = [
        list(zip(said, seen, held, strict=True))
        for _, said, seen, held in zip(episodes, responses, observations, states, strict=True)
    ]
    reached: list[Episode | Divergence] = list(episodes)
    for turn in range(max(map(len, scripts), default=0)):
        live = [
            (i, state, *scripts[i][turn])
            for i, state in enumerate(reached)
            if not isinstance(state, Divergence) and turn < len(scripts[i])
        ]
        if not live:
            break
        results = environment.step([entry[1] for entry in live], [entry[2] for entry in live])
        for (i, _, response, observation, held), result in zip(live, results, strict=True):
            executed(i, result.seconds)
            why = _difference(result, observation, held)
            reached[i] = Divergence(turn + 1, response, why, bool(result.lost)) if why else result.episode
    return reached


def _difference(result: StepResult[Episode], observation: str, state: str) -> str:
    """The difference from the record, in words; empty if there is none."""
    if result.lost:
        return result.lost
    if result.success is not None:
        return "the episode ended"
    if result.observation != observation:
        lines = zip(result.observation.splitlines(), observation.splitlines(), strict=False)
        now, then = next((pair for pair in lines if pair[0] != pair[1]), ("more lines", "fewer, or the other way"))
        return f"it answered {now[:80]!r}, recorded was {then[:80]!r}"
    if state and result.state != state:
        return "it answered the same, but the files that it left are not the recorded ones"
    return ""
