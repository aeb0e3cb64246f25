"""Finds the file and line of each field of a configuration, for error messages."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from halfway.curriculum import UserError
from halfway.curriculum.support import yaml_bases

ARM = re.compile(r"(arms\.[\w.-]+?): (?=[\w.\[\]-]+: )")
"""Prefix of a field in which an arm has a mistake."""


class Place(NamedTuple):
    """File and line of a dotted field, and the rest of the field that is not written there."""

    file: Path
    line: int
    left: str


def place_mistakes(file: Path, error: UserError, overrides: Sequence[str] = ()) -> list[str]:
    """The mistakes found in a file, each once, with file and line of the field.

    A field of a base has the line in the base. A missing field has the line of the section that lacks it. A field that
    is written nowhere, or set by an override, has only the name of the file.
    """
    changed = tuple(f"{override.partition('=')[0]}." for override in overrides)
    lines: dict[tuple[Place | None, str], str] = {}
    layers = list(_layers(file))
    for one in error.all:
        message, found = str(one), ARM.match(str(one))
        shared = message[found.end() :] if found else message
        field = shared.partition(": ")[0]
        in_arm = [_place(layer, f"{found[1]}.{field}") for layer in layers] if found else []
        elsewhere = [_place(layer, f"{lower}{field}") for layer in layers for lower in ("", "base.")]
        written = [place for place in (*in_arm, *elsewhere) if place.line and not f"{field}.".startswith(changed)]
        best = min(written, key=lambda place: len(place.left), default=None)
        where = f"{best.file}:{best.line}: " if best else "" if message.startswith(f"{file}:") else f"{file}: "
        lines.setdefault((best, shared), where + (message if best in in_arm or best is None else shared))
    return list(lines.values())


def _layers(file: Path) -> Iterator[tuple[Path, Any]]:
    """The YAML nodes of a file and of its bases, up to the first that cannot be read."""
    waiting, seen = [file], set[str]()
    while waiting and os.path.realpath(waiting[-1]) not in seen:
        path = waiting.pop()
        seen.add(os.path.realpath(path))
        try:
            base = yaml_bases.parse(path).get("base")
            yield path, yaml_bases.nodes(path)
            base = base.get("base") if isinstance(base, dict) else base
            waiting += [yaml_bases.base_file(base, path.parent)] if isinstance(base, str) else []
        except UserError:
            return


def _place(layer: tuple[Path, Any], field: str) -> Place:
    """The place of a field in one file, or of the longest part of it that is there; line 0 = no part."""
    file, node = layer
    line, left = 0, field
    while pair := next((pair for pair in _pairs(node) if f"{left}.".startswith(f"{pair[0].value}.")), None):
        key, node = pair
        line, left = key.start_mark.line + 1, left[len(key.value) + 1 :]
    return Place(file, line, left)


def _pairs(node: Any) -> list[tuple[Any, Any]]:
    """Keys and values of a mapping. An entry of a list, `name` or `{name: options}`, counts as a key."""
    if node.id == "sequence":
        return [pair for entry in node.value for pair in ([(entry, entry)] if entry.id == "scalar" else _pairs(entry))]
    return [pair for pair in node.value if pair[0].id == "scalar"] if node.id == "mapping" else []
