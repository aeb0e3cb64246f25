"""Real repositories: is a replay equal to what was recorded, and what do episodes cost.

Source distributions come from `pip download --no-deps --no-binary :all: toolz tabulate ... -d FOLDER`.

    python -m halfway.experiments.benchmarks.repositories record FOLDER episodes.json     one episode of each project
    python -m halfway.experiments.benchmarks.repositories replay episodes.json 200        in a process of its own
    python -m halfway.experiments.benchmarks.repositories throughput episodes.json 1 8 32
    python -m halfway.experiments.benchmarks.repositories overlap                         no barrier between turns
"""

import hashlib
import json
import math
import os
import resource
import sys
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from halfway.curriculum.boxes.base import Box
from halfway.curriculum.environments.base import StepResult
from halfway.curriculum.environments.repository import Repository, RepositoryEpisode
from halfway.curriculum.groups import Request
from halfway.curriculum.problems import Problem
from halfway.curriculum.repositories.archives import RepositoryArchives
from halfway.curriculum.repositories.task import from_text
from halfway.curriculum.rollouts import Unit
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.atomic import write_json
from halfway.curriculum.support.errors import UserError
from halfway.trainers.engines.base import Completion
from halfway.trainers.rollouts.collector import Collector

ENVIRONMENT = Repository(max_turns=20, seconds=300, test_seconds=600)


def script(problem: Problem) -> list[str]:
    """What the scripted agent does: looks, runs tests, leaves files of all kinds, mends the fault, submits."""
    task = from_text(problem.answer, problem.id)
    path = str(problem.features["file"])
    return [
        "ls -la; find . -name '*.py' | head -20; git --version; date",
        f"grep -n 'def ' {path} | head -30; wc {path}; stat -c '%a %s %Y' {path}",
        f"python -m pytest -q -vv --durations=3 '{task.fail_to_pass[0]}' 2>&1 | tail -40",
        "printf 'import os, tempfile\\nprint(object(), {None, \"a\"}, os.getpid(), tempfile.mkdtemp())' > probe.py; "
        "python probe.py; python -c 'import probe'; (sleep 99 &)",
        f"chmod +x {path}; mv probe.py kept.py; mkdir -p notes/a; ln -s ../kept.py notes/a/link; echo note > /tmp/note",
        f"cat > /tmp/fault.diff <<'EOF'\n{task.bug}EOF\ngit apply -R /tmp/fault.diff && rm -r notes; ls -la",
        f"cat /tmp/note; sed -n 1,12p {path}; python -c 'import kept' 2>&1 | tail -3",
    ]


def response(command: str) -> str:
    return f"```bash\n{command}\n```\n"


def record(folder: Path, target: Path) -> None:
    """One task of each archive that has one, and the script's episode in it."""
    episodes = []
    for path in sorted(folder.glob("*.tar.gz")):
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        source = RepositoryArchives({str(path): sha256}, seconds=300)
        try:
            (problem,) = source.load(1, Stream(0)).problems
        except UserError as error:
            print(f"{path.name}: {error}", flush=True)
            continue
        (episode,) = ENVIRONMENT.start([problem])
        turns = []
        for command in script(problem):
            (result,) = ENVIRONMENT.step([episode], [response(command)])
            assert result.success is None and not result.lost, (path.name, command, result)
            episode = result.episode
            assert episode.saved is not None
            saved = b64encode(episode.saved).decode()
            turns.append({"command": command, "seen": result.observation, "state": result.state, "saved": saved})
        (last,) = ENVIRONMENT.step([episode], [response("submit")])
        facts = {"archive": path.name, "sha256": sha256, "id": problem.id, "prompt": problem.prompt}
        episodes.append({**facts, "answer": problem.answer, "turns": turns, "passed": last.success})
        print(f"{path.name}: {dict(problem.features)}, submitted: {last.success}", flush=True)
        write_json(target, episodes)


