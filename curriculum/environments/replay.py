"""Prefix replay is replay through execution: saved responses pass through the environment like fresh responses."""

from collections.abc import Sequence

from halfway.curriculum.environments.base import Environment, Episode


def replay(
    environment: Environment[Episode],
    episodes: Sequence[Episode],
    responses: Sequence[Sequence[str]],
    observations: Sequence[Sequence[str]],
) -> list[Episode | None]:
    """Execute saved responses, turn by turn, and compare what the environment answers with what was recorded.

    No model is called. Episodes go through `environment.step` in batches, one batch a turn.

    Args:
        episodes: where each replay starts.
        responses: for each episode, the saved responses of its first turns, possibly none.
        observations: for each episode, the recorded observation after each of these responses.

    Returns:
        For each episode, the state after its last response; None if it diverged, that is, if an observation was not
        the recorded one or the episode ended. A diverged episode is not stepped further.

    Raises:
        ValueError: if an episode has not as many observations as responses.
    """
    scripts = [
        list(zip(said, seen, strict=True)) for _, said, seen in zip(episodes, responses, observations, strict=True)
    ]
    states: list[Episode | None] = list(episodes)
    for turn in range(max(map(len, scripts), default=0)):
        live = [
            (i, state, *scripts[i][turn])
            for i, state in enumerate(states)
            if state is not None and turn < len(scripts[i])
        ]
        if not live:
            break
        results = environment.step([state for _, state, _, _ in live], [response for _, _, response, _ in live])
        for (i, _, _, recorded), result in zip(live, results, strict=True):
            same = result.success is None and result.observation == recorded
            states[i] = result.episode if same else None
    return states
