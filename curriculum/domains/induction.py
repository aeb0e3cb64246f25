"""Function induction: the generator writes a function, ten inputs and a message; the solver infers the function.

The solver sees half of the input-output pairs and the message, writes a function, and passes if it gives the
reference's result on every other input. After Absolute Zero (function induction) and PROPEL, section 4.2, with stricter
validity: see `FunctionInduction.check`.
"""

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from curriculum.domains.base import Invalid
from curriculum.domains.induction_rules import MODULES, arguments, function_name
from curriculum.domains.induction_text import SYNTAXES, Shown
from curriculum.domains.sandbox import Failure, Job, Outcome, Result, SandboxOptions, shared
from curriculum.errors import require
from curriculum.extras import one_line
from curriculum.problems import Problem
from curriculum.sources import content_id
from curriculum.streams import Stream

CODE_IN_MESSAGE = re.compile(r"```|\bdef \w+\s*\(|\blambda\b[^.]*:|\breturn\s+[\w(\[{]+\s*[-+*/%]")
MAX_MESSAGE = 1_000
SHARED_MODULES = tuple(MODULES)


@dataclass(frozen=True, slots=True)
class FunctionTask:
    """A function with its inputs.

    Attributes:
        code, entry: Python that defines one function, and the function's name.
        inputs: the arguments of each call, as the text of a tuple literal.
        message: the hint.
        results: the function's value on each input; empty until the task is checked.
    """

    code: str
    entry: str
    inputs: tuple[str, ...]
    message: str
    results: tuple[Result, ...] = ()


