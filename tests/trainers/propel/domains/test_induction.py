"""Function induction: rules that run nothing, and tasks that run in the sandbox."""

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import says
from sandboxes import needs_sandbox

from halfway.curriculum import Problem, Stream, UserError
from halfway.curriculum.boxes.sandbox import Failure, Job, Outcome, Result, SandboxOptions
from halfway.curriculum.tasks.verifiers import function_induction
from halfway.curriculum.tasks.verifiers.function_induction import PURE_MODULES, Memory
from halfway.curriculum.tasks.verifiers.verify import verify, verify_all
from halfway.trainers.propel.domains.candidates import read
from halfway.trainers.propel.domains.domain import Invalid
from halfway.trainers.propel.domains.induction import FunctionInduction, call_text
from halfway.trainers.propel.domains.induction_rules import arguments, function_name

FENCED = FunctionInduction(inputs=4, seconds=5.0)


def text(code: str, inputs: Sequence[str] = ("1", "2", "3", "4"), message: str | None = "Doubles it.") -> str:
    blocks = [f"```python\n{code}\n```", *(f"```input\n{one}\n```" for one in inputs)]
    return "\n\n".join([*blocks, *([] if message is None else [f"```message\n{message}\n```"])])


ACCEPTED = [
    "def f(x):\n    return 2 * x",
    "def double(x):\n    return 2 * x",
    '"""A text."""\nimport math\ndef f(x):\n    return math.gcd(x, 4)',
    "from collections import abc, Counter as C\ndef f(x):\n    return len(C([x])), isinstance(x, abc.Sized)",
    "import collections.abc as a\ndef f(x):\n    return isinstance(x, a.Sized)",
    "def f(x):\n    import statistics as s\n    return s.mean([x, 3])",
    "def f(*xs):\n    def g(n):\n        return n if n < 2 else g(n - 1)\n    return g(len(xs))",
    "def f(x):\n    match x:\n        case int(real=r):\n            return r\n    return 0",
]

REFUSED = [
    ("def f(x) return x", "does not parse"),
    ("x = \x00", "does not parse"),
    ("(" * 5000, "does not parse"),
    ("-" * 8000 + "1", "does not parse"),
    ("x = 1", "not one function"),
    ("def f(x):\n    return x\ndef g(x):\n    return x", "not one function"),
    ("state = []\ndef f(x):\n    return x", "not one function"),
    ("class A: pass\ndef f(x):\n    return x", "not one function"),
    ("def f():\n    return 1", "no argument"),
    ("def f(x):\n    x + 1", "returns nothing"),
    ("def f(x):\n    return", "returns nothing"),
    ("#" + "x" * 9000, "function too long"),
]

BANNED = [
    "import random",
    "import os.path as p",
    "from os import environ",
    "from sys import exit",
    "import time, math",
    "from . import thing",
    "from math import *",
    "from statistics import random",
    "from collections import _sys",
    "from math import __loader__",
    "import statistics\n    y = statistics.random.random()",
    "import statistics as s\n    y = s.random",
    "import statistics\n    s = statistics\n    y = s.random.random()",
    "import statistics\n    y = [statistics][0].random.random()",
    "from statistics import NormalDist",
    "import collections\n    y = collections.abc.sys",
    "import re\n    y = re.enum.sys",
    "import string\n    y = string.Formatter()",
    "from operator import attrgetter",
    "import operator as o\n    y = o.methodcaller('x')",
    "from typing import get_type_hints",
    "y = __import__('random')",
    "y = __builtins__",
    "y = eval('1')",
    "y = getattr(x, 'real')",
    "y = map(hash, ['a'])",
    "y = id(x)",
    "y = open('/etc/passwd')",
    "y = x.__class__",
    "y = f'{x.__class__}'",
    "y = (lambda: 0).__globals__",
    "y = [c for c in ().__class__.__base__.__subclasses__()]",
    "global state\n    state = 1",
    "class A:\n        pass",
    "yield 1",
    "match x:\n        case object(__class__=c):\n            y = c",
]


@pytest.mark.parametrize("code", ACCEPTED)
def test_a_function_of_its_arguments_is_accepted(code: str) -> None:
    assert isinstance(function_name(code), str)


@pytest.mark.parametrize(("code", "reason"), REFUSED)
def test_code_that_does_not_define_one_function_is_refused(code: str, reason: str) -> None:
    refused = function_name(code)
    assert isinstance(refused, Invalid) and refused.reason == reason


@pytest.mark.parametrize("line", BANNED)
def test_a_banned_name_is_refused_however_it_is_reached(line: str) -> None:
    refused = function_name(f"def f(x):\n    {line}\n    return x")
    assert isinstance(refused, Invalid) and refused.reason == "banned"


