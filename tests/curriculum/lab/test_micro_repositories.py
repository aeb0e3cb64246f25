"""Micro-repositories: what is drawn, its mutants, and their tests, run in the sandbox and computed beside it."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandboxes import needs_sandbox

from halfway.curriculum.lab.micro import repositories as micro
from halfway.curriculum.lab.micro.repositories import Case, MicroOptions, MicroRepository, Mutant
from halfway.curriculum.lab.micro.testing import MicroTests, Report
from halfway.curriculum.support.errors import UserError

BY_HAND = MicroRepository(
    (("f", ("c=g(a)+b", "return c-3")), ("h", ("c=a*2", "if c>5:c=c-1", "return c+b")), ("g", ("c=a+4", "return c*2"))),
    (Case("f", (2, 3), 12), Case("h", (3, 1), 6), Case("g", (2,), 12)),
    (Case("h", (2, 1), 5),),
)
SEEDS = st.integers(0, 2**32 - 1)


def test_the_files_of_a_repository_written_by_hand() -> None:
    assert micro.files(BY_HAND) == {
        "m.py": "from n import g\ndef f(a, b):\n c=g(a)+b\n return c-3\n"
        "def h(a, b):\n c=a*2\n if c>5:c=c-1\n return c+b\n",
        "n.py": "def g(a):\n c=a+4\n return c*2\n",
        "test_m.py": "import unittest\nfrom m import f, h\nfrom n import g\nclass T(unittest.TestCase):\n"
        " def test_f_23(self): self.assertEqual(f(2, 3), 12)\n"
        " def test_h_31(self): self.assertEqual(h(3, 1), 6)\n"
        " def test_g_2(self): self.assertEqual(g(2), 12)\n",
    }
    assert " def test_h_21(self): self.assertEqual(h(2, 1), 5)\n" in micro.files(BY_HAND, hidden=True)["test_m.py"]


def test_the_mutants_of_a_function_in_order() -> None:
    assert [mutant for mutant in micro.mutants(BY_HAND) if mutant.function == "g"] == [
        Mutant("operator", "g", 1, "c=a-4"),
        Mutant("operator", "g", 1, "c=a*4"),
        Mutant("constant", "g", 1, "c=a+3"),
        Mutant("constant", "g", 1, "c=a+5"),
        Mutant("name", "g", 2, "return a*2"),
        Mutant("operator", "g", 2, "return c+2"),
        Mutant("operator", "g", 2, "return c-2"),
        Mutant("constant", "g", 2, "return c*1"),
        Mutant("constant", "g", 2, "return c*3"),
    ]
    assert Mutant("compare", "h", 2, "if c<5:c=c-1") in micro.mutants(BY_HAND)
    assert Mutant("name", "f", 1, "c=g(b)+b") in micro.mutants(BY_HAND)
    assert not [mutant for mutant in micro.mutants(BY_HAND) if mutant.line == 1 and "c" in mutant.text[2:]]


@pytest.mark.parametrize(
    ("mutant", "failing"),
    [
        (Mutant("constant", "f", 2, "return c-2"), {"f23": 13}),
        (Mutant("operator", "g", 1, "c=a-4"), {"f23": -4, "g2": -4}),  # the caller's test fails too
        (Mutant("compare", "h", 2, "if c<5:c=c-1"), {"h31": 7, "h21": 4}),
    ],
)
def test_what_mutants_return(mutant: Mutant, failing: dict[str, int]) -> None:
    found = micro.failing(BY_HAND.mutated(mutant), hidden=True)
    assert {case.call: got for case, got in found} == failing


@given(SEEDS)
def test_what_is_drawn_passes_and_every_mutant_can_be_undone(seed: int) -> None:
    repository = micro.make(random.Random(seed))
    assert micro.failing(repository, hidden=True) == []
    assert len({case.name for case in repository.tests + repository.hidden}) == 18
    assert micro.from_text(micro.to_text(repository)) == repository
    mutants = micro.mutants(repository)
    assert len({mutant[1:] for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        old = repository.lines(mutant.function)[mutant.line - 1]
        assert micro.LINE.fullmatch(mutant.text) and mutant.text != old
        back = [again[1:] for again in micro.mutants(repository.mutated(mutant))]
        assert (mutant.function, mutant.line, old) in back


@needs_sandbox
@settings(max_examples=3, deadline=None)
@given(SEEDS)
def test_the_sandbox_reports_what_is_computed_here(seed: int) -> None:
    rng = random.Random(seed)
    repository = micro.make(rng, MicroOptions(branches=0.5))
    broken = [repository.mutated(mutant) for mutant in rng.sample(micro.mutants(repository), 4)]
    reports = MicroTests().run([micro.files(one, hidden=True) for one in (repository, *broken)])
    for one, report in zip((repository, *broken), reports, strict=True):
        expected = {case.name: f"{got} != {case.wanted}" for case, got in micro.failing(one, hidden=True)}
        assert dict(report.failed) == expected
        assert len(report.passed) == 18 - len(expected)
        assert not report.fault


@needs_sandbox
def test_files_that_misbehave_have_a_fault_and_disturb_no_other() -> None:
    tests = MicroTests()
    lines = ["c=z", "c=", "raise SystemExit", "while 1:c=1", "c=open('x','w')", "c=b+1;b=b", "return a"]
    reports = tests.run([micro.files(BY_HAND.edited("f", 1, line)) for line in lines] + [micro.files(BY_HAND)])
    rest = ("test_g_2", "test_h_31")
    assert reports == [
        Report(rest, {"test_f_23": "NameError"}),
        Report(fault="SyntaxError"),
        Report(rest, {"test_f_23": "SystemExit"}),
        Report(fault="timeout"),
        Report(rest, {"test_f_23": "PermissionError"}),
        Report(rest, {"test_f_23": "1 != 12"}),
        Report(rest, {"test_f_23": "2 != 12"}),
        Report(("test_f_23", "test_g_2", "test_h_31")),
    ]


@needs_sandbox
def test_equal_files_are_run_once_unless_nothing_is_kept() -> None:
    tests, forgetful = MicroTests(), MicroTests(keep=0)
    for one in (tests, forgetful):
        first, second = one.run([micro.files(BY_HAND)] * 2)
        assert first == second == one.run([micro.files(BY_HAND)])[0]
    assert (tests.runs, tests.recalled) == (1, 2)
    assert (forgetful.runs, forgetful.recalled) == (3, 0)


def test_only_lines_of_the_grammar_are_computed_in_this_process() -> None:
    with pytest.raises(ValueError, match="only the sandbox may run it"):
        micro.failing(BY_HAND.edited("f", 1, "exit()"))
    with pytest.raises(IndexError, match="lines 1 to 2, not 3"):
        BY_HAND.edited("f", 3, "c=1")
    with pytest.raises(ValueError, match="not a micro-repository"):
        micro.from_text('{"functions":{}}')


@pytest.mark.parametrize(
    "options",
    [
        {"calls": 1.5},
        {"branches": -1},
        {"tests": 0},
        {"hidden": 6},
        {"kinds": ()},
        {"kinds": ("compare",), "branches": 0.0},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"micro_repositories.{next(iter(options))}"):
        replace(MicroOptions(), **options)
