"""Lists everything that a YAML file can name, with options and defaults, and makes the page about all controllers."""

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, NamedTuple, get_args, get_type_hints

from halfway.controllers import CONTROLLERS
from halfway.curriculum.controller import PassRateController
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.registries import ENVIRONMENTS, SOURCES
from halfway.curriculum.support.components import Component
from halfway.curriculum.support.registry import Registry, unknown
from halfway.curriculum.tasks.answers import Batched
from halfway.curriculum.tasks.verifiers import VERIFIERS
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.run import RunConfig
from halfway.trainers.engines import ENGINES
from halfway.trainers.propel.domains import DOMAINS

KINDS: Mapping[str, Registry] = {
    "controllers": CONTROLLERS,
    "domains": DOMAINS,
    "sources": SOURCES,
    "verifiers": VERIFIERS,
    "environments": ENVIRONMENTS,
    "engines": ENGINES,
}
SETTINGS: Mapping[str, type[Any]] = {
    **{name: hint for name, hint in get_type_hints(RunConfig).items() if isinstance(hint, type) and is_dataclass(hint)},
    "comparison": ComparisonConfig,
}
"""The fields of a run that have fields of their own, and the comparison, by name."""


HEAD = """# The controllers

One row for each registered controller, with its default options; `halfway list NAME` explains the options. *Alone in*:
two controllers of one chain may not do the same of these. *Keeps*: the fields of its state. This page is made by
`halfway list --markdown`.

| controller | what it does | formulas and sources | alone in | needs | keeps | options | may share a chain with |
|---|---|---|---|---|---|---|---|
"""
SOURCE = re.compile(r"arXiv[: ](\d{4}\.\d{4,5})")


class Option(NamedTuple):
    """An option as "name=default", and what its docstring says about it."""

    text: str
    about: str = ""


class Part(NamedTuple):
    """A name, its one-line description, and its options."""

    name: str
    about: str
    options: tuple[Option, ...] = ()


def catalogue(kind: str = "") -> dict[str, list[Part]]:
    """The components of one kind, or of all kinds. Settings come without their options; `explained` has these.

    Raises:
        UserError: for an unknown kind.
    """
    parts = {
        name: [_part(registry, key) for key in registry.names()]
        for name, registry in KINDS.items()
        if kind in ("", name)
    }
    if kind in ("", "settings"):
        parts["settings"] = [Part(name, first_line(options.__doc__)) for name, options in SETTINGS.items()]
    if not parts:
        raise unknown("list", kind, [*KINDS, "settings", *SETTINGS, *_names()])
    return parts


def explained(name: str) -> dict[str, list[Part]]:
    """The components and settings called `name`, by kind; empty if there are none."""
    parts = {kind: [_part(registry, name)] for kind, registry in KINDS.items() if name in registry.names()}
    if name in SETTINGS:
        parts["settings"] = [Part(name, first_line(SETTINGS[name].__doc__), _options(SETTINGS[name]))]
    return {kind: [part._replace(options=_grouped(part.options)) for part in listed] for kind, listed in parts.items()}


def _grouped(options: Sequence[Option]) -> tuple[Option, ...]:
    """The options, joined where several share an explanation, such as "mean and standard deviation of ..."."""
    grouped: dict[object, Option] = {}
    for place, option in enumerate(options):
        path = option.text.partition("=")[0].rpartition(".")[0]
        key = (path, option.about) if option.about else place
        grouped[key] = Option(f"{grouped[key].text}, {option.text}", option.about) if key in grouped else option
    return tuple(grouped.values())


def _names() -> set[str]:
    return {name for registry in KINDS.values() for name in registry.names()}


def _part(registry: Registry, name: str) -> Part:
    component = registry.get(name)
    if isinstance(component, Batched):
        component = component.judge
    options = _options(component) if is_dataclass(component) else ()
    return Part(name, first_line(component.__doc__), options)


def _options(kind: Any, path: str = "") -> tuple[Option, ...]:
    """The options of a component, with those of nested components under dotted names."""
    options: list[Option] = []
    texts = attribute_texts(kind)
    for field in fields(kind):
        nested: Any = field.default_factory
        if is_dataclass(nested):
            options += _options(nested, f"{path}{field.name}.")
        elif field.init:
            options.append(Option(path + _option(field), texts.get(field.name, "")))
    return tuple(options)


def attribute_texts(kind: type[Any]) -> dict[str, str]:
    """What the docstrings of a class and its bases say under "Attributes:", as one line per field.

    Example:
        >>> from halfway.trainers.loop.loop_options import CheckpointOptions
        >>> attribute_texts(CheckpointOptions)["keep"]
        'newest checkpoints kept.'
    """
    explained: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        _, _, listed = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")
        names: list[str] = []
        for line in listed.splitlines():
            if line and not line.startswith("    "):
                break
            start = re.match(r" {4}(\w+(?:, \w+)*): (.*)", line)
            if start:
                names = start[1].split(", ")
                explained |= dict.fromkeys(names, start[2])
            else:
                explained |= {name: f"{explained[name]} {line.strip()}".rstrip() for name in names}
    return explained


def _option(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f"{field.name}={_written(field.default)}"
    if field.default_factory is not MISSING:
        return f"{field.name}={_written(field.default_factory())}"
    return f"{field.name} (required)"


def _written(value: Any) -> str:
    """A default as it is written in YAML."""
    if isinstance(value, Component):
        return value.name or "{}"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_written, value))}]"
    # Strings that would break the line or be invisible are quoted.
    return json.dumps(value) if isinstance(value, str) and (not value.strip() or "\n" in value) else str(value)


def first_line(text: str | None) -> str:
    """The first line of a docstring."""
    return (text or "").strip().split("\n")[0]


def controllers_page() -> str:
    """The page about all registered controllers: what each does, claims, needs and keeps, and which it may join."""
    built = {part.name: CONTROLLERS.get(part.name)() for part in catalogue("controllers")["controllers"]}
    rows = (_controller_row(part, built) for part in catalogue("controllers")["controllers"])
    return HEAD + "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in rows)


def _controller_row(part: Part, built: dict[str, PassRateController[Any]]) -> tuple[str, ...]:
    controller = built[part.name]
    others = [name for name, other in built.items() if name != part.name and not other.claims & controller.claims]
    return (
        f"[`{part.name}`]({part.name}.py)",
        part.about,
        ", ".join(_sources(controller)) or "see the file",
        ", ".join(sorted(controller.claims)) or "",
        ", ".join(sorted(controller.needs)) or "",
        ", ".join(_state_fields(controller)) or "nothing",
        ", ".join(f"`{option.text}`" for option in part.options) or "none",
        "all others" if len(others) == len(built) - 1 else ", ".join(others) or "none",
    )


def _sources(controller: PassRateController[Any]) -> Iterator[str]:
    """Links to the papers that the file names, in order of appearance."""
    text = inspect.getsource(inspect.getmodule(controller) or type(controller))
    yield from (f"[{paper}](https://arxiv.org/abs/{paper})" for paper in dict.fromkeys(SOURCE.findall(text)))


def _state_fields(controller: PassRateController[Any]) -> Iterator[str]:
    """The names of the fields of a controller's state, except for the problems."""
    for base in type(controller).__orig_bases__:  # type: ignore[attr-defined]
        for state in get_args(base):
            if is_dataclass(state):
                yield from (field.name for field in fields(state) if field.type not in (ProblemSet, "ProblemSet"))