def test_no_pure_module_leads_to_another() -> None:
    for name in PURE_MODULES:
        for member, value in vars(import_module(name)).items():
            if isinstance(value, ModuleType) and value.__name__ not in PURE_MODULES:
                refused = function_name(f"import {name} as m\ndef f(x):\n    return m.{member}")
                assert isinstance(refused, Invalid) and refused.reason == "banned"


@given(st.text(max_size=60))
def test_any_text_is_judged(code: str) -> None:
    assert isinstance(function_name(code), str | Invalid)
    assert isinstance(arguments(code), Result | Invalid)


@pytest.mark.parametrize(
    ("written", "shown", "key"),
    [
        ("5", "(5,)", "(5,)"),
        ("'John', 20", "('John', 20)", "('John', 20)"),
        (" [1, 2.0], {'a': None} ", "([1, 2.0], {'a': None})", "([1, 2], {'a': None})"),
        ("True", "(True,)", "(1,)"),
        ("{2, True}", "({2, True},)", "({1, 2},)"),
    ],
)
def test_arguments_are_a_tuple(written: str, shown: str, key: str) -> None:
    assert arguments(written) == Result(shown, key)


@pytest.mark.parametrize(
    "written", ["", "x", "f(1)", "1j", "b'a'", "1e999", "9" * 900 + "**9", "[" * 25 + "]" * 25, "'"]
)
def test_an_input_that_is_not_a_plain_value_is_refused(written: str) -> None:
    refused = arguments(written)
    assert isinstance(refused, Invalid) and refused.reason == "input does not parse"


GOOD = "def f(x):\n    return 2 * x"
UNREAD = [
    (text(GOOD, message=None), "no message"),
    (text(GOOD, message="It is def f(x): return 2 * x"), "code in the message"),
    (text(GOOD, message="x" * 2000), "code in the message"),
    (text(GOOD, ["1", "2", "3"]), "too few inputs"),
    (text(GOOD, ["1", "2", "3", "1.0"]), "repeated input"),
    (text(GOOD, ["1", "2", "3", "x"]), "input does not parse"),
    (text(GOOD) + f"\n```python\n{GOOD}\n```", "not one function"),
    ("Sure! Here is a function.", "not one function"),
    (text("import os\n" + GOOD), "banned"),
]


@pytest.mark.parametrize(("written", "reason"), UNREAD)
def test_a_text_is_refused_without_running_it(written: str, reason: str) -> None:
    parsed = FENCED.parse(written)
    assert isinstance(parsed, Invalid) and parsed.reason == reason


def test_the_last_inputs_count() -> None:
    parsed = FENCED.parse(text(GOOD, ["9", "1", "2", "3", "4"]))
    assert not isinstance(parsed, Invalid) and parsed.inputs == ("(1,)", "(2,)", "(3,)", "(4,)")


def test_the_generator_is_asked_with_one_of_the_seeds() -> None:
    domain = replace(FENCED, seed_functions=("def f(a):\n    return a", "def f(b):\n    return b"))
    prompts = {domain.prompt(Stream(seed)) for seed in range(20)}
    assert len(prompts) == 2 and all("```input" in prompt and "4 different inputs" in prompt for prompt in prompts)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"inputs": 3}, says("induction.inputs", "even", 3)),
        ({"distinct_results": 0}, says("induction.distinct_results", "1 to 4", 0)),
        ({"seed_functions": ()}, says("induction.seed_functions", "at least one", ())),
        ({"seed_functions": ("import os",)}, says("induction.seed_functions")),
        ({"seconds": 0.0}, says("sandbox.seconds", "above 0", 0.0)),
    ],
)
def test_bad_options_are_one_line(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        replace(FENCED, **change)  # type: ignore[arg-type]


def test_an_answer_of_another_domain_is_one_line() -> None:
    with pytest.raises(UserError, match=says("function induction")):
        verify(Problem("p", "?", "42", "", "function_induction"), "```python\nx\n```")


def test_a_response_without_code_needs_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_induction, "run", None)
    answer = json.dumps({"seconds": 1, "inputs": ["(1,)"], "results": ["2"]})
    assert not verify(Problem("p", "?", answer, "", "function_induction"), "I do not know")


RUN = [
    ("def f(x):\n    return 1 // (x - 3)", "run: error"),
    ("def f(x):\n    while True:\n        pass\n    return x", "run: timeout"),
    ("def f(x):\n    return 'x' * 10 ** 6", "run: output"),
    ("def f(x):\n    return len('x' * 10 ** 10)", "run: error"),
    ("def f(x):\n    return (y for y in [x])", "run: error"),
    ("def f(x):\n    return float('inf')", "run: error"),
    ("def f(x):\n    return 10 ** 5000", "run: error"),
    ("def f(x):\n    return list({'a', 'b', 'c', 'd', 'e'})", "not deterministic"),
    ("def f(x, seen=[]):\n    seen.append(x)\n    return len(seen)", "not deterministic"),
    ("def f(x):\n    return repr(iter([]))", "not deterministic"),
    ("def f(x):\n    return None", "returns nothing"),
    ("def f(x):\n    return 7", "too few different results"),
]


