"""Bugs as generated tasks: what an edit means, when it is a task, and what the solver gets."""

import numpy as np
import pytest
from sandboxes import needs_sandbox

from halfway.curriculum.domains.base import Invalid
from halfway.curriculum.domains.candidates import read
from halfway.curriculum.environments.micro_repository import MicroRepositories
from halfway.curriculum.lab.micro import repositories as micro
from halfway.curriculum.lab.micro.bugs_domain import Bug, Bugs, message, patch, with_canary
from halfway.curriculum.lab.micro.repositories import KINDS, MicroOptions
from halfway.curriculum.lab.micro.testing import MicroTests, Report
from halfway.curriculum.streams import Stream

DOMAIN = Bugs(repositories=12, micro=MicroOptions(calls=1.0, branches=0.5))
PROMPT = next(iter(DOMAIN.known))
LINES = DOMAIN.repository(0).lines("f")


def test_a_prompt_shows_one_repository_whole() -> None:
    drawn = [DOMAIN.prompt(Stream(0).at(i)) for i in range(200)]
    assert set(drawn) == set(DOMAIN.known) and len(DOMAIN.known) == 12
    assert PROMPT.startswith(f"f1{LINES[0]}|f2{LINES[1]}|")
    lines = [f"{name}{i}{line}|" for name in "fhg" for i, line in enumerate(DOMAIN.repository(0).lines(name), 1)]
    assert "".join(lines) == PROMPT
    assert Bugs(repositories=12, seed=1).known.keys() != DOMAIN.known.keys()


def test_an_edit_is_read_with_its_kind() -> None:
    for mutant in micro.mutants(DOMAIN.repository(0)):
        text = patch(DOMAIN.repository(0), mutant.function, mutant.line, mutant.text)
        old = DOMAIN.repository(0).lines(mutant.function)[mutant.line - 1]
        assert text == f"{mutant.function}{mutant.line}{old}|{message(old, mutant.text)}|{mutant.text}"
        assert DOMAIN.parse(text, PROMPT) == Bug(0, mutant.function, mutant.line, mutant.text, mutant.kind)
        assert DOMAIN.turns(text) == (
            *(mutant.function, str(mutant.line), f"{old}|"),
            *(f"{message(old, mutant.text)}|", mutant.text),
        )
        assert "".join(DOMAIN.turns(text)) == text
    other = DOMAIN.parse(patch(DOMAIN.repository(0), "f", 1, "c=77"), PROMPT)
    assert isinstance(other, Bug) and other.kind == "other"


def test_a_message_names_what_changes() -> None:
    pairs = [("return c-3", "return c+3"), ("c=a*b", "c=b*3"), ("c=a-4", "c=a-"), ("c=a-4", "c=a-4")]
    assert [message(old, new) for old, new in pairs] == ["-+", "abb3", "4", ""]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unreadable"),
        (f"k1{LINES[0]}||c=a", "unreadable"),
        ("f1", "unreadable"),
        (f"f1{LINES[0]}", "unreadable"),
        (f"f1{LINES[0]}|c=a", "unreadable"),
        (f"f1{LINES[0]}|-+|", "unreadable"),
        (f"f1{LINES[0]}||c=a\nimport x", "unreadable"),
        (f"f1{LINES[0]}||c=" + "a" * 30, "unreadable"),
        (f"f9{LINES[0]}||c=a", "no such line"),
        (f"f2{LINES[0]}||c=a", "does not apply"),
        (f"f1 {LINES[0]}||c=a", "does not apply"),
        (f"f1{LINES[0]}||{LINES[0]}", "changes nothing"),
        (f"f1{LINES[0]}||c=77", "says something else"),
        (f"f1{LINES[0]}|-+|c=77", "says something else"),
        (f"f1{LINES[0]}|-+| {LINES[0]} ", "changes nothing"),
    ],
)
def test_what_is_no_edit_is_counted(text: str, reason: str) -> None:
    found = DOMAIN.parse(text, PROMPT)
    assert isinstance(found, Invalid) and found.reason == reason
    assert "".join(DOMAIN.turns(text)) == text and len(DOMAIN.turns(text)) == (1 if reason == "unreadable" else 5)


def test_an_edit_without_its_repository_means_nothing() -> None:
    found = [DOMAIN.parse("f1c=b|ba|c=a"), DOMAIN.parse("f1c=b|ba|c=a", "f1c=b|")]
    assert [isinstance(one, Invalid) and one.reason for one in found] == ["of no repository"] * 2


