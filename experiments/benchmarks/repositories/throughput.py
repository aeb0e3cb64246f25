"""Measures what work trees and episodes cost in time and memory, by the number of episodes at once."""

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from halfway.curriculum.boxes.trees import unpack
from halfway.curriculum.repositories.environment import Repository, RepositoryEpisode
from halfway.curriculum.repositories.task import RepositoryTask, from_text
from halfway.experiments.benchmarks.repositories.page import Page
from halfway.experiments.benchmarks.repositories.recordings import Recording
from halfway.experiments.benchmarks.repositories.usage import cpu_seconds, descendants
from halfway.experiments.report.tables.text import TextTable

OPENINGS = 11
LEAST = 8
MIB, KIB = 2**20, 2**10


@dataclass(frozen=True, slots=True)
class Opening:
    """Median seconds of opening, using, saving and restoring a project's work tree.

    Attributes:
        files: number of the project's files.
        call: seconds of the command `true`.
    """

    project: str
    files: int
    open: float
    call: float
    save: float
    restore: float


@dataclass(frozen=True, slots=True)
class Width:
    """The cost of running `at_once` episodes at a time, with the recorded commands but without the judge.

    Attributes:
        seconds: wall-clock seconds of all episodes.
        cpu: processor seconds of this process and everything that it started.
        peak: largest total of these processes' private memory in bytes, sampled five times a second.
        held: bytes of the saved state of all episodes at their end.
    """

    at_once: int
    episodes: int
    calls: int
    seconds: float
    cpu: float
    peak: float
    held: int

    @property
    def row(self) -> tuple[str, ...]:
        return (
            str(self.at_once),
            str(self.episodes),
            f"{self.episodes / self.seconds:.2f}",
            f"{self.calls / self.seconds:.1f}",
            f"{self.cpu / self.episodes:.2f}",
            f"{self.cpu / self.calls * 1000:.0f}",
            f"{self.peak / self.at_once / MIB:.0f}",
            f"{self.held / self.episodes / KIB:.1f}",
        )


def throughput(environment: Repository, recordings: Sequence[Recording], widths: Sequence[int]) -> Page:
    firsts = {each.project: each for each in reversed(recordings)}
    tasks = {name: from_text(each.problem.answer, each.problem.id) for name, each in sorted(firsts.items())}
    openings = [opening(environment, name, task) for name, task in tasks.items()]
    found = [at_once(environment, recordings, width) for width in widths]
    trees = TextTable(
        "A work tree, milliseconds",
        ("project", "files", "open", "`true`", "save", "restore"),
        tuple(
            (o.project, str(o.files), *(f"{s * 1000:.1f}" for s in (o.open, o.call, o.save, o.restore)))
            for o in openings
        ),
        f"Wall-clock time, medians of {OPENINGS}, one after the other. Restored is the tree with its fault.",
    )
    columns = ("at once", "episodes", "episodes/s", "calls/s", "CPU s per episode", "CPU ms per call")
    episodes = TextTable(
        "Episodes at once",
        (*columns, "peak MiB per episode", "KiB held per episode"),
        tuple(each.row for each in found),
        "The recorded commands, without submitting. CPU and peak count every process of the boxes, workers included; "
        "held is the saved state that an episode leaves with the trainer, compressed.",
    )
    return Page((trees, episodes), {"openings": [*map(asdict, openings)], "at_once": [*map(asdict, found)]})


def opening(environment: Repository, project: str, task: RepositoryTask) -> Opening:
    saved = changed(environment, task)
    rows = [life(environment, task, saved) for _ in range(OPENINGS + 1)][1:]  # the first copies the base
    files = sum(path.is_file() for path in Path(task.base.tree).rglob("*"))
    return Opening(project, files, *(statistics.median(column) for column in zip(*rows, strict=True)))


def changed(environment: Repository, task: RepositoryTask) -> bytes:
    """The saved state of a work tree with the task's fault."""
    box = environment.boxes.open(task.base)
    try:
        box.exec("git apply --recount --whitespace=nowarn -", 60, task.bug.encode())
        return box.save()
    finally:
        box.close()


def life(environment: Repository, task: RepositoryTask, saved: bytes) -> tuple[float, ...]:
    """Seconds of opening a work tree, of a call, of saving and of restoring it."""
    times = [time.perf_counter()]
    box = environment.boxes.open(task.base)
    try:
        times.append(time.perf_counter())
        box.exec("true", 60)
        times.append(time.perf_counter())
        box.save()
        times.append(time.perf_counter())
        box.restore(saved)
        times.append(time.perf_counter())
    finally:
        box.close()
    return tuple(later - earlier for earlier, later in pairwise(times))


def at_once(environment: Repository, recordings: Sequence[Recording], width: int) -> Width:
    """Play `width` episodes at once, at least `LEAST` in all, from the recordings in turn."""
    many = [recordings[i % len(recordings)] for i in range(max(width, LEAST))]
    before, began, peak = cpu_seconds(), time.perf_counter(), 0.0
    with ThreadPoolExecutor(width) as pool:
        played = [pool.submit(play, environment, each) for each in many]
        while not all(each.done() for each in played):
            peak = max(peak, sum(memory for _, _, memory in descendants().values()))
            time.sleep(0.2)
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - before
    ends = [each.result().saved or b"" for each in played]
    assert all(unpack(end).clock > 0 for end in ends)
    calls, held = sum(len(each.steps) for each in many), sum(map(len, ends))
    return Width(width, len(many), calls, seconds, cpu, peak, held)


def play(environment: Repository, recording: Recording) -> RepositoryEpisode:
    (episode,) = environment.start([recording.problem])
    for step in recording.steps:
        (result,) = environment.step([episode], [step.response])
        assert not result.lost and result.success is None, result
        episode = result.episode
    return episode
