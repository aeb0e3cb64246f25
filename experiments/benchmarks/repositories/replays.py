"""Replays episodes in another process and without any cache, and checks that everything is as recorded.

A replay begins with the untouched task, executes the commands before its cut, and compares each observation and state
with the recording, and at the cut also all saved bytes of the work tree and /tmp. Then a fork of the episode deletes
whatever it can. The replayed episode continues after that, and its remaining commands, its last tree and the judge's
verdict are compared as well.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from halfway.curriculum.environments.replay import Divergence, replay
from halfway.curriculum.repositories.environment import Repository, RepositoryEpisode
from halfway.experiments.benchmarks.repositories.page import Page
from halfway.experiments.benchmarks.repositories.recordings import Recording, Step, response
from halfway.experiments.report.tables.text import TextTable

OFTEN = 20
WRECK = "find . /tmp -mindepth 1 -delete; echo gone > gone"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of one replay.

    Attributes:
        cut: number of commands before the fork.
        calls: number of commands that were compared.
        found: the difference from the recording, in words; empty if there is none.
        judged: whether the judge's verdict was compared too.
    """

    project: str
    cut: int
    calls: int
    found: str = ""
    judged: bool = False


def replays(environment: Repository, recordings: Sequence[Recording], times: int, output: Path | None = None) -> Page:
    """Make `times` replays, taking every episode with every cut in turn, and return the page about them.

    Args:
        output: folder to which the page is written after every `OFTEN` replays; None = nowhere.
    """
    pairs = list(cuts(recordings))
    began, found = time.perf_counter(), list[Replayed]()
    for number in range(times):
        recording, cut = pairs[number % len(pairs)]
        # The judge runs a whole suite, so it is asked only once per episode.
        judged = cut == len(recording.steps) and number < len(pairs)
        found.append(replayed(environment, recording, cut, judged))
        if found[-1].found:
            print(f"{recording.project}, cut at {cut}: {found[-1].found}", flush=True)
        if output is not None and len(found) % OFTEN == 0:
            page(recordings, found, time.perf_counter() - began).write(output, "replays")
    return page(recordings, found, time.perf_counter() - began)


def cuts(recordings: Sequence[Recording]) -> Iterator[tuple[Recording, int]]:
    """Every pair of an episode and a cut; each round takes all episodes, at different cuts, before repeating any."""
    longest = max(len(each.steps) for each in recordings)
    for turn in range(longest):
        for i, each in enumerate(recordings):
            cut = (turn + i) % longest + 1
            if cut <= len(each.steps):
                yield each, cut


def replayed(environment: Repository, recording: Recording, cut: int, judged: bool = False) -> Replayed:
    """Replay a recording with a cut after `cut` commands; with `judged`, submit it as well."""
    (start,) = environment.start([recording.problem])
    before, after = recording.steps[:cut], recording.steps[cut:]
    reached, found = again(environment, start, before)
    if reached is not None:
        (wrecked,) = environment.step([reached], [response(WRECK)])
        assert not wrecked.lost and wrecked.success is None, wrecked
        if after:
            reached, found = again(environment, reached, after)
            found = found and f"going on from the cut, {found}"
    if judged and reached is not None:
        (last,) = environment.step([reached], [response("submit")])
        found = "" if last.success == recording.passed else f"the judge said {last.success} instead"
    return Replayed(recording.project, cut, len(recording.steps), found, judged)


def again(
    environment: Repository, episode: RepositoryEpisode, steps: Sequence[Step]
) -> tuple[RepositoryEpisode | None, str]:
    """Replay steps from an episode; returns the episode after them, or None and the first difference in words."""
    said, seen, states = ([step.response for step in steps], [s.seen for s in steps], [s.state for s in steps])
    (reached,) = replay(environment, [episode], [said], [seen], [states])
    if isinstance(reached, Divergence):
        command = " ".join(steps[reached.step - 1].command.split())[:60]
        return None, f"{'lost' if reached.lost else 'diverged'} at {command!r}: {reached.why}"
    if reached.saved != steps[-1].saved:
        return None, "the saved bytes differ"
    return reached, ""


def page(recordings: Sequence[Recording], found: Sequence[Replayed], seconds: float) -> Page:
    """The page about all replays so far, with one row per project."""
    rows = []
    for project in dict.fromkeys(each.project for each in recordings):
        mine = [each for each in found if each.project == project]
        tasks = sum(each.project == project for each in recordings)
        diverged = sum(bool(each.found) for each in mine)
        rows.append(
            (
                project,
                *map(str, (tasks, len(mine), len({each.cut for each in mine}), sum(each.calls for each in mine))),
                *map(str, (sum(each.judged for each in mine), diverged)),
            )
        )
    divergences = sum(bool(each.found) for each in found)
    totals = (len(recordings), len(found), "", sum(each.calls for each in found), sum(each.judged for each in found))
    rows.append(("all", *map(str, totals), str(divergences)))
    passed = sum(each.passed for each in recordings)
    table = TextTable(
        f"{len(found)} replays, {divergences} divergences",
        ("project", "episodes", "replays", "cuts", "commands", "judged", "divergences"),
        tuple(rows),
        f"{len(list(cuts(recordings)))} pairs of an episode and a cut in turn; {passed} of {len(recordings)} episodes "
        f"mend their fault. {seconds:.0f} seconds in all.",
    )
    counted = Counter(f"{each.project}, cut at {each.cut}: {each.found}" for each in found if each.found)
    notes = tuple(f"{count} x {what}" for what, count in counted.items())
    listed = [
        {"project": r.project, "sha256": r.sha256, "what": r.what, "problem": r.problem.id, "passed": r.passed}
        for r in recordings
    ]
    numbers = {"divergences": divergences, "episodes": listed, "replays": [asdict(each) for each in found]}
    return Page((table,), {**numbers, "seconds": round(seconds, 1)}, notes)
