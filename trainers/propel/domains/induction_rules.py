"""Static rules for generated functions; no function runs here.

The rules make a task well defined; the sandbox makes it safe. A text must define one function, which must give equal
results in every process. A name is refused everywhere, also as an attribute of anything, so that no alias and no other
module leads to it.
"""

import ast
import sys
from collections.abc import Iterator, Mapping

from halfway.curriculum.boxes.sandbox import Result
from halfway.curriculum.boxes.sandbox_worker import literal
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.tasks.verifiers.function_induction import PURE_MODULES
from halfway.trainers.propel.domains.domain import Invalid

MAX_CODE = 8_192
MAX_INPUT = 1_024

# Names with a leading underscore are banned as attributes and imports too, those with two underscores everywhere.
BANNED_NAMES = frozenset(
    {
        *("breakpoint", "compile", "dir", "eval", "exec", "exit", "help", "input", "open", "quit"),
        *("getattr", "setattr", "delattr", "globals", "locals", "vars"),
        *("hash", "id"),  # differ from process to process
    }
)
BANNED_ATTRIBUTES = (sys.stdlib_module_names - {part for name in PURE_MODULES for part in name.split(".")}) | {
    *("namedtuple", "NormalDist"),  # differ from process to process
    *("attrgetter", "methodcaller", "Formatter", "get_type_hints"),  # reach any name by a string
}
"""Attributes that no function may use: modules reachable from pure modules, and a few members of pure modules."""

REFUSED: Mapping[type[ast.AST], str] = {
    ast.ClassDef: "a class",
    ast.AsyncFunctionDef: "an async function",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.Global: "global",
}


def function_name(code: str) -> str | Invalid:
    """Find the name of the only function that the code defines, or why the code is not valid."""
    if len(code) > MAX_CODE:
        return Invalid("function too long", f"{len(code)} characters, at most {MAX_CODE}")
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Invalid("does not parse", type(error).__name__)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    others = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.Import | ast.ImportFrom)]
    if len(functions) != 1:
        return Invalid("not one function", f"{len(functions)} functions")
    if any(not _is_text(node) for node in others):
        return Invalid("not one function", "other statements beside it")
    function = functions[0]
    arguments = function.args
    if not (arguments.posonlyargs or arguments.args or arguments.vararg):
        return Invalid("no argument")
    if not any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(function)):
        return Invalid("returns nothing")
    trouble = next(_troubles(tree), None)
    return function.name if trouble is None else Invalid("banned", trouble)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _troubles(tree: ast.Module) -> Iterator[str]:
    """Yield the forbidden names and constructs that the code uses."""
    for node in ast.walk(tree):
        if type(node) in REFUSED:
            yield REFUSED[type(node)]
        elif isinstance(node, ast.Import):
            yield from (f"import {alias.name}" for alias in node.names if alias.name not in PURE_MODULES)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            if origin not in PURE_MODULES:
                yield f"import {origin}"
            yield from (f"{origin}.{alias.name}" for alias in node.names if _hidden(alias.name))
        elif isinstance(node, ast.Name) and (node.id in BANNED_NAMES or node.id.startswith("__")):
            yield f"the name {node.id}"
        elif isinstance(node, ast.Attribute) and _hidden(node.attr):
            yield f"the attribute {node.attr}"
        elif isinstance(node, ast.MatchClass):  # its keywords read attributes
            yield from (f"the attribute {name}" for name in node.kwd_attrs if _hidden(name))


def _hidden(name: str) -> bool:
    """True if an attribute or an imported member of this name is refused."""
    return name == "*" or name.startswith("_") or name in BANNED_ATTRIBUTES


def arguments(text: str) -> Result | Invalid:
    """Parse the arguments of one call as a tuple: its literal, and a text that equal arguments share."""
    if len(text) > MAX_INPUT:
        return Invalid("input too long", f"{len(text)} characters, at most {MAX_INPUT}")
    try:
        return Result(*literal(ast.literal_eval(f"({text.strip()},)")))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        return Invalid("input does not parse", one_line(error))
