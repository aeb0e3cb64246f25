"""The two ways in which function-induction tasks and their answers are written."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from halfway.curriculum.support.blocks import fenced
from halfway.curriculum.support.extras import one_line
from halfway.trainers.propel.domains.base import Invalid

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


class Written(NamedTuple):
    """The parts of a task, as they stand in the text."""

    code: str
    inputs: tuple[str, ...]
    message: str


class Shown(NamedTuple):
    """One pair: the arguments as the text of a tuple literal, and the result as a literal."""

    arguments: str
    result: str


class Syntax(Protocol):
    """How tasks are asked for, written, posed and answered."""

    @property
    def has_message(self) -> bool: ...

    def ask(self, seed: str, inputs: int) -> str:
        """The generator's prompt."""
        ...

    def read(self, text: str) -> Written | Invalid:
        """What a generator wrote."""
        ...

    def pose(self, pairs: Sequence[Shown], message: str) -> str:
        """The solver's prompt."""
        ...

    def answer(self, response: str) -> str | None:
        """Python that defines f, from a solver's response; None if there is none in it."""
        ...


@dataclass(frozen=True)
class Fenced:
    """Markdown with code blocks."""

    @property
    def has_message(self) -> bool:
        return True

    def ask(self, seed: str, inputs: int) -> str:
        return ASK.format(seed=seed, inputs=inputs)

    def read(self, text: str) -> Written | Invalid:
        """The one python block, all input blocks, and the last message block."""
        parts: dict[str, list[str]] = {"python": [], "input": [], "message": []}
        for name, body in fenced(text):
            parts.get(name, []).append(body.strip())
        if len(parts["python"]) != 1:
            return Invalid("not one function", f"{len(parts['python'])} python blocks")
        return Written(parts["python"][0], tuple(parts["input"]), (parts["message"] or [""])[-1])

    def pose(self, pairs: Sequence[Shown], message: str) -> str:
        lines = "\n".join(f"f({_inner(pair.arguments)}) = {pair.result}" for pair in pairs)
        return POSE.format(pairs=lines, message=message)

    def answer(self, response: str) -> str | None:
        """The last python block."""
        blocks = [body for name, body in fenced(response) if name == "python"]
        return blocks[-1] if blocks else None


def _inner(arguments: str) -> str:
    """A tuple literal without its brackets."""
    return arguments[1:-1].rstrip(",")


@dataclass(frozen=True)
class Short:
    """One line: the inputs, then an expression of x, as in "1,2,3>x*3ix>4ex/2". A slash is a whole-number division, i
    and e stand for "if" and "else". The solver sees the pairs as in "1:3,2:6=" and answers with an expression.

    The expression comes last because a small model that has just written it still knows what it was.
    """

    @property
    def has_message(self) -> bool:
        return False

    def ask(self, seed: str, inputs: int) -> str:
        return "!"

    def read(self, text: str) -> Written | Invalid:
        inputs, mark, expression = text.partition(">")
        code = _as_function(expression)
        if not mark or code is None:
            return Invalid("unreadable", one_line(text))
        return Written(code, tuple(inputs.split(",")), "")

    def pose(self, pairs: Sequence[Shown], message: str) -> str:
        return ",".join(f"{_inner(pair.arguments)}:{pair.result}" for pair in pairs) + "="

    def answer(self, response: str) -> str | None:
        return _as_function(response)


SHORT_TEXT = re.compile(r"[x0-9+\-*/%()<>=ie]{1,60}")
SHORT_WORDS = {"i": " if ", "e": " else ", "/": "//"}


def _as_function(expression: str) -> str | None:
    """The function of a short expression; None unless it is one expression of x without powers."""
    if not SHORT_TEXT.fullmatch(expression) or "**" in expression or "//" in expression:
        return None
    python = "".join(SHORT_WORDS.get(character, character) for character in expression)
    try:
        tree = ast.parse(python, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if any(isinstance(node, ast.Call | ast.Tuple) for node in ast.walk(tree)):
        return None
    return f"def f(x):\n    return {python}"


SYNTAXES: Mapping[str, Syntax] = {"fenced": Fenced(), "short": Short()}
