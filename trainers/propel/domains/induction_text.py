"""The two ways in which function-induction tasks are written. How answers are read stands with their verifier."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from halfway.curriculum.support.blocks import fenced
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.tasks.function_induction import as_function
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


class Fenced:
    """Markdown with code blocks."""

    has_message = True

    def ask(self, seed: str, inputs: int) -> str:
        """The generator's prompt."""
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
        """The solver's prompt."""
        lines = "\n".join(f"f({_inner(pair.arguments)}) = {pair.result}" for pair in pairs)
        return POSE.format(pairs=lines, message=message)


def _inner(arguments: str) -> str:
    """A tuple literal without its brackets."""
    return arguments[1:-1].rstrip(",")


class Short:
    """One line: the inputs, then an expression of x, as in "1,2,3>x*3ix>4ex/2". A slash is a whole-number division, i
    and e stand for "if" and "else". The solver sees the pairs as in "1:3,2:6=" and answers with an expression.

    The expression comes last because a small model that has just written it still knows what it was.
    """

    has_message = False

    def ask(self, seed: str, inputs: int) -> str:
        return "!"

    def read(self, text: str) -> Written | Invalid:
        inputs, mark, expression = text.partition(">")
        code = as_function(expression)
        if not mark or code is None:
            return Invalid("unreadable", one_line(text))
        return Written(code, tuple(inputs.split(",")), "")

    def pose(self, pairs: Sequence[Shown], message: str) -> str:
        return ",".join(f"{_inner(pair.arguments)}:{pair.result}" for pair in pairs) + "="


SYNTAXES: Mapping[str, Fenced | Short] = {"fenced": Fenced(), "short": Short()}
