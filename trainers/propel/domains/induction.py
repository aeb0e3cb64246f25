"""Function induction: the generator writes a function, ten inputs and a message; the solver infers the function.

The solver sees half of the input-output pairs and the message, writes a function, and passes if it gives the
reference's result on every other input, as `halfway.curriculum.tasks.function_induction` judges. After Absolute Zero
(function induction) and PROPEL, section 4.2, with stricter validity: see `FunctionInduction.check`.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from halfway.curriculum.boxes.sandbox import Failure, Job, Outcome, Result, SandboxOptions
from halfway.curriculum.problems import Problem
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import require
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.tasks.function_induction import Reference, run
from halfway.curriculum.tasks.sources import content_id
from halfway.trainers.propel.domains.base import Invalid
from halfway.trainers.propel.domains.induction_rules import arguments, function_name
from halfway.trainers.propel.domains.induction_text import SYNTAXES, Shown

CODE_IN_MESSAGE = re.compile(r"```|\bdef \w+\s*\(|\blambda\b[^.]*:|\breturn\s+[\w(\[{]+\s*[-+*/%]")
INTEGER = re.compile(r"-?\d+")
MAX_MESSAGE = 1_000


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
    """Tasks to infer a function from some of its values, judged on further inputs; code runs only in a sandbox.

    Attributes:
        syntax: how tasks and answers are written: "fenced" is Markdown with code blocks, for a pretrained model;
            "short" is one line with an expression of x, for a model that is trained from nothing.
        inputs: number of inputs per task, which is even; the first half is shown. If a text has more, its last ones
            count.
        input_range, result_range: if given, every input, or every result, has to be a single integer within this range,
            ends included, for a solver that knows no other values.
        distinct_results: least number of different results over the inputs; 2 rules out constants.
        seed_functions: functions of which one is shown in the generator's prompt ("fenced" only).
        seconds: time limit on a function over all its inputs, for the generator's and the solver's functions.
        processes: functions that run at once, in each of the sandbox's two lanes.
    """

    name: ClassVar[str] = "function_induction"
    open: ClassVar[bool] = False
    syntax: Literal["fenced", "short"] = "fenced"
    inputs: int = 10
    input_range: tuple[int, int] | None = None
    result_range: tuple[int, int] | None = None
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
        for name in ("input_range", "result_range"):
            bounds = vars(self)[name]
            rising = bounds is None or bounds[0] < bounds[1]
            require(rising, f"induction.{name}", bounds, "give the lowest and a higher number, or null")
        require(bool(self.seed_functions), "induction.seed_functions", self.seed_functions, "give at least one")
        for code in self.seed_functions:
            trouble = function_name(code)
            require(isinstance(trouble, str), "induction.seed_functions", code, f"correct it: {trouble}")
        SandboxOptions(self.seconds, processes=self.processes)

    def prompt(self, stream: Stream) -> str:
        chosen = self.seed_functions[stream.integer() % len(self.seed_functions)]
        return SYNTAXES[self.syntax].ask(chosen, self.inputs)

    def parse(self, text: str, prompt: str = "") -> FunctionTask | Invalid:
        """Parse the text, and judge everything that can be judged without running it."""
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
            if not _in_range(read.shown[1:-2], self.input_range):
                return Invalid("input out of range", one_line(one))
            if read.key in inputs:  # a shown pair would give a hidden one away
                return Invalid("repeated input", one_line(one))
            inputs[read.key] = read.shown
        return FunctionTask(written.code, entry, tuple(inputs.values()), written.message)

    def check(self, tasks: Sequence[FunctionTask]) -> list[FunctionTask | Invalid]:
        """Run each function twice, in two processes with different hash seeds, the second time from the last input on.

        A function is valid if it ends in time, raises nothing, returns plain and finite values other than None that are
        equal in both runs, and has at least `distinct_results` different results. A function whose value changes from
        call to call gives different values in the reverse order.
        """
        jobs = []
        for task in tasks:
            jobs.append(Job(task.code, task.entry, task.inputs, lane=0))
            jobs.append(Job(task.code, task.entry, task.inputs[::-1], lane=1))
        outcomes = run(jobs, self.seconds, self.processes)
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
        for result in forward:
            if not _in_range(result.shown, self.result_range):
                return Invalid("result out of range", one_line(result.shown))
        if len(keys) < self.distinct_results:
            return Invalid("too few different results", f"{len(keys)}, at least {self.distinct_results}")
        return replace(task, results=forward)

    def problem(self, task: FunctionTask) -> Problem:
        assert task.results, "the task has not been checked"
        half, syntax = self.inputs // 2, SYNTAXES[self.syntax]
        pairs = [Shown(text, result.shown) for text, result in zip(task.inputs, task.results, strict=True)]
        prompt = syntax.pose(pairs[:half], task.message)
        hidden = tuple(result.key for result in task.results[half:])
        answer = Reference(self.syntax, self.seconds, task.inputs[half:], hidden).as_text()
        features: dict[str, float | str] = {"code_length": len(task.code), "topic": self.topic(task)}
        identity = content_id(self.name, prompt, answer)
        return Problem(identity, prompt, answer, self.name, "function_induction", features)

    def topic(self, task: FunctionTask) -> str:
        """What the function is made of: its kinds of operators and statements, sorted, as in "Add+If"."""
        kinds = {type(node).__name__ for node in ast.walk(ast.parse(task.code)) if isinstance(node, STRUCTURE)}
        return "+".join(sorted(kinds)) or "plain"


STRUCTURE = (
    *(ast.operator, ast.unaryop, ast.boolop, ast.If, ast.IfExp, ast.For, ast.While, ast.Call, ast.Subscript),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.JoinedStr),
)


def _in_range(literal: str, bounds: tuple[int, int] | None) -> bool:
    """Whether a literal is an integer within the bounds, or there are none."""
    return bounds is None or (INTEGER.fullmatch(literal) is not None and bounds[0] <= int(literal) <= bounds[1])
