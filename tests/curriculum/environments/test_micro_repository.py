"""Mending micro-repositories: episodes worked by hand, replay through execution, and the teacher's episodes."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandboxes import needs_sandbox

from halfway.curriculum.environments import ENVIRONMENTS
from halfway.curriculum.environments.base import StepResult
from halfway.curriculum.environments.micro_repository import MicroEpisode, MicroRepositories
from halfway.curriculum.environments.replay import Divergence, replay
from halfway.curriculum.lab.micro import episodes as micro_episodes
from halfway.curriculum.lab.micro import repositories as micro
from halfway.curriculum.lab.micro.episodes import MicroTask, MicroTeacher
from halfway.curriculum.lab.micro.repositories import Case, Kind, MicroOptions, MicroRepository, Mutant
from halfway.curriculum.lab.sources import MicroBugs
from halfway.curriculum.problems import Problem
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError

MENDED = MicroRepository(
    (("f", ("c=g(a)+b", "return c-3")), ("h", ("c=a*2", "return c+b")), ("g", ("c=a+4", "return c*2"))),
    (Case("f", (2, 3), 12), Case("h", (3, 1), 7), Case("g", (2,), 12)),
    (Case("f", (1, 0), 7), Case("g", (0,), 8)),
)
BUG, FIX = Mutant("operator", "g", 1, "c=a-4"), Mutant("operator", "g", 1, "c=a+4")
TASK = MicroTask(MENDED.mutated(BUG), BUG, FIX, "@f23=12?")
PROBLEM = Problem("one", TASK.prompt, micro.to_text(TASK.repository), "micro_repositories", "micro_repository")

# f(2, 3) is g(2) + 3 - 3 = (2 - 4) * 2 = -4; the edit of f alone would make it 2.
EPISODE = [
    ("t", "2f23:-4!12|"),
    ("?f", "1c=g(a)+b;2return c-3|"),
    ("f2return c+3", "-2f23:2!12|"),
    ("f2return c+13", "+1g2:-4!12|"),
    ("f2return c-3", "-2f23:-4!12|"),
    ("?g", "1c=a-4;2return c*2|"),
    ("g1c=a+4", "-1f23:28!12|"),
    ("g1c=", "-E|"),
    ("g1c=z", "-2f23:E!12|"),
    ("g3c=a", "?|"),
    ("rm -r /", "?|"),
    ("?x", "?|"),
]


def play(environment: MicroRepositories, commands: list[str]) -> list[StepResult[MicroEpisode]]:
    (episode,) = environment.start([PROBLEM])
    results: list[StepResult[MicroEpisode]] = []
    for command in commands:
        (result,) = environment.step([episode], [command])
        results.append(result)
        episode = result.episode
    return results


@needs_sandbox
def test_an_episode_worked_by_hand() -> None:
    results = play(MicroRepositories(max_turns=20), [command for command, _ in EPISODE])
    assert [result.observation for result in results] == [observation for _, observation in EPISODE]
    assert results[-1].episode.repository.lines("f") == ("c=g(a)+b", "return c+13")
    assert all(result.success is None for result in results)


@needs_sandbox
@pytest.mark.parametrize(
    ("commands", "success"),
    [
        (["g1c=a+4", "!"], True),
        (["g1c=4+a", "!"], True),  # another text that does the same
        (["!"], False),
        (["f2return c+13", "g2return c*2", "!"], False),
        (["g1c=a*3", "!"], False),  # 6 * 2 = 12: all tests pass, the hidden do not
        (["t", "t", "t"], False),
    ],
)
def test_hidden_tests_decide(commands: list[str], success: bool) -> None:
    *before, last = play(MicroRepositories(max_turns=3), commands)
    assert all(result.success is None for result in before)
    assert last.success is success
    assert last.truncated == (commands[-1] != "!")
    assert last.observation == ""


@needs_sandbox
@pytest.mark.parametrize("keep", [0, 1000])
def test_a_replay_through_execution_is_equal_and_finds_its_divergence(keep: int) -> None:
    environment = MicroRepositories(max_turns=20, keep=keep)
    said, seen = [command for command, _ in EPISODE], [observation for _, observation in EPISODE]
    cuts = range(len(EPISODE) + 1)
    episodes = environment.start([PROBLEM] * len(cuts))
    reached = replay(environment, episodes, [said[:cut] for cut in cuts], [seen[:cut] for cut in cuts])
    original = play(MicroRepositories(max_turns=20), said)
    assert reached == [episodes[0], *(result.episode for result in original)]
    seen[3] = "+0|"
    (diverged,) = replay(environment, episodes[:1], [said], [seen])
    assert diverged == Divergence(4, said[3], "it answered '+1g2:-4!12|', recorded was '+0|'")


@needs_sandbox
def test_the_teacher_reads_what_the_environment_says() -> None:
    """Its episodes are computed in this process, so they are executed here once more, in the sandbox."""
    rng, environment = random.Random(0), MicroRepositories(max_turns=6)
    teacher = MicroTeacher(test=1.0, skill=0.2, give_up=0.1)
    tasks = [micro_episodes.make_task(rng) for _ in range(4)]
    for task in tasks:
        turns = micro_episodes.demonstrate(task, teacher, 6, rng)
        (episode,) = environment.start([Problem("x", task.prompt, micro.to_text(task.repository))])
        for command, observation in turns:
            (result,) = environment.step([episode], [command])
            episode = result.episode
            assert result.observation == observation
        assert result.success is not None and not result.truncated


@given(st.integers(0, 2**32 - 1))
def test_the_fix_mends_and_a_perfect_teacher_makes_it_where_it_looks(seed: int) -> None:
    rng = random.Random(seed)
    task = micro_episodes.make_task(rng)
    assert micro.failing(task.repository.mutated(task.fix), hidden=True) == []
    first, _ = micro.failing(task.repository)[0]
    assert task.prompt == f"@{first.call}={first.wanted}?"
    turns = micro_episodes.demonstrate(task, MicroTeacher(test=0, look=1, skill=1, give_up=1), 6, rng)
    if task.fix.function in {command[1] for command, _ in turns if command[0] == "?"}:
        fix = f"{task.fix.function}{task.fix.line}{task.fix.text}"
        assert turns[-2:] == [(fix, "+0|"), ("!", "")]
    else:
        assert task.fix.function != task.prompt[1]


@given(st.integers(0, 2**32 - 1))
def test_bugs_of_some_kinds_in_the_function_that_the_issue_names(seed: int) -> None:
    rng = random.Random(seed)
    kinds: tuple[Kind, ...] = ("operator", "constant")
    task = micro_episodes.make_task(rng, MicroOptions(kinds=kinds, named=True))
    assert task.bug.kind in kinds and task.bug.function == task.prompt[1]
    teacher = MicroTeacher(test=0, skill=0, give_up=0, kinds=kinds)
    for command, observation in micro_episodes.demonstrate(task, teacher, 6, rng):
        if command[0] in "fgh" and observation[0] == "-":  # taken back: a mutant of the broken repository
            allowed = {m.function + str(m.line) + m.text for m in micro.mutants(task.repository) if m.kind in kinds}
            assert command in allowed
        elif command[0] in "fgh":
            break


@given(st.integers(0, 2**32 - 1), st.integers(2, 9))
def test_the_teacher_keeps_to_the_turns(seed: int, max_turns: int) -> None:
    rng = random.Random(seed)
    turns = micro_episodes.demonstrate(micro_episodes.make_task(rng), MicroTeacher(), max(4, max_turns), rng)
    assert len(turns) <= max(4, max_turns) and turns[-1] == ("!", "")


def test_the_source_gives_problems_of_the_environment() -> None:
    problems = MicroBugs().load(20, Stream(0)).problems
    assert MicroBugs().load(5, Stream(0)).problems == problems[:5]
    episodes = MicroRepositories().start(problems)
    assert all(micro.failing(episode.repository) for episode in episodes)
    assert {problem.features["function"] for problem in problems} == {"f", "g", "h"}


def test_a_problem_of_another_task_and_wrong_options_are_refused() -> None:
    assert ENVIRONMENTS.get("micro_repository") is MicroRepositories
    with pytest.raises(UserError, match="use the source micro_repositories"):
        MicroRepositories().start([replace(PROBLEM, answer="52")])
    for options in ({"max_turns": 0}, {"keep": -1}, {"seconds": 0.0}):
        with pytest.raises(UserError):
            MicroRepositories(**options)  # type: ignore[arg-type]
