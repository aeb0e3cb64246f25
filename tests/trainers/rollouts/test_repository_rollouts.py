"""Rollouts in a real repository: prefixes are replayed through execution, and go on as the original did."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from messages import says
from repositories import MEND, Agent, Letters, needs_boxes, small_problem

from halfway.curriculum import Group, Origin, Prefix, Request, Stream, UserError, cut
from halfway.curriculum.repositories.environment import Repository
from halfway.trainers.rollouts.attempts import Replays
from halfway.trainers.rollouts.collector import Collector

pytestmark = needs_boxes


def collector(*script: str) -> Collector:
    environment = Repository(max_turns=8, seconds=20, test_seconds=60, parallel=2)
    return Collector(Agent(script), environment, Letters(), 10_000, replays=Replays(1.0))


def contents(group: Group) -> list[Any]:
    return [
        ([(t.tokens_T.tolist(), t.num_replayed, t.observation, t.state) for t in rollout.turns], rollout.success)
        for rollout in group.rollouts
    ]


def child(request: Request, parent: Group, length: int) -> Request:
    longest = max(parent.rollouts, key=lambda rollout: len(rollout.turns))
    prefix = Prefix(cut(longest, length, "steps"), length, "steps", parent.num_passed, parent.size, longest.success)
    return Request(request.problem, 3, Origin.PREFIX, prefix)


WORK = ("ls; cat stats/means.py", "python -m pytest -q 2>&1 | tail -3; echo > /tmp/note", MEND, "submit")


def test_prefixes_of_a_repository_are_replayed_and_continued(tmp_path: Path) -> None:
    request = Request(small_problem(tmp_path), 6)
    (parent,) = collector(*WORK).run([request], Stream(0))
    assert parent.size == 6 and 0 < parent.num_passed < 6 and parent.dropped == {}
    (again,) = collector(*WORK).run([request], Stream(0))
    assert contents(parent) == contents(again)  # what a run does again after it was killed in the middle
    for length in (1, 3):
        rolling = collector(*WORK)
        (group,) = rolling.run([child(request, parent, length)], Stream(1))
        assert (group.size, group.request.origin, rolling.replays.diverged) == (3, Origin.PREFIX, 0)
        longest = max(parent.rollouts, key=lambda rollout: len(rollout.turns))
        for rollout in group.rollouts:
            pairs = zip(rollout.turns[:length], longest.turns, strict=False)
            assert all((a.observation, a.state, a.tool_seconds) == (b.observation, b.state, 0.0) for a, b in pairs)
            assert [turn.num_replayed > 0 for turn in rollout.turns].count(True) == length
            if len(rollout.turns) == 4:  # it went on as the script does
                assert rollout.success and rollout.turns[2].state == longest.turns[2].state


def test_a_missing_bubblewrap_ends_the_run_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not a lost box, which would only be counted."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=says("bubblewrap", "install")) as error:
        collector(*WORK).run([Request(small_problem(tmp_path), 2)], Stream(0))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("command", ["date +%N", "head -c 9 /dev/urandom > noise"])
def test_a_prefix_that_diverges_is_rolled_out_from_the_beginning(tmp_path: Path, command: str) -> None:
    request = Request(small_problem(tmp_path), 6)  # so that one of them reaches the last command
    (parent,) = collector("ls", command, MEND, "submit").run([request], Stream(0))
    rolling = collector("ls", command, MEND, "submit")
    (group,) = rolling.run([child(request, parent, 3)], Stream(1))
    assert (group.size, group.request.origin, group.request.prefix) == (3, Origin.FRESH, None)
    assert group.request.decisions[-1].action.startswith("diverged at step 2: ")
    assert rolling.replays.diverged == 1 and all(not rollout.num_replayed for rollout in group.rollouts)
