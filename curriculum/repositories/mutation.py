"""Makes faults by rule: one edit of one expression or statement inside a function. No code runs here."""

import ast
import difflib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

OPPOSITE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
OTHER: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
ORDERED = (ast.Sub, ast.Div, ast.Mod, ast.FloorDiv)


@dataclass(frozen=True, slots=True)
class Mutant:
    """An edit that breaks one function.

    Attributes:
        path: the file.
        function: qualified name of the function that contains it.
        kind: kind of edit.
        line: first line of the edit, counted from 1.
        text: the whole file with the fault.
    """

    path: str
    function: str
    kind: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Site:
    """A place for one edit."""

    path: str
    source: str
    function: str
    kind: str
    node: Any
    new: str

    def mutant(self) -> Mutant | None:
        """Apply the edit; None if it changes nothing, or the file then does not parse."""
        text = _splice(self.source, self.node, self.new)
        return None if text is None else Mutant(self.path, self.function, self.kind, self.node.lineno, text)


def sites(path: str, source: str) -> Iterator[Site]:
    """Yield every place for an edit in a file's functions, up to what does not parse or nests too deeply."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # the last by a stack of the parser
        for name, function in _functions(ast.parse(source), ""):
            for kind, node, new in _edits(function):
                yield Site(path, source, name, kind, node, new)


def patch(path: str, before: str, after: str) -> str:
    """Make a diff of one file that `git apply` accepts."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _functions(node: ast.AST, above: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield functions that are not inside another function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield above + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{above}{child.name}.")
        elif isinstance(child, ast.If | ast.Try):
            yield from _functions(child, above)


Edit = tuple[str, Any, str]
"""Kind of edit, node, and the source text that replaces the node."""


def _edits(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Edit]:
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    for statement in body:
        for node in ast.walk(statement):
            for kinds, edit in EDITS:
                if isinstance(node, kinds):
                    yield from edit(node)


def _compare(node: Any) -> Iterator[Edit]:
    if len(node.ops) == 1:
        left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
        yield "compare", node, f"{left} {OPPOSITE[type(node.ops[0])]} {right}"


def _operator(node: Any) -> Iterator[Edit]:
    if type(node.op) in OTHER:
        yield "operator", node, f"({ast.unparse(ast.BinOp(node.left, OTHER[type(node.op)](), node.right))})"
    if isinstance(node.op, ORDERED):
        yield "operands", node, f"({ast.unparse(ast.BinOp(node.right, node.op, node.left))})"


def _and_or(node: Any) -> Iterator[Edit]:
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield "and_or", node, f"({ast.unparse(ast.BoolOp(other, node.values))})"


def _not(node: Any) -> Iterator[Edit]:
    if isinstance(node.op, ast.Not):
        yield "not", node, f"({ast.unparse(node.operand)})"


def _constant(node: Any) -> Iterator[Edit]:
    if type(node.value) is bool:
        yield "bool", node, str(not node.value)
    elif type(node.value) is int:
        yield "off_by_one", node, str(node.value + 1)
        if node.value > 0:
            yield "off_by_one", node, str(node.value - 1)


def _branch(node: Any) -> Iterator[Edit]:
    yield "invert", node.test, f"not ({ast.unparse(node.test)})"
    if isinstance(node, ast.If) and not node.orelse:
        yield "remove_branch", node, "pass"


def _call(node: Any) -> Iterator[Edit]:
    first = node.args[:2]
    if len(first) == 2 and not any(isinstance(argument, ast.Starred) for argument in first):
        one, other = map(ast.unparse, first)
        if one != other:
            swapped = ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
            yield "arguments", node, ast.unparse(swapped)


def _return(node: Any) -> Iterator[Edit]:
    if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield "return", node, "return None"


def _bare_call(node: Any) -> Iterator[Edit]:
    if isinstance(node.value, ast.Call):
        yield "remove_call", node, "pass"


def _remove(what: str, node: Any) -> Iterator[Edit]:
    yield f"remove_{what}", node, "pass"


EDITS: tuple[tuple[Any, Callable[[Any], Iterator[Edit]]], ...] = (
    (ast.Compare, _compare),
    (ast.BinOp, _operator),
    (ast.BoolOp, _and_or),
    (ast.UnaryOp, _not),
    (ast.Constant, _constant),
    ((ast.If, ast.While, ast.IfExp), _branch),
    (ast.Call, _call),
    (ast.Return, _return),
    ((ast.Assign, ast.AugAssign), partial(_remove, "assignment")),
    (ast.Expr, _bare_call),
    (ast.For, partial(_remove, "loop")),
)


def _splice(source: str, node: Any, new: str) -> str | None:
    """Replace the node's text in the source; None if that changes nothing, or the source then does not parse."""
    lines = source.encode().splitlines(keepends=True)  # columns of ast count bytes
    head = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    tail = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    try:
        text = (head + new.encode() + tail).decode()
        compile(text, "mutant", "exec")
    except (SyntaxError, ValueError):
        return None
    return text if text != source else None
