"""Lists everything that a YAML file can name, with options and defaults, and makes the page about all controllers."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, NamedTuple, get_type_hints

from halfway.controllers import CONTROLLERS
from halfway.curriculum import Registry, unknown
from halfway.curriculum.registries import ENVIRONMENTS, SOURCES
from halfway.curriculum.support.components import Component
from halfway.curriculum.tasks.verifiers.exact_numeric import Batched
from halfway.curriculum.tasks.verifiers.verify import VERIFIERS
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.run import RunConfig
from halfway.experiments.output_flags import section_texts
from halfway.experiments.papers import PAPERS, find_papers, papers_of, plainly
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


_SENTENCE = re.compile(r'(?<=\.) (?=[A-Z"`]|\w+: )')
CONTRIB = "contrib"
"""The heading of controllers that were not shown to help here."""
HEAD = """# The controllers

`halfway list NAME` explains a controller and its options, by its own name or by that of its paper. This page is made by
`halfway list --markdown`.
"""
ROOMS = {
    "controllers": "",
    CONTRIB: """
## Not shown to help here

These are implemented as published; [a list of our measurements](contrib/__init__.py) says what each gained or lost.
""",
}


class Option(NamedTuple):
    """An option as "name=default", with its text from the docstring."""

    text: str
    about: str = ""


class Part(NamedTuple):
    """A name, its one-line description, and its options."""

    name: str
    about: str
    options: tuple[Option, ...] = ()


def catalogue(kind: str = "") -> dict[str, list[Part]]:
    """The components of one kind, or of all kinds; controllers in two groups, those that one should try first and
    "contrib". Settings come without their options; `explain` has these.

    Raises:
        UserError: for an unknown kind.
    """
    if kind == CONTRIB:
        return {kind: catalogue("controllers")[kind]}
    parts: dict[str, list[Part]] = {}
    for name, registry in KINDS.items():
        if kind in ("", name):
            for key in sorted(registry.names(), key=lambda key: _heading(name, registry, key) != name):
                parts.setdefault(_heading(name, registry, key), []).append(_part(registry, key))
    if kind in ("", "settings"):
        parts["settings"] = [Part(name, first_line(options.__doc__)) for name, options in SETTINGS.items()]
    if not parts:
        for registry in KINDS.values():
            if kind in registry.removed:
                raise registry.unknown("list", kind)
        methods = (name for paper in PAPERS for name in paper.names)
        raise unknown("list", kind, [*KINDS, "settings", *_names(), *methods], most=3)
    return parts


def _heading(kind: str, registry: Registry, name: str) -> str:
    return CONTRIB if registry.builtin.get(name, "").startswith("halfway.controllers.contrib.") else kind


def explain(name: str) -> dict[str, list[Part]]:
    """Find the papers, components and settings with a name, by kind; empty if there are none.

    Args:
        name: name of a part or of a paper's method, or an arXiv number; case and punctuation do not matter. Names that
            only an explanation mentions need their punctuation, and with a single capital their case.
    """
    names = [known for known in _names() if name and plainly(known) == plainly(name)]
    papers = find_papers(name) or [paper for known in names if known not in SETTINGS for paper in papers_of(known)]
    names = names or [part for paper in papers for part in paper.parts]
    parts = {}
    if papers:
        parts["papers"] = [
            Part(paper.names[0], f"{paper.title}, {paper.url}", (Option(paper.yaml),)) for paper in papers
        ]
    for kind, registry in KINDS.items():
        for key in registry.names():
            if key in names:
                parts.setdefault(_heading(kind, registry, key), []).append(_part(registry, key))
    for key in SETTINGS:
        if key in names:
            parts.setdefault("settings", []).append(
                Part(key, first_line(SETTINGS[key].__doc__), _options(SETTINGS[key]))
            )
    if not parts:
        return _mentions(name)
    return {kind: [part._replace(options=_grouped(part.options)) for part in listed] for kind, listed in parts.items()}


def _mentions(name: str) -> dict[str, list[Part]]:
    """Find the parts whose explanation mentions a name with a capital or a digit, each with that sentence."""
    word = re.compile(rf"(?<![\w.])(?i:{re.escape(name)})(?!\w)")
    parts: dict[str, list[Part]] = {}

    def names_it(sentence: str) -> bool:
        found = word.findall(sentence)
        return any(re.search(r"[A-Z].*[A-Z]|\d", each) or each == name != name.lower() for each in found)

    for kind, registry in KINDS.items() if len(name) > 2 else ():
        for key in registry.names():
            part, text = _part(registry, key), " ".join((registry.get(key).__doc__ or "").split())
            sentences = tuple(Option(each) for each in _SENTENCE.split(text) if names_it(each))
            if sentences:
                parts.setdefault(_heading(kind, registry, key), []).append(part._replace(options=sentences))
    return parts


def _grouped(options: Sequence[Option]) -> tuple[Option, ...]:
    """Join options with a common explanation, such as "mean and standard deviation of ..."."""
    grouped: dict[object, Option] = {}
    for place, option in enumerate(options):
        path = option.text.partition("=")[0].rpartition(".")[0]
        key = (path, option.about) if option.about else place
        grouped[key] = Option(f"{grouped[key].text}, {option.text}", option.about) if key in grouped else option
    return tuple(grouped.values())


def _names() -> set[str]:
    return {*SETTINGS, *(name for registry in KINDS.values() for name in registry.names())}


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
    """Map each field of a class to its description, one line from "Attributes:" in the docstrings of it and its bases.

    Example:
        >>> from halfway.trainers.loop.loop_options import CheckpointOptions
        >>> attribute_texts(CheckpointOptions)["keep"]
        'number of newest checkpoints kept.'
    """
    bases = (section_texts(base.__doc__, "Attributes:\n") for base in reversed(kind.__mro__))
    return {name: text for texts in bases for name, text in texts.items()}


def _option(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f"{field.name}={_write(field.default)}"
    if field.default_factory is not MISSING:
        return f"{field.name}={_write(field.default_factory())}"
    return f"{field.name} (required)"


def _write(value: Any) -> str:
    """Write a default as YAML."""
    if isinstance(value, Component):
        return value.name or "{}"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_write, value))}]"
    # Strings that would break the line or be invisible are quoted.
    return json.dumps(value) if isinstance(value, str) and (not value.strip() or "\n" in value) else str(value)


def first_line(text: str | None) -> str:
    """The first line of a docstring."""
    return (text or "").strip().split("\n")[0]


def controllers_page() -> str:
    """The page about all registered controllers: name, purpose and papers of each, in two groups."""
    return HEAD + "".join(_tables())


def _tables() -> Iterator[str]:
    for heading, parts in catalogue("controllers").items():
        yield f"{ROOMS[heading]}\n| controller | what it does | papers |\n|---|---|---|\n"
        for part in parts:
            file = CONTROLLERS.get(part.name).__module__.removeprefix("halfway.controllers.").replace(".", "/")
            papers = ", ".join(f"[{paper.names[0]}]({paper.url})" for paper in papers_of(part.name))
            yield f"| [`{part.name}`]({file}.py) | {part.about} | {papers} |\n"
