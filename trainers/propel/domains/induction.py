"""Function induction: the generator writes a function, ten inputs and a message; the solver infers the function.

A text is Markdown with code blocks. The solver sees half of the input-output pairs and the message, and writes a
function. It passes if the function gives the reference's result on every other input, as judged by
`halfway.curriculum.tasks.verifiers.function_induction`. After Absolute Zero (function induction) and PROPEL, section
4.2, with stricter validity: see `FunctionInduction.check`.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from halfway.curriculum import Problem, Stream, require
from halfway.curriculum.boxes.sandbox import Failure, Job, Outcome, Result, SandboxOptions
from halfway.curriculum.support.blocks import find_fenced
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.tasks.sources import content_id
from halfway.curriculum.tasks.verifiers.function_induction import Reference, run
from halfway.trainers.propel.domains.domain import Invalid
from halfway.trainers.propel.domains.induction_rules import arguments, function_name

CODE_IN_MESSAGE = re.compile(r"```|\bdef \w+\s*\(|\blambda\b[^.]*:|\breturn\s+[\w(\[{]+\s*[-+*/%]")
MAX_MESSAGE = 1_000

ASK = """\
Write a new puzzle for a programmer who has to infer a hidden function from examples. Here is a function to start from:

```python
{seed}
```

Give, in this order:
1. One deterministic Python function, in a block that begins with ```python. It takes at least one argument and \
returns a value made of numbers, texts, lists, tuples, sets and dictionaries. Import only pure modules of the standard \
library.
2. {inputs} different inputs, each in a block of its own that begins with ```input: the arguments, separated by commas.
3. A message to the programmer in a block that begins with ```message. It hints at what the function does and contains \
no code.
"""

POSE = """\
Infer the function f from what it returns and from a hint, so that it also gives the right values on other inputs.

{pairs}

Hint: {message}

Answer with the complete Python function f in a block that begins with ```python.
"""


@dataclass(frozen=True, slots=True)
class FunctionTask:
    """A function with its inputs.

    Attributes:
        code, entry: Python that defines one function, and the function's name.
        inputs: the arguments of each call, as the text of a tuple literal.
        message: the hint.
        results: the function's result on each input; empty until the task is checked.
    """

    code: str
    entry: str
    inputs: tuple[str, ...]
    message: str
    results: tuple[Result, ...] = ()


@dataclass(frozen=True)
class FunctionInduction:
    """Tasks to infer a function from some of its results, judged on further inputs; code runs only in a sandbox.

    Attributes:
        inputs: number of inputs per task, which must be even; the first half is shown. If a text has more, only its
            last ones count.
        distinct_results: minimum number of different results over the inputs; 2 rules out constants.
        seed_functions: functions; the generator's prompt shows one of them.
        seconds: time limit for a function on all its inputs, for the generator's and the solver's functions.
        processes: functions that run at once, in each of the sandbox's two lanes.
    """

    name: ClassVar[str] = "function_induction"
    open: ClassVar[bool] = False
    inputs: int = 10
    distinct_results: int = 1
    seed_functions: tuple[str, ...] = ("def f(a):\n    return a",)
    seconds: float = 10.0
    processes: int = 1

    def __post_init__(self) -> None:
        even = self.inputs >= 2 and self.inputs % 2 == 0
        require(even, "induction.inputs", self.inputs, "give an even number above 0")
        results, remedy = self.distinct_results, f"give 1 to {self.inputs}, the number of inputs"
        require(1 <= results <= self.inputs, "induction.distinct_results", results, remedy)
        require(bool(self.seed_functions), "induction.seed_functions", self.seed_functions, "list at least one")
        for code in self.seed_functions:
            trouble = function_name(code)
            require(isinstance(trouble, str), "induction.seed_functions", code, f"correct it: {trouble}")
        SandboxOptions(self.seconds, processes=self.processes)

    def prompt(self, stream: Stream) -> str:
        chosen = self.seed_functions[stream.integer() % len(self.seed_functions)]
        return ASK.format(seed=chosen, inputs=self.inputs)

    def parse(self, text: str, prompt: str = "") -> FunctionTask | Invalid:
        """Parse the text, and check all that can be checked without running it."""
        parts: dict[str, list[str]] = {"python": [], "input": [], "message": []}
        for name, body in find_fenced(text):
            parts.get(name, []).append(body.strip())
        if len(parts["python"]) != 1:
            return Invalid("not one function", f"{len(parts['python'])} python blocks")
        code, message = parts["python"][0], parts["message"][-1] if parts["message"] else ""
        if not message:
            return Invalid("no message")
        if len(message) > MAX_MESSAGE or CODE_IN_MESSAGE.search(message):
            return Invalid("code in the message", one_line(message))
        if len(parts["input"]) < self.inputs:
            return Invalid("too few inputs", f"{len(parts['input'])}, {self.inputs} are needed")
        entry = function_name(code)
        if isinstance(entry, Invalid):
            return entry
        inputs: dict[str, str] = {}
        for one in parts["input"][-self.inputs :]:
            read = arguments(one)
            if isinstance(read, Invalid):
                return read
            if read.key in inputs:  # a shown pair would give a hidden one away
                return Invalid("repeated input", one_line(one))
            inputs[read.key] = read.shown
        return FunctionTask(code, entry, tuple(inputs.values()), message)

    def check(self, tasks: Sequence[FunctionTask]) -> list[FunctionTask | Invalid]:
        """Run each function twice, in two processes with different hash seeds, the second time in reverse order.

        A function is valid if it ends in time, raises nothing, returns plain and finite values other than None that are
        equal in both runs, and has at least `distinct_results` different results. The reverse order reveals a function
        whose result changes from call to call.
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
        if len(keys) < self.distinct_results:
            return Invalid("too few different results", f"{len(keys)}, at least {self.distinct_results}")
        return replace(task, results=forward)

    def problem(self, task: FunctionTask) -> Problem:
        assert task.results, "the task has not been checked"
        half = self.inputs // 2
        calls = [call_text(text, result) for text, result in zip(task.inputs, task.results, strict=True)]
        prompt = POSE.format(pairs="\n".join(calls[:half]), message=task.message)
        hidden = tuple(result.key for result in task.results[half:])
        answer = Reference(self.seconds, task.inputs[half:], hidden).as_text()
        features: dict[str, float | str] = {"code_length": len(task.code), "topic": self.topic(task)}
        identity = content_id(self.name, prompt, answer)
        return Problem(identity, prompt, answer, self.name, "function_induction", features)

    def topic(self, task: FunctionTask) -> str:
        """The topic of a function: its kinds of operators and statements, sorted, as in "Add+If"."""
        kinds = {type(node).__name__ for node in ast.walk(ast.parse(task.code)) if isinstance(node, STRUCTURE)}
        return "+".join(sorted(kinds)) or "plain"


STRUCTURE = (
    *(ast.operator, ast.unaryop, ast.boolop, ast.If, ast.IfExp, ast.For, ast.While, ast.Call, ast.Subscript),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.JoinedStr),
)


def call_text(arguments: str, result: Result) -> str:
    """Show one call to the solver, as in "f(1, [2]) = 3".

    Args:
        arguments: text of a tuple literal.
    """
    return f"f({arguments[1:-1].rstrip(',')}) = {result.shown}"
