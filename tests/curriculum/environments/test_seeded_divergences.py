"""Divergences made on purpose are found at their step; equal work is found equal, a killed process or not."""

from pathlib import Path

import pytest
from repositories import needs_boxes, said, small_problem

from halfway.curriculum.environments.replay import Divergence, replay
from halfway.curriculum.environments.repository import Repository, RepositoryEpisode
from halfway.curriculum.problems import Problem

pytestmark = needs_boxes
ENVIRONMENT = Repository(seconds=20, parallel=2)

SEEDED = {
    "the time": "date +%N",
    "the time in a file": "date +%N > notes",
    "random bytes": "head -c 9 /dev/urandom | od -x",
    "random bytes in a file": "head -c 9 /dev/urandom > notes",
    "a random number of Python": "python -c 'import random; print(random.random())' > /tmp/kept",
    "uptime": "cat /proc/uptime",
    "a background writer": "(while :; do date +%N >> notes; done) & until [ -s notes ]; do sleep 0.01; done",
}
CHANGED = {
    "a truncated file": "truncate -s 3 stats/means.py",
    "a removed folder": "rm -r stats",
    "a mode": "chmod 700 stats/means.py",
    "a link": "ln -sf /etc/hosts stats/link",
    "stale bytecode": "echo 'X = 1' > stats/other.py",
    "a file in /tmp": "echo > /tmp/other",
}
STEADY = "python -c 'print({None, object(), print}, hash(\"a\"))'; ls -la; touch x"


def recorded(problem: Problem, *commands: str) -> tuple[list[str], list[str], list[str]]:
    """Responses, observations and states of an episode."""
    (episode,) = ENVIRONMENT.start([problem])
    seen, states = [], []
    for command in commands:
        (result,) = ENVIRONMENT.step([episode], [said(command)])
        episode = result.episode
        seen.append(result.observation)
        states.append(result.state)
    return [said(command) for command in commands], seen, states


def replayed(problem: Problem, script: tuple[list[str], list[str], list[str]]) -> RepositoryEpisode | Divergence:
    responses, seen, states = script
    (found,) = replay(ENVIRONMENT, ENVIRONMENT.start([problem]), [responses], [seen], [states])
    return found


@pytest.mark.parametrize("what", sorted(SEEDED))
def test_what_cannot_be_repeated_is_found_at_its_step(tmp_path: Path, what: str) -> None:
    problem = small_problem(tmp_path)
    found = replayed(problem, recorded(problem, STEADY, SEEDED[what], STEADY))
    assert isinstance(found, Divergence) and found.step == 2 and not found.lost


@pytest.mark.parametrize("what", sorted(CHANGED))
def test_a_tree_other_than_recorded_is_found(tmp_path: Path, what: str) -> None:
    """The replayed command leaves another tree than the recorded one, and says the same."""
    problem = small_problem(tmp_path)
    responses, seen, states = recorded(problem, STEADY, "true", "true")
    responses[1] = said(CHANGED[what])
    found = replayed(problem, (responses, seen, states))
    assert isinstance(found, Divergence) and found.step == 2 and "files that it left" in found.why


def test_what_can_be_repeated_is_equal(tmp_path: Path) -> None:
    problem = small_problem(tmp_path)
    script = recorded(problem, STEADY, "python -m pytest -q 2>&1 | tail -9", "rm -r stats; mkdir stats; mktemp; date")
    found = replayed(problem, script)
    assert isinstance(found, RepositoryEpisode) and found.turns == 3
