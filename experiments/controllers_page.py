"""Makes the page about all registered controllers: what each does, claims, needs and keeps, and which it may join."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args

from halfway.controllers import CONTROLLERS
from halfway.curriculum.controller import PassRateController
from halfway.curriculum.problems import ProblemSet
from halfway.experiments.catalogue import Part, catalogue

HEAD = """# The controllers

One row for each registered controller, with its default options; `halfway list NAME` explains the options. *Alone in*:
two controllers of one chain may not do the same of these. *Keeps*: the fields of its state. This page is made by
`halfway list --markdown`.

| controller | what it does | formulas and sources | alone in | needs | keeps | options | may share a chain with |
|---|---|---|---|---|---|---|---|
"""
SOURCE = re.compile(r"arXiv[: ](\d{4}\.\d{4,5})")


def page() -> str:
    """The whole page in Markdown."""
    built = {part.name: CONTROLLERS.get(part.name)() for part in catalogue("controllers")["controllers"]}
    rows = (_row(part, built) for part in catalogue("controllers")["controllers"])
    return HEAD + "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in rows)


def _row(part: Part, built: dict[str, PassRateController[Any]]) -> tuple[str, ...]:
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