@dataclass(frozen=True)
class FunctionInduction:
    """Function induction as a domain.

    Attributes:
        syntax: how tasks and answers are written: "fenced" is Markdown with code blocks, for a pretrained model;
            "short" is one line with an expression of x, for a model that is trained from nothing.
        inputs: inputs a task, an even number; the first half is shown. The last ones count if more are written.
        distinct_results: least number of different results over the inputs; 2 refuses constants.
        seed_functions: one of them stands in the generator's prompt ("fenced" only).
        seconds: time limit of a function over all its inputs, the generator's and the solver's.
        processes: functions that run at once, in each of the sandbox's two lanes.
    """

    syntax: Literal["fenced", "short"] = "fenced"
    inputs: int = 10
    distinct_results: int = 1
    seed_functions: tuple[str, ...] = ("def f(a):\n    return a",)
    seconds: float = 10.0
    processes: int = 1

    def __post_init__(self) -> None:
        require(
            self.inputs >= 2 and self.inputs % 2 == 0, "induction.inputs", self.inputs, "give an even number from 2"
        )
        require(
            1 <= self.distinct_results <= self.inputs,
            "induction.distinct_results",
            self.distinct_results,
            f"give 1 to {self.inputs}, the number of inputs",
        )
        require(bool(self.seed_functions), "induction.seed_functions", self.seed_functions, "give at least one")
        for code in self.seed_functions:
            trouble = function_name(code)
            require(isinstance(trouble, str), "induction.seed_functions", code, f"correct it: {trouble}")
        SandboxOptions(self.seconds, processes=self.processes)

    @property
    def name(self) -> str:
        return "function_induction"

    def prompt(self, stream: Stream) -> str:
        chosen = self.seed_functions[stream.integer() % len(self.seed_functions)]
        return SYNTAXES[self.syntax].ask(chosen, self.inputs)

    def parse(self, text: str) -> FunctionTask | Invalid:
        """Reads the text, and judges all that can be judged without running it."""
        syntax = SYNTAXES[self.syntax]
        written = syntax.read(text)
        if isinstance(written, Invalid):
            return written
        if syntax.has_message and not written.message:
            return Invalid("no message")
        if len(written.message) > MAX_MESSAGE or CODE_IN_MESSAGE.search(written.message):
            return Invalid("code in the message", one_line(written.message))
        if len(written.inputs) < self.inputs:
            return Invalid("too few inputs", f"{len(written.inputs)}, {self.inputs} are needed")
        entry = function_name(written.code)
        if isinstance(entry, Invalid):
            return entry
        inputs: dict[str, str] = {}
        for one in written.inputs[-self.inputs :]:
            read = arguments(one)
            if isinstance(read, Invalid):
                return read
            if read.key in inputs:  # a shown pair would give a hidden one away
                return Invalid("repeated input", one_line(one))
            inputs[read.key] = read.shown
        return FunctionTask(written.code, entry, tuple(inputs.values()), written.message)

    def check(self, tasks: Sequence[FunctionTask]) -> list[FunctionTask | Invalid]:
        """Runs each function twice, in two processes with different hash seeds, the second time from the last input.

        Valid is a function that ends in time, raises nothing, gives plain and finite values, not None, that are equal
        in both runs, and at least `distinct_results` different ones. A function that changes from call to call gives
        other values in the other order.
        """
        jobs = []
        for task in tasks:
            jobs.append(Job(task.code, task.entry, task.inputs, lane=0))
            jobs.append(Job(task.code, task.entry, task.inputs[::-1], lane=1))
        outcomes = _run(jobs, self.seconds, self.processes)
        return [self._judge(task, *outcomes[2 * i : 2 * i + 2]) for i, task in enumerate(tasks)]

    def _judge(self, task: FunctionTask, forward: Outcome, backward: Outcome) -> FunctionTask | Invalid:
        for outcome in (forward, backward):
            if isinstance(outcome, Failure):
                return Invalid(f"run: {outcome.fault}", one_line(outcome.detail))
        assert not isinstance(forward, Failure) and not isinstance(backward, Failure)
        if forward != backward[::-1]:
            return Invalid("not deterministic")
        keys = {result.key for result in forward}
        if "None" in keys:
            return Invalid("returns nothing")
        if len(keys) < self.distinct_results:
            return Invalid("too few different results", f"{len(keys)}, at least {self.distinct_results}")
        return replace(task, results=forward)

    def problem(self, task: FunctionTask) -> Problem:
        assert task.results, "the task has not been checked"
        half, syntax = self.inputs // 2, SYNTAXES[self.syntax]
        pairs = [Shown(text, result.shown) for text, result in zip(task.inputs, task.results, strict=True)]
        prompt = syntax.pose(pairs[:half], task.message)
        answer = json.dumps(
            {
                "syntax": self.syntax,
                "seconds": self.seconds,
                "inputs": task.inputs[half:],
                "results": [result.key for result in task.results[half:]],
            }
        )
        features: dict[str, float | str] = {"code_length": len(task.code), "topic": self.topic(task)}
        identity = content_id(self.name, prompt, answer)
        return Problem(identity, prompt, answer, self.name, "function_induction", features)

    def topic(self, task: FunctionTask) -> str:
        """What the function is made of: its kinds of operators and statements, sorted, as in "Add+If"."""
        kinds = {type(node).__name__ for node in ast.walk(ast.parse(task.code)) if isinstance(node, TELLING)}
        return "+".join(sorted(kinds)) or "plain"


TELLING = (
    *(ast.operator, ast.unaryop, ast.boolop, ast.If, ast.IfExp, ast.For, ast.While, ast.Call, ast.Subscript),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.JoinedStr),
)


def _run(jobs: Sequence[Job], seconds: float, processes: int = 1) -> list[Outcome]:
    return shared(SandboxOptions(seconds, processes=processes), SHARED_MODULES).run(jobs)


def verify(problem: Problem, response: str) -> bool:
    """Whether the function in a response gives the reference's results on the hidden inputs.

    The response may define what it likes beside the function. Results are compared as Python's == does, outside the
    sandbox; what runs inside knows the hidden inputs and no result of them.

    Raises:
        ValueError: if the problem's answer is not one of this domain.
        UserError: if there is no sandbox.
    """
    try:
        reference = json.loads(problem.answer)
        syntax, seconds = SYNTAXES[reference["syntax"]], float(reference["seconds"])
        inputs, results = tuple(map(str, reference["inputs"])), tuple(map(str, reference["results"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not an answer of function induction ({one_line(error)})") from error
    code = syntax.answer(response)
    if code is None:
        return False
    outcome = _run([Job(code, "f", inputs)], seconds)[0]
    return not isinstance(outcome, Failure) and tuple(result.key for result in outcome) == results
