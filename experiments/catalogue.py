"""What a YAML file can name: every registered part with one line about it and its options."""

import ast
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

from controllers import CONTROLLERS
from curriculum.domains.base import DOMAINS
from curriculum.environments import ENVIRONMENTS
from curriculum.registry import Registry, unknown
from curriculum.sources import SOURCES
from curriculum.verifiers import VERIFIERS
from trainers.engines import ENGINES

KINDS: Mapping[str, Registry] = {
    "controllers": CONTROLLERS,
    "domains": DOMAINS,
    "sources": SOURCES,
    "verifiers": VERIFIERS,
    "environments": ENVIRONMENTS,
    "engines": ENGINES,
}


class Part(NamedTuple):
    """A registered name, its one-line description, and its options as "name=default"."""

    name: str
    about: str
    options: tuple[str, ...]


def catalogue(kind: str = "") -> dict[str, list[Part]]:
    """The parts of one kind, or of all. Raises UserError for an unknown kind."""
    if kind and kind not in KINDS:
        raise unknown("list", kind, KINDS)
    chosen = {kind: KINDS[kind]} if kind else KINDS
    return {name: [_part(registry, key) for key in registry.names()] for name, registry in chosen.items()}


def _part(registry: Registry, name: str) -> Part:
    if registry is ENGINES:  # importing an engine imports its deep-learning library
        return Part(name, engine_summary(name), ())
    found = registry.get(name)
    options = _options(found) if is_dataclass(found) else ()
    return Part(name, first_line(found.__doc__), options)


def _options(kind: Any, path: str = "") -> tuple[str, ...]:
    """The options of a part, those of its own parts included, by dotted names."""
    found: list[str] = []
    for field in fields(kind):
        nested: Any = field.default_factory
        if is_dataclass(nested):
            found += _options(nested, f"{path}{field.name}.")
        elif field.init:
            found.append(path + _option(field))
    return tuple(found)


def _option(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f"{field.name}={field.default}"
    if field.default_factory is not MISSING:
        return f"{field.name}={field.default_factory()}"
    return f"{field.name} (required)"


def engine_summary(name: str) -> str:
    """The first line of an engine's docstring, read from its source without importing it."""
    target = ENGINES.builtin.get(name, "")
    module, _, attribute = target.partition(":")
    spec = find_spec(module) if module else None
    if spec is None or spec.origin is None:
        return "from an installed package"
    with open(spec.origin) as file:
        tree = ast.parse(file.read())
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == attribute:
            return first_line(ast.get_docstring(node))
    return ""


def first_line(text: str | None) -> str:
    """The first sentence line of a docstring."""
    return (text or "").strip().split("\n")[0]
