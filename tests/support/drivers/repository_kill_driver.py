"""Trains on repositories with a scripted agent: once undisturbed, and once killed amid the episodes of the third step.

A program, whose argument is the folder to work in. Every run is a forked child. The killed run dies of SIGKILL while
commands are under way, and is then started again in its folder. Learner and agent need no model: the learner's weights
are a hash of everything it has trained on.
"""

import hashlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loop_harness import training
from repositories import FAIL, MEND, Agent, Letters, small_task

from halfway.controllers.prefix_sampling import PrefixSampling
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, ProblemSet, Stream, chain
from halfway.curriculum.boxes.bubblewrap import BubblewrapBox
from halfway.curriculum.repositories.environment import Repository
from halfway.curriculum.repositories.task import RepositoryTask, to_problem
from halfway.trainers.loop.checkpoint import Checkpoints
from halfway.trainers.loop.loop_options import Budget, CheckpointOptions, FillOptions
from halfway.trainers.rollouts.attempts import Replays
from halfway.trainers.rollouts.collector import Collector

# Stands in for pytest, which would take most of the time. The judge expects its canary to fail, and a report per test.
TESTS = """\
grep -q 'result += v' stats/means.py && means=PASSED || means=FAILED
for file in {tests}; do case $file in
*test_means.py) echo $means $file::test_total ;;
*) echo FAILED $file::$(grep -o 'test_[0-9a-f]*' $file | head -1) ;;
esac; done"""


@dataclass
class HashingLearner:
    weights: str = ""
    version: int = 0

    @property
    def policy_version(self) -> int:
        return self.version

    def update(self, groups: Sequence[Group], stream: Stream, spent: float = 0.0) -> dict[str, float]:
        for group in groups:
            for rollout in group.rollouts:
                turns = [(t.tokens_T.tolist(), t.num_replayed, t.observation, t.state) for t in rollout.turns]
                seen = f"{self.weights} {group.request.problem.id} {turns} {rollout.success}"
                self.weights = hashlib.sha256(seen.encode()).hexdigest()
        self.version += bool(groups)
        return {}

    def save(self, folder: Path) -> None:
        (folder / "weights.txt").write_text(f"{self.version} {self.weights}")

    def load(self, folder: Path) -> None:
        version, _, self.weights = (folder / "weights.txt").read_text().partition(" ")
        self.version = int(version)


def train(folder: Path, base: RepositoryTask, die_at: int) -> None:
    """Train for three steps. The file `commands` in the folder gets the number of commands run before each step."""
    problems = ProblemSet([to_problem(base, f"Sums are negative, as {i} people say.", "test", {}) for i in range(6)])
    environment = Repository(max_turns=6, seconds=60, test_seconds=60, parallel=2)
    agent = Agent(("ls; echo > /tmp/note", MEND, "submit"))
    learner, commands = HashingLearner(), [0]
    run = BubblewrapBox.exec

    def counted(*args: Any, **kwargs: Any) -> Any:
        commands[0] += 1
        if commands[0] == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(*args, **kwargs)

    def sync() -> None:
        with (folder / "commands").open("a") as file:
            file.write(f"{commands[0]}\n")

    BubblewrapBox.exec = counted  # type: ignore[method-assign]
    training(
        folder,
        FillOptions(groups=3),
        Budget(steps=3),
        problems=problems,
        controller=chain(("prefix_sampling", PrefixSampling()), ("uniform", Uniform())),
        rollouts=Collector(agent, environment, Letters(), 10_000, replays=Replays(0.0)),
        learner=learner,
        sync=sync,
        checkpoints=Checkpoints(folder / "checkpoints", CheckpointOptions(every=2)),
    ).train()


def child(folder: Path, base: RepositoryTask, die_at: int = 0) -> int:
    """Train in a forked child, and return its wait status."""
    folder.mkdir(exist_ok=True)
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        train(folder, base, die_at)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main(folder: Path) -> None:
    base = replace(small_task(folder / "base"), fail_to_pass=FAIL[:1], pass_to_pass=(), command=TESTS)
    assert child(folder / "peace", base) == 0
    after = [int(line) for line in (folder / "peace" / "commands").read_text().split()]
    assert len(after) == 3
    status = child(folder / "killed", base, die_at=(after[1] + after[2]) // 2)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    assert len((folder / "killed" / "commands").read_text().split()) == 2, "it died in the third step"
    assert child(folder / "killed", base) == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
