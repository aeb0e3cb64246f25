"""Repositories: a policy works in a shell, turn by turn, until it submits; the tests of the repository decide."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any

from halfway.curriculum import Problem, require
from halfway.curriculum.boxes import make_boxes
from halfway.curriculum.boxes.box import Box, BoxFullError, BoxLostError, BoxMaker, Executed
from halfway.curriculum.boxes.determinism import normalise
from halfway.curriculum.boxes.trees import digest
from halfway.curriculum.environments.contract import Environment, StepResult
from halfway.curriculum.repositories.checking import check_boxes
from halfway.curriculum.repositories.judge import begin, judge
from halfway.curriculum.repositories.task import RepositoryTask, from_text
from halfway.curriculum.support.blocks import find_fenced

SUBMIT = "submit"
NO_BLOCK = "[give exactly one block of ```bash with one command, or with submit]\n"
TRIES = 2
"""Tries of a step whose box is lost; safe, since the state before the step is a value."""


@dataclass(frozen=True, slots=True)
class RepositoryEpisode:
    """An immutable episode: equal histories make equal episodes.

    Attributes:
        saved: all changes against the base, including the task's fault; None before the first command.
        commands: the commands executed so far.
        turns: number of responses so far.
        tool_seconds: seconds of tools; ignored in comparisons.
        over: whether the episode has ended.
    """

    problem_id: str
    task: RepositoryTask
    saved: bytes | None = None
    commands: tuple[str, ...] = ()
    turns: int = 0
    tool_seconds: float = field(default=0.0, compare=False)
    over: bool = False


@dataclass(frozen=True)
class Repository(Environment[RepositoryEpisode]):
    """Each response is one shell command, or the word submit, in a block of ```bash.

    Every command starts in a fresh box from the state after the previous command, so its result depends on nothing
    else. If boxes cannot be forked, a box lives as long as its episode, and a state that is used a second time is
    rebuilt from its commands.

    Attributes:
        max_turns: maximum number of responses of an episode; one that has not been submitted by then fails and is
            truncated.
        seconds: time limit on one command.
        test_seconds: time limit on the judge's tests.
        tool_seconds: time limit on all commands of an episode together, after which it fails and is truncated; 0 = no
            limit. It is wall-clock time, so an episode may end at another turn when it is run again.
        observation_chars: maximum number of characters of an output; a longer one is cut in the middle.
        parallel: number of boxes open at once; 0 = one per processor.
        box: `{name: options}` of registered boxes, or the name alone.
    """

    max_turns: int = 40
    seconds: float = 60.0
    test_seconds: float = 300.0
    tool_seconds: float = 0.0
    observation_chars: int = 8000
    parallel: int = 0
    box: dict[str, Any] = field(default_factory=lambda: {"bubblewrap": {}})

    unit = "steps"
    slow_tools = True  # attempts must not wait for each other's commands

    def __post_init__(self) -> None:
        require(self.max_turns >= 1, "repository.max_turns", self.max_turns, "give at least 1")
        for name in ("seconds", "test_seconds"):
            value = getattr(self, name)
            require(0 < value <= 36_000, f"repository.{name}", value, "give a number above 0, at most 36000")
        require(self.tool_seconds >= 0, "repository.tool_seconds", self.tool_seconds, "give 0 (= no limit) or more")
        chars = self.observation_chars
        require(chars >= 200, "repository.observation_chars", chars, "give at least 200")
        require(self.parallel >= 0, "repository.parallel", self.parallel, "give 0 (= one per processor) or more")
        assert self.boxes  # refuses unknown options

    @cached_property
    def boxes(self) -> BoxMaker:
        """The box maker that `box` names, with its options."""
        return make_boxes(self.box, "repository.box")

    @property
    def forkable(self) -> bool:
        return self.boxes.forkable

    def check(self) -> None:
        """Raise UserError if this machine cannot run the boxes, or they misjudge a known answer."""
        self.boxes.check()
        check_boxes(self.boxes, self.test_seconds)

    def start(self, problems: Sequence[Problem]) -> list[RepositoryEpisode]:
        """Start one episode per problem. Raises UserError for problems of another kind, or for other boxes."""
        tasks = {problem.answer: from_text(problem.answer, problem.id) for problem in problems}
        for base in {task.base for task in tasks.values()}:
            self.boxes.require(base)
        return [RepositoryEpisode(problem.id, tasks[problem.answer]) for problem in problems]

    def step(
        self, episodes: Sequence[RepositoryEpisode], responses: Sequence[str]
    ) -> list[StepResult[RepositoryEpisode]]:
        """Execute one response in each episode.

        Raises:
            UserError: if this machine cannot run boxes, or a task's fault does not apply to its base.
        """
        if len(episodes) == 1:
            return [self._step(episodes[0], responses[0])]
        return list(self._pool.map(self._step, episodes, responses))

    def close(self) -> None:
        """Close the boxes of unfinished episodes."""
        self._live.close()

    def copy_for_collection(self) -> "Repository":
        """Copy the environment for an overlapping collection; both share the limit on parallel commands."""
        copy = replace(self)
        copy.__dict__.update(boxes=self.boxes, _pool=self._pool)
        return copy

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.parallel or os.cpu_count() or 1, "boxes")

    @cached_property
    def _live(self) -> "_LiveBoxes":
        return _LiveBoxes()

    def _step(self, episode: RepositoryEpisode, response: str) -> StepResult[RepositoryEpisode]:
        assert not episode.over, f"the episode of problem {episode.problem_id!r} is over"
        for left in reversed(range(TRIES)):
            try:
                return self._try(episode, response)
            except BoxLostError as error:
                lost = str(error)
                if not left:
                    break
        return StepResult(replace(episode, over=True), lost=lost)

    def _try(self, episode: RepositoryEpisode, response: str) -> StepResult[RepositoryEpisode]:
        after = replace(episode, turns=episode.turns + 1)
        blocks = [content for _, content in find_fenced(response, "bash", "sh")]
        if len(blocks) == 1 and blocks[0].strip() == SUBMIT:
            return self._judge(after)
        if after.turns == self.max_turns:
            return StepResult(replace(after, over=True), success=False, truncated=True)
        if len(blocks) != 1 or not blocks[0].strip():
            return StepResult(after, NO_BLOCK, state=digest(after.saved or b""))
        try:
            after, done = self._run(after, blocks[0])
        except BoxFullError:
            return StepResult(replace(after, over=True), success=False, truncated=True)
        spent = after.tool_seconds
        if self.tool_seconds and spent > self.tool_seconds:
            return StepResult(replace(after, over=True), success=False, truncated=True, seconds=done.seconds)
        state = digest(after.saved) if after.saved is not None else ""
        return StepResult(after, self._observation(done), state=state, seconds=done.seconds)

    def _observation(self, done: Executed) -> str:
        head = f"[exit {done.status}]" if done.ended == "exit" else f"[ended by the limit on {done.ended}]"
        return f"{head}\n{shorten(normalise(done.output), self.observation_chars).rstrip()}\n"

    def _run(self, episode: RepositoryEpisode, command: str) -> tuple[RepositoryEpisode, Executed]:
        """Run a command in an episode. Raises BoxFullError if it leaves too many files."""
        commands = (*episode.commands, command)
        with ExitStack() as stack:
            box = self._box(episode)
            stack.callback(box.close)
            done = box.exec(command, self.seconds)
            spent = episode.tool_seconds + done.seconds
            after = replace(episode, commands=commands, tool_seconds=spent)
            if self.forkable:
                return replace(after, saved=box.save()), done
            self._live.put((episode.problem_id, commands), box)
            stack.pop_all()  # it stays open
            return after, done

    def _box(self, episode: RepositoryEpisode) -> Box:
        """Open a box in the state of the episode."""
        box = self._live.take((episode.problem_id, episode.commands)) if not self.forkable else None
        if box is not None:
            return box
        box = self.boxes.open(episode.task.base)
        try:
            if episode.saved is not None:
                box.restore(episode.saved)
                return box
            begin(box, episode.task, self.test_seconds)
            for command in episode.commands:
                box.exec(command, self.seconds)
        except BaseException:
            box.close()
            raise
        return box

    def _judge(self, episode: RepositoryEpisode) -> StepResult[RepositoryEpisode]:
        saved = episode.saved
        if saved is None:
            with closing(self._box(episode)) as box:
                saved = box.save()
        verdict = judge(self.boxes, episode.task, saved, self.test_seconds)
        return StepResult(replace(episode, over=True), success=verdict.passed, seconds=verdict.seconds)


def shorten(text: str, limit: int) -> str:
    """Cut the middle of a text that is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


class _LiveBoxes:
    """Open boxes by their commands so far, for boxes that cannot be forked."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: dict[tuple[str, tuple[str, ...]], list[Box]] = {}

    def put(self, history: tuple[str, tuple[str, ...]], box: Box) -> None:
        with self._lock:
            self._open.setdefault(history, []).append(box)

    def take(self, history: tuple[str, tuple[str, ...]]) -> Box | None:
        with self._lock:
            waiting = self._open.get(history)
            return waiting.pop() if waiting else None

    def close(self) -> None:
        with self._lock:
            boxes, self._open = [box for waiting in self._open.values() for box in waiting], {}
        for box in boxes:
            box.close()
