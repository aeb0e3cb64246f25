"""Recorded episodes are replayed at their cuts; what is not as recorded is found; what episodes cost is counted."""

from dataclasses import replace
from pathlib import Path

import pytest
from repositories import needs_boxes, small_task

from halfway.curriculum.repositories.environment import Repository
from halfway.curriculum.repositories.task import to_problem
from halfway.curriculum.support.errors import UserError
from halfway.experiments.benchmarks.repositories.recordings import Recording, play, read, record, write
from halfway.experiments.benchmarks.repositories.replays import cuts, replayed, replays
from halfway.experiments.benchmarks.repositories.throughput import at_once, changed, life

pytestmark = needs_boxes
ENVIRONMENT = Repository(seconds=60, test_seconds=60, parallel=2)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    task = small_task(tmp_path_factory.mktemp("repository"))
    problem = to_problem(task, "Sums are negative.", "test", {"kind": "operator", "file": "stats/means.py"})
    return play(ENVIRONMENT, "means", "0", problem)


def test_an_episode_is_recorded_and_replayed(recording: Recording, tmp_path: Path) -> None:
    assert recording.passed and len(recording.steps) == 7 and "test_total" in recording.steps[2].seen
    write(tmp_path / "episodes.json", [recording])
    (kept,) = read(tmp_path / "episodes.json")
    assert kept.steps == recording.steps
    page = replays(ENVIRONMENT, [kept], 2)
    assert page.numbers["divergences"] == 0 and page.tables[0].rows[0] == ("means", "1", "2", "2", "14", "0", "0")
    assert sorted(cut for _, cut in cuts([kept, kept])) == sorted([*range(1, 8)] * 2)
    page.tell(tmp_path / "results", "replays")
    assert "2 replays, 0 divergences" in (tmp_path / "results" / "replays.md").read_text()


def test_what_is_not_as_recorded_is_found(recording: Recording) -> None:
    *before, last = recording.steps
    for step, said in (
        (replace(last, seen="other"), "going on from the cut, diverged at"),
        (replace(last, state="other"), "the files that it left are not the recorded ones"),
        (replace(last, saved=b"other"), "going on from the cut, the saved bytes differ"),
    ):
        found = replayed(ENVIRONMENT, replace(recording, steps=(*before, step)), 6).found
        assert said in found, found
    short = replace(recording, steps=recording.steps[:1], passed=True)
    assert replayed(ENVIRONMENT, short, 1, judged=True).found == "the judge said False instead"


def test_costs_are_counted(recording: Recording) -> None:
    found = at_once(ENVIRONMENT, [replace(recording, steps=recording.steps[:2])], 2)
    assert (found.at_once, found.episodes, found.calls) == (2, 8, 16)
    assert found.cpu > 0 and found.peak > 2**20 and found.held > 0 and len(found.row) == 8
    task = small_task(Path(recording.problem.answer.partition('"tree": "')[2].partition('"')[0]))
    assert all(seconds > 0 for seconds in life(ENVIRONMENT, task, changed(ENVIRONMENT, task)))


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no \.tar\.gz in it has a task"):
        record(ENVIRONMENT, tmp_path, tmp_path / "episodes.json", 1)
    with pytest.raises(UserError, match=r"no episodes .*; make them with `record`"):
        read(tmp_path / "episodes.json")