def replay(episodes: list[dict[str, Any]], times: int) -> None:
    """Replays from the beginning and from every cut in turn; observations, states and whole trees have to be equal."""
    diverged: Counter[str] = Counter()
    began = time.perf_counter()
    for number in range(times):
        recorded = episodes[number % len(episodes)]
        turns = recorded["turns"]
        cut = (number // len(episodes)) % len(turns)  # 0 = from the beginning; else a fork of the recorded state
        problem = Problem(recorded["id"], recorded["prompt"], recorded["answer"])
        (episode,) = ENVIRONMENT.start([problem])
        if cut:
            commands = tuple(turn["command"] for turn in turns[:cut])
            saved = b64decode(turns[cut - 1]["saved"])
            episode = replace(episode, saved=saved, commands=commands, turns=cut)
        for turn, earlier in enumerate(turns[cut:], start=cut):
            (result,) = ENVIRONMENT.step([episode], [response(earlier["command"])])
            saved = result.episode.saved or b""
            equal = (result.observation, result.state, saved) == (
                earlier["seen"],
                earlier["state"],
                b64decode(earlier["saved"]),
            )
            if not equal:
                diverged[f"{recorded['archive']} at step {turn + 1}: {earlier['command'][:50]!r}"] += 1
                break
            episode = result.episode
    seconds = time.perf_counter() - began
    print(f"{times} replays of {len(episodes)} projects in {seconds:.0f} s: {diverged.total()} divergences")
    for what, count in diverged.items():
        print(f"  {count} x {what}")


def throughput(episodes: list[dict[str, Any]], widths: list[int]) -> None:
    """Episodes and calls a second, the cost of opening a tree, and memory, with so many episodes at once."""
    recorded = episodes[0]
    task = from_text(recorded["answer"], recorded["id"])
    boxes = ENVIRONMENT.boxes

    def opening() -> tuple[float, float, float]:
        start = time.perf_counter()
        box: Box = boxes.open(task.base)
        opened = time.perf_counter()
        box.exec("true", 60)
        called = time.perf_counter()
        box.save()
        saved = time.perf_counter()
        box.close()
        return opened - start, called - opened, saved - called

    opening()
    parts = zip(*(opening() for _ in range(20)), strict=True)
    names = ("open", "call of `true`", "save")
    print(f"{recorded['archive']}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; median of 20:")
    print("; ".join(f"{name} {sorted(part)[10] * 1000:.0f} ms" for name, part in zip(names, parts, strict=True)))
    print("at once  episodes/s  calls/s  CPU s/episode  peak MiB/episode  KiB held/episode")
    for width in widths:
        many = [episodes[i % len(episodes)] for i in range(max(width, 4))]
        before, began = cpu_seconds(), time.perf_counter()
        with ThreadPoolExecutor(width) as pool:
            played = [pool.submit(one_episode, each) for each in many]
            peak = 0.0
            while not all(each.done() for each in played):
                peak = max(peak, sum(memory for _, _, memory in descendants().values()))
                time.sleep(0.2)
        assert all(each.result() is not None for each in played)
        seconds, spent = time.perf_counter() - began, cpu_seconds() - before
        calls = sum(len(each["turns"]) for each in many)
        held = sum(len(b64decode(each["turns"][-1]["saved"])) for each in many) / len(many) / 1024
        print(
            f"{width:7d}  {len(many) / seconds:10.2f}  {calls / seconds:7.2f}  {spent / len(many):13.2f}  "
            f"{peak / width / 2**20:16.0f}  {held:16.1f}",
            flush=True,
        )


def one_episode(recorded: dict[str, Any]) -> RepositoryEpisode:
    (episode,) = ENVIRONMENT.start([Problem(recorded["id"], recorded["prompt"], recorded["answer"])])
    for turn in recorded["turns"]:
        (result,) = ENVIRONMENT.step([episode], [response(turn["command"])])
        episode = result.episode
    return episode


@dataclass(frozen=True)
class Waiting:
    """Episodes of `max_turns` turns, whose tools take an exponential time that is the same in every run."""

    slow_tools: bool
    max_turns: int = 8
    unit: Unit = "steps"

    def start(self, problems: Sequence[Problem]) -> list[tuple[int, int]]:
        return [(i, 0) for i, _ in enumerate(problems)]

    def step(self, episodes: Sequence[tuple[int, int]], responses: Sequence[str]) -> list[StepResult[tuple[int, int]]]:
        with ThreadPoolExecutor(len(episodes)) as pool:
            list(pool.map(lambda episode: time.sleep(self.seconds(*episode)), episodes))
        over = [turn + 1 == self.max_turns for _, turn in episodes]
        return [
            StepResult((number, turn + 1), "" if last else "ok", True if last else None)
            for (number, turn), last in zip(episodes, over, strict=True)
        ]

    def seconds(self, number: int, turn: int) -> float:
        return -0.5 * math.log(1 - Stream(0).at(number, turn).uniform())


@dataclass
class Sleeping:
    """An engine that takes .2 s for whatever it is given."""

    serves_all: bool = False
    replicas: int = 1

    def generate(
        self, contexts: Sequence[Any], max_new_tokens: Sequence[int], seeds: Sequence[int], finished: Any = None
    ) -> list[Completion]:
        time.sleep(0.2)
        zeros_T = np.zeros(1, np.float32)
        completions = [Completion(np.ones(1, np.int32), zeros_T, zeros_T, "end", 0) for _ in contexts]
        for i, completion in enumerate(completions):
            finished(i, completion)
        return completions

    def sync(self, policy: Any, version: int) -> None:
        pass


class Letters:
    """A tokenizer of code points."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return list(map(ord, text))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return "".join(map(chr, token_ids))


def overlap() -> None:
    """64 attempts of 8 turns: generation .2 s a batch, tools .5 s on average."""
    environment = Waiting(False)
    alone = [sum(0.2 + environment.seconds(i, turn) for turn in range(8)) for i in range(64)]
    for slow in (False, True):
        collector = Collector(Sleeping(), Waiting(slow), Letters(), 100)
        began = time.perf_counter()
        collector.run([Request(Problem(str(i), "x", ""), 8) for i in range(8)], Stream(0))
        print(f"{'own tool' if slow else 'barrier'}: {time.perf_counter() - began:.1f} s")
    print(f"an attempt alone takes {sum(alone) / 64:.1f} s on average, the longest {max(alone):.1f} s")


def cpu_seconds() -> float:
    """Of this process and all that it has waited for, and of the workers of its boxes with theirs."""
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in own) + sum(cpu for _, cpu, _ in descendants().values())


def descendants() -> dict[int, tuple[int, float, float]]:
    """Every process that this one has started, directly or not: its parent, processor seconds, bytes of its own."""
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    facts: dict[int, tuple[int, float, float]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            sizes = Path(f"/proc/{name}/statm").read_text().split()
        except OSError:
            continue
        memory = (int(sizes[1]) - int(sizes[2])) * page if len(sizes) > 2 else 0
        facts[int(name)] = (int(fields[1]), sum(map(int, fields[11:15])) / tick, memory)
    found = {os.getpid()}
    for _ in range(8):
        found |= {pid for pid, (parent, _, _) in facts.items() if parent in found}
    return {pid: facts[pid] for pid in found - {os.getpid()} if pid in facts}


def main() -> None:
    match sys.argv[1:]:
        case ["record", folder, target]:
            record(Path(folder), Path(target))
        case ["replay", episodes, times]:
            replay(json.loads(Path(episodes).read_text()), int(times))
        case ["throughput", episodes, *widths]:
            throughput(json.loads(Path(episodes).read_text()), list(map(int, widths)))
        case ["overlap"]:
            overlap()
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