@needs_sandbox
def test_functions_that_fail_or_differ_when_run_are_refused() -> None:
    domain = replace(FENCED, seconds=4.0, distinct_results=2)
    candidates = read(domain, [text(code) for code, _ in RUN])
    assert [c.invalid.reason if c.invalid else "valid" for c in candidates] == [reason for _, reason in RUN]


@needs_sandbox
def test_a_task_is_solved_by_any_equal_function() -> None:
    (candidate,) = read(replace(FENCED, seconds=1.0), [text("def g(x):\n    return [x / 2, {x}]", message="A half.")])
    problem = candidate.problem
    assert problem is not None and candidate.topic == "Div"
    assert "f(1) = [0.5, {1}]" in problem.prompt and "f(2) = [1.0, {2}]" in problem.prompt
    assert "f(3)" not in problem.prompt and "A half." in problem.prompt and "x / 2" not in problem.prompt
    right = "Let me think.\n```python\nimport math\ndef h(x): return {x}\ndef f(x): return [x * 0.5, h(x)]\n```\n"
    assert verify(problem, right)
    assert not verify(problem, right.replace("0.5", "0.25"))
    assert not verify(problem, right.replace("def f", "def g"))
    assert not verify(problem, right.replace("return [", "return ("))
    assert not verify(problem, "```python\ndef f(x):\n    while True: pass\n```")


def test_the_solver_sees_calls() -> None:
    assert call_text("(1,)", Result("2", "2")) == "f(1) = 2"
    assert call_text("('a', [2])", Result("'b'", "'b'")) == "f('a', [2]) = 'b'"


class CountingSandbox:
    """Counts what it is given; each program fails in the way its code names, or returns the code."""

    def __init__(self) -> None:
        self.seen: list[Job] = []

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        self.seen += jobs
        return [
            Failure(job.code) if job.code in ("error", "timeout") else (Result(job.code, job.code),) for job in jobs
        ]


def test_an_equal_program_runs_once_unless_time_or_worker_ended_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox, memory, options = CountingSandbox(), Memory(capacity=3), SandboxOptions()
    monkeypatch.setattr(function_induction, "get_sandbox", lambda options, modules: sandbox)

    def run(codes: str) -> list[str]:
        outcomes = memory.run([Job(code, "f", ("(1,)",)) for code in codes.split()], options)
        return [one.fault if isinstance(one, Failure) else one[0].shown for one in outcomes]

    def seen() -> list[str]:
        codes, sandbox.seen = [job.code for job in sandbox.seen], []
        return codes

    assert run("a b a error timeout a timeout") == ["a", "b", "a", "error", "timeout", "a", "timeout"]
    assert seen() == ["a", "b", "error", "timeout"]
    assert run("timeout error b") == ["timeout", "error", "b"] and seen() == ["timeout"]
    assert run("c a") == ["c", "a"] and seen() == ["c"]  # and with c, a is forgotten
    assert run("b a") == ["b", "a"] and seen() == ["a"]
    other = [Job("b", "f", ("(2,)",)), Job("b", "g", ("(1,)",)), Job("b", "f", ("(1,)",), lane=1)]
    assert len(memory.run(other, options)) == 3 and seen() == ["b"] * 3


@needs_sandbox
def test_many_verdicts_at_once_are_those_one_by_one() -> None:
    def answer(value: str) -> str:
        return f"```python\ndef f(x):\n    return {value}\n```"

    texts = [text(f"def f(x):\n    return {value}") for value in ("x * x", "3 * x")]
    square, triple = (candidate.problem for candidate in read(FENCED, texts))
    assert square is not None and triple is not None
    other = Problem("p", "?", "7", "", "exact")
    asked = [
        (square, answer("x ** 2")),
        (triple, answer("x ** 2")),
        (other, "7"),
        (square, answer("abs(x) * x")),
        (triple, answer("x + x + x")),
        (square, "?"),
    ]
    problems, responses = [problem for problem, _ in asked], [response for _, response in asked]
    verdicts = verify_all([*problems, other], [*responses, "8"])
    assert verdicts == [True, False, True, True, True, False, False]
    assert verdicts[:-1] == [verify(problem, response) for problem, response in asked]
    with pytest.raises(UserError, match=says("'broken'")):
        verify_all([square, Problem("broken", "?", "{}", "", "function_induction")], ["x", "x"])
    assert verify_all([], []) == []
