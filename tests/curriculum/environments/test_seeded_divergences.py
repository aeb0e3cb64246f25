"""Divergences made on purpose are found at their step; equal work is found equal, a killed process or not."""

from dataclasses import replace as replaced
from pathlib import Path

import numpy as np
import pytest
from repositories import END, Agent, Letters, needs_boxes, said, small_problem

from halfway.curriculum import Origin, Prefix, Problem, Request, Stream, cut
from halfway.curriculum.environments.replay import Divergence, replay
from halfway.curriculum.repositories.environment import Repository, RepositoryEpisode
from halfway.trainers.rollouts.attempts import Replays
from halfway.trainers.rollouts.collector import Collector

pytestmark = needs_boxes
ENVIRONMENT = Repository(seconds=20, parallel=2)

RANDOM_ADDRESSES = (
    "import ctypes, os; ctypes.CDLL(None).personality(0); "
    "os.execvp('python', ['python', '-c', 'import ctypes; puts = ctypes.CDLL(None).puts; "
    "print({None: hash(None)}, ctypes.cast(puts, ctypes.c_void_p).value)'])"
)
"""A set has its order by hashes, and those of most objects are addresses; before Python 3.12 None's is one, too."""

COMPILE = "import py_compile as p; p.compile('%s', '%s', invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)"
SEEDED = {
    "the time": "date +%N",
    "the time in a file": "date +%N > notes",
    "random bytes": "head -c 9 /dev/urandom | od -x",
    "random bytes in a file": "head -c 9 /dev/urandom > notes",
    "a random number of Python": "python -c 'import random; print(random.random())' > /tmp/kept",
    "a set of None": f'python -c "{RANDOM_ADDRESSES}"',
    "stale bytecode that is run": (
        f'echo "print($(date +%N))" > m.py; python -c "{COMPILE % ("m.py", "n.pyc")}"; '
        "echo 'print(0)' > m.py; python n.pyc; rm m.py n.pyc"
    ),
    "uptime": "cat /proc/uptime",
    "a background writer": "(while :; do date +%N >> notes; done) & until [ -s notes ]; do sleep 0.01; done",
}
CHANGED = {
    "a truncated file": "truncate -s 3 stats/means.py",
    "a removed folder": "rm -r stats",
    "a mode": "chmod 700 stats/means.py",
    "a link": "ln -sf /etc/hosts stats/link",
    "a file": "echo 'X = 1' > stats/other.py",
    "stale bytecode": f'python -c "{COMPILE % ("stats/means.py", "stats/means.pyc")}"',
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
def test_output_that_cannot_be_repeated_is_found_at_its_step(tmp_path: Path, what: str) -> None:
    problem = small_problem(tmp_path)
    found = replayed(problem, recorded(problem, STEADY, SEEDED[what], STEADY))
    assert isinstance(found, Divergence) and found.step == 2 and not found.lost


@pytest.mark.parametrize("what", sorted(CHANGED))
def test_a_tree_other_than_recorded_is_found(tmp_path: Path, what: str) -> None:
    """The replayed command leaves another tree than the recorded one, with the same output."""
    problem = small_problem(tmp_path)
    responses, seen, states = recorded(problem, STEADY, "true", "true")
    responses[1] = said(CHANGED[what])
    found = replayed(problem, (responses, seen, states))
    assert isinstance(found, Divergence) and found.step == 2 and "files that it left" in found.why


def test_repeatable_commands_replay_equally(tmp_path: Path) -> None:
    problem = small_problem(tmp_path)
    script = recorded(problem, STEADY, "python -m pytest -q 2>&1 | tail -9", "rm -r stats; mkdir stats; mktemp; date")
    found = replayed(problem, script)
    assert isinstance(found, RepositoryEpisode) and found.turns == 3


COUNTED = {
    **{what: SEEDED[what] for what in ("the time", "random bytes", "a background writer", "a set of None")},
    **{what: CHANGED[what] for what in ("a truncated file", "stale bytecode", "a removed folder", "a mode", "a link")},
}


@pytest.mark.parametrize("what", sorted(COUNTED))
def test_each_is_counted_and_its_request_rolled_out_afresh(tmp_path: Path, what: str) -> None:
    """To change the tree alone, the recorded response is replaced by one with the same output."""
    environment = Repository(max_turns=4, seconds=20, parallel=2)
    script = ("ls", SEEDED.get(what, "true"), "true", "true")
    rolling = Collector(Agent(script, submits=False), environment, Letters(), 10_000, replays=Replays(1.0))
    request = Request(small_problem(tmp_path), 1)
    (parent,) = rolling.run([request], Stream(0))
    turns = list(cut(parent.rollouts[0], 3, "steps"))
    if what in CHANGED:
        tokens_T = np.asarray([*map(ord, said(CHANGED[what])), END], np.int32)
        zeros_T = np.zeros(len(tokens_T), np.float32)
        turns[1] = replaced(
            turns[1], tokens_T=tokens_T, logprobs_T=zeros_T, entropies_T=zeros_T, num_replayed=len(tokens_T)
        )
    prefix = Prefix(tuple(turns), 3, "steps", parent.num_passed, parent.size, False)
    (child,) = rolling.run([Request(request.problem, 1, Origin.PREFIX, prefix)], Stream(1))
    assert (child.size, child.request.origin, rolling.replays.diverged) == (1, Origin.FRESH, 1)
    assert child.request.decisions[-1].action.startswith("diverged at step 2: ")