@needs_sandbox
def test_mutants_are_valid_as_a_computation_without_the_sandbox_says() -> None:
    """Every mutant of two repositories: some of the policy's tests fail, not all."""
    told, expected = [], []
    for number in (0, 1):
        prompt, (_, repository) = list(DOMAIN.known.items())[number]
        for mutant in micro.mutants(repository):
            text = patch(repository, mutant.function, mutant.line, mutant.text)
            (candidate,) = [DOMAIN.parse(text, prompt)]
            assert isinstance(candidate, Bug)
            told.append(candidate)
            failing = micro.failing(repository.mutated(mutant))
            expected.append(tuple(sorted(case.name for case, _ in failing)))
    size = len(DOMAIN.repository(0).tests)
    for found, failing in zip(DOMAIN.check(told), expected, strict=True):
        if isinstance(found, Invalid):
            assert found.reason == ("no test passes" if len(failing) == size else "no test fails")
            assert len(failing) in (0, size)
        else:
            assert found.failing == failing
    assert {0 < len(failing) < size for failing in expected} == {True, False}


@needs_sandbox
@pytest.mark.parametrize(
    ("edit", "reason"),
    [("f1c=a+", "the suite does not run"), ("f1c=exit()", ""), ("f1pass", ""), ("h1import os", "")],
)
def test_edits_beyond_the_grammar_run_in_the_sandbox(edit: str, reason: str) -> None:
    text = patch(DOMAIN.repository(0), edit[0], 1, edit[2:])
    (candidate,) = read(DOMAIN, [text], prompts=[PROMPT])
    if not reason:  # the tests of that function fail, the others' still pass
        assert candidate.task is not None and {name[5] for name in candidate.task.failing} == {text[0]}
        assert candidate.topic == "m.py"
    else:
        assert candidate.invalid is not None and candidate.invalid.reason == reason


def test_a_runner_that_cannot_be_trusted_and_runs_that_differ() -> None:
    bug, names = Bug(0, "f", 1, "c=77", "other"), [case.name for case in DOMAIN.repository(0).tests]
    failed = Report(tuple(names[1:]), {names[0]: "1 != 2", "canary": "0 != 1"})
    other = Report(tuple(names[2:]), {names[0]: "1 != 2", names[1]: "1 != 2", "canary": "0 != 1"})
    forged = Report((*names, "canary"), {})
    judged = [DOMAIN._judge(bug, "canary", *both) for both in ((failed, failed), (failed, other), (forged, forged))]
    assert judged[0] == Bug(0, "f", 1, "c=77", "other", (names[0],))
    assert judged[1:] == [Invalid("not deterministic"), Invalid("the runner is not to be trusted")]
    assert "def canary(self)" in with_canary(micro.files(DOMAIN.repository(0)), "canary")["test_m.py"]


@needs_sandbox
def test_the_solver_gets_the_bug_and_can_mend_it() -> None:
    prompts = [DOMAIN.prompt(Stream(3).at(i)) for i in range(8)]
    texts = [DOMAIN.mutation(prompt, Stream(4).at(i)) for i, prompt in enumerate(prompts)]
    found = [one for one in read(DOMAIN, texts, prompts=prompts) if one.valid]
    assert found
    tests = MicroTests()
    for one in found:
        assert one.problem is not None and one.task is not None and one.task.kind in KINDS
        broken = micro.from_text(one.problem.answer)
        assert broken == DOMAIN.edited(one.task)
        case, got = micro.failing(broken)[0]
        assert one.problem.prompt == f"@{case.call}={case.wanted}?" and got != case.wanted
        assert one.problem.features["repository"] == str(one.task.number)
        whole = DOMAIN.repository(one.task.number)
        mended = broken.edited(one.task.function, one.task.line, whole.lines(one.task.function)[one.task.line - 1])
        (report,) = tests.run([micro.files(mended, hidden=True)])
        assert not report.failed and len(report.passed) == len(whole.tests + whole.hidden)


@needs_sandbox
def test_a_scripted_solver_mends_a_bug_in_the_environment() -> None:
    prompt = DOMAIN.prompt(Stream(3).at(0))
    texts = [DOMAIN.mutation(prompt, Stream(6).at(i)) for i in range(6)]
    one = next(one for one in read(DOMAIN, texts, prompts=[prompt] * 6) if one.valid)
    assert one.problem is not None and one.task is not None
    function, line = one.task.function, one.task.line
    mend = f"{function}{line}{DOMAIN.repository(one.task.number).lines(function)[line - 1]}"
    environment = MicroRepositories()
    for commands, passes in ((["!"], False), (["t", mend, "!"], True)):
        (episode,) = environment.start([one.problem])
        for command in commands:
            (result,) = environment.step([episode], [command])
            episode = result.episode
        assert result.success is passes


def test_mutations_are_spread_over_all_places() -> None:
    drawn = {DOMAIN.mutation(PROMPT, Stream(0).at(i)) for i in range(600)}
    repository = DOMAIN.repository(0)
    assert drawn == {patch(repository, m.function, m.line, m.text) for m in micro.mutants(repository)}
    parsed = [DOMAIN.parse(text, PROMPT) for text in drawn]
    assert np.all([isinstance(one, Bug) and one.kind in KINDS for one in parsed])
