"""The lab's repositories: a policy looks, edits and submits; real tests, run in the sandbox, decide."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from halfway.curriculum.environments.base import StepResult
from halfway.curriculum.lab.micro import repositories as micro
from halfway.curriculum.lab.micro.episodes import EDIT, LOOK, SUBMIT, TEST, UNKNOWN, num_failing, shown, told
from halfway.curriculum.lab.micro.repositories import MicroRepository
from halfway.curriculum.lab.micro.testing import MicroTests, Report
from halfway.curriculum.problems import Problem
from halfway.curriculum.rollouts import Unit
from halfway.curriculum.support.errors import UserError, require


@dataclass(frozen=True, slots=True)
class MicroEpisode:
    """An immutable episode: two with the same history are equal.

    Attributes:
        repository: the repository with the edits that were kept.
        turns: number of commands executed.
        over: whether the episode has ended.
    """

    problem_id: str
    repository: MicroRepository
    turns: int = 0
    over: bool = False


@dataclass(frozen=True, slots=True)
class _Step:
    """A command that needs tests to be run: of the repository as it is, as it would be, or with the hidden tests."""

    episode: MicroEpisode
    edited: MicroRepository | None = None
    submits: bool = False

    def files(self) -> list[dict[str, str]]:
        """What to run."""
        both = [self.episode.repository] + ([self.edited] if self.edited else [])
        return [micro.files(one, hidden=self.submits) for one in both]


@dataclass(frozen=True)
class MicroRepositories:
    """Each response is one command; see `halfway.curriculum.lab.micro.episodes` for the task.

    Attributes:
        max_turns: an episode that has not been submitted after this many commands has failed and is truncated.
        seconds: time limit on one run of the tests, which fails if it takes longer.
        keep: number of test reports that are kept, so that equal files are run once; 0 = every command runs its tests.
    """

    max_turns: int = 6
    seconds: float = 2.0
    keep: int = 200_000

    def __post_init__(self) -> None:
        require(self.max_turns >= 1, "micro_repository.max_turns", self.max_turns, "give at least 1")
        require(self.keep >= 0, "micro_repository.keep", self.keep, "give 0 (= none) or more")
        MicroTests(self.seconds)

    @property
    def unit(self) -> Unit:
        return "steps"

    @cached_property
    def tests(self) -> MicroTests:
        """What runs the tests."""
        return MicroTests(self.seconds, self.keep)

    def check(self) -> None:
        """Raise UserError if there is no sandbox on this machine."""
        MicroTests(self.seconds).run([{"test_m.py": "import unittest\n"}])

    def start(self, problems: Sequence[Problem]) -> list[MicroEpisode]:
        """One new episode per problem. Raises UserError if a problem does not belong to this task."""
        return [MicroEpisode(problem.id, _repository(problem)) for problem in problems]

    def step(self, episodes: Sequence[MicroEpisode], responses: Sequence[str]) -> list[StepResult[MicroEpisode]]:
        """Execute one command in each episode. Raises UserError if there is no sandbox on this machine."""
        steps = [self._read(episode, response) for episode, response in zip(episodes, responses, strict=True)]
        waiting = [step for step in steps if isinstance(step, _Step)]
        reports = iter(self.tests.run([files for step in waiting for files in step.files()]))
        return [self._finish(step, reports) if isinstance(step, _Step) else step for step in steps]

    def _read(self, episode: MicroEpisode, response: str) -> _Step | StepResult[MicroEpisode]:
        """What a command asks for, or its result if no tests have to be run for it."""
        assert not episode.over, f"the episode of problem {episode.problem_id!r} is over"
        after = replace(episode, turns=episode.turns + 1)
        if response == SUBMIT:
            return _Step(replace(after, over=True), submits=True)
        if after.turns == self.max_turns:
            return StepResult(replace(after, over=True), success=False, truncated=True)
        if response == TEST:
            return _Step(after)
        if match := LOOK.fullmatch(response):
            return StepResult(after, shown(after.repository, match.group(1)))
        match = EDIT.fullmatch(response)
        if match and int(match.group(2)) <= len(after.repository.lines(match.group(1))):
            name, line, text = match.groups()
            return _Step(after, after.repository.edited(name, int(line), text))
        return StepResult(after, UNKNOWN)

    def _finish(self, step: _Step, reports: Iterator[Report]) -> StepResult[MicroEpisode]:
        episode, now = step.episode, next(reports)
        if step.submits:
            cases = episode.repository.tests + episode.repository.hidden
            return StepResult(episode, success={case.name for case in cases} == set(now.passed))
        if step.edited is None:
            return StepResult(episode, told(episode.repository, now))
        then = next(reports)
        if num_failing(step.edited, then) < num_failing(episode.repository, now):
            return StepResult(replace(episode, repository=step.edited), "+" + told(step.edited, then))
        return StepResult(episode, "-" + told(step.edited, then))


def _repository(problem: Problem) -> MicroRepository:
    try:
        return micro.from_text(problem.answer)
    except ValueError as error:
        raise UserError(
            f"environment micro_repository: problem {problem.id!r} is of another task ({error}); use the source "
            "micro_repositories"
        ) from error
