"""What a generated function may look like, judged by reading it: nothing is run here.

The rules are about meaning, not about safety, which is the sandbox's business: a function must give equal results in
every process, and must be one function. Names are resolved: whatever reaches a module that is not allowed is refused,
under any alias and through any other module.
"""

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType

from halfway.curriculum.boxes.sandbox import Result
from halfway.curriculum.boxes.sandbox_worker import literal
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.tasks.function_induction import PURE_MODULES
from halfway.trainers.propel.domains.base import Invalid

MAX_CODE = 8_192
MAX_INPUT = 1_024

MODULES: Mapping[str, frozenset[str]] = dict.fromkeys(PURE_MODULES, frozenset[str]()) | {
    "collections": frozenset({"namedtuple"}),
    "operator": frozenset({"attrgetter", "methodcaller"}),
    "statistics": frozenset({"NormalDist"}),
    "string": frozenset({"Formatter"}),
    "typing": frozenset({"get_type_hints"}),
}
"""Modules that a function may import, each with the attributes that differ between processes, or that reach any name by
a string."""

# Names that begin with two underscores are banned too.
BANNED_NAMES = frozenset(
    {
        *("breakpoint", "compile", "dir", "eval", "exec", "exit", "help", "input", "open", "quit"),
        *("getattr", "setattr", "delattr", "globals", "locals", "vars"),
        *("hash", "id"),  # differ from process to process
    }
)
REFUSED: Mapping[type[ast.AST], str] = {
    ast.ClassDef: "a class",
    ast.AsyncFunctionDef: "an async function",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.Global: "global",
}


def function_name(code: str) -> str | Invalid:
    """The name of the one function that the code defines, or why it is not acceptable."""
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
    """What the code uses although it may not."""
    aliases: dict[str, ModuleType] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _import(node, aliases)
    bases = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if type(node) in REFUSED:
            yield REFUSED[type(node)]
        elif isinstance(node, ast.Name):
            if node.id in BANNED_NAMES or node.id.startswith("__"):
                yield f"the name {node.id}"
            elif node.id in aliases and (id(node) not in bases or not isinstance(node.ctx, ast.Load)):
                yield f"the module {node.id} as a value"
        elif isinstance(node, ast.arg) and node.arg in aliases:
            yield f"the module {node.arg} as an argument's name"
        elif isinstance(node, ast.Attribute):
            yield from _attribute(node, aliases)
        elif isinstance(node, ast.MatchClass):  # its keywords read attributes
            yield from (f"the attribute {name}" for name in node.kwd_attrs if name.startswith("_"))


def _import(node: ast.Import | ast.ImportFrom, aliases: dict[str, ModuleType]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name not in MODULES:
                yield f"import {alias.name}"
            else:
                top = alias.name if alias.asname else alias.name.partition(".")[0]
                aliases[alias.asname or top] = import_module(top)
        return
    origin = "." * node.level + (node.module or "")
    if origin not in MODULES:
        yield f"import {origin}"
        return
    module = import_module(origin)
    for alias in node.names:
        trouble = _member(module, alias.name)
        if trouble is not None:
            yield trouble
        elif isinstance(vars(module)[alias.name], ModuleType):
            aliases[alias.asname or alias.name] = vars(module)[alias.name]


def _member(module: ModuleType, name: str) -> str | None:
    """Why a module's attribute may not be used."""
    full = f"{module.__name__}.{name}"
    if name == "*":
        return f"from {module.__name__} import *"
    if name.startswith("_") or name in MODULES[module.__name__] or name not in vars(module):
        return full
    value = vars(module)[name]
    return full if isinstance(value, ModuleType) and value.__name__ not in MODULES else None


def _attribute(node: ast.Attribute, aliases: Mapping[str, ModuleType]) -> Iterator[str]:
    if node.attr.startswith("_"):
        yield f"the attribute {node.attr}"
    module = _module(node.value, aliases)
    if module is not None and (trouble := _member(module, node.attr)) is not None:
        yield trouble


def _module(node: ast.expr, aliases: Mapping[str, ModuleType]) -> ModuleType | None:
    """The module that an expression stands for, if any, following allowed attributes only."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if isinstance(node, ast.Attribute):
        outer = _module(node.value, aliases)
        if outer is not None and _member(outer, node.attr) is None:
            value = vars(outer)[node.attr]
            return value if isinstance(value, ModuleType) else None
    return None


def arguments(text: str) -> Result | Invalid:
    """The arguments of one call as a tuple: its literal, and the text that equal arguments share."""
    if len(text) > MAX_INPUT:
        return Invalid("input too long", f"{len(text)} characters, at most {MAX_INPUT}")
    try:
        return Result(*literal(ast.literal_eval(f"({text.strip()},)")))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        return Invalid("input does not parse", one_line(error))
