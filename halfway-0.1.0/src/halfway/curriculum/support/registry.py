"""Registries of names for YAML files, filled by this repository and by installed packages."""

import difflib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from halfway.curriculum.support.errors import UserError


def unknown(what: str, name: object, known: Iterable[str], most: int = 1) -> UserError:
    """Make the error for an unknown name, with the nearest known names, whatever their case."""
    spelled = {one.lower(): one for one in sorted(known)}
    near = difflib.get_close_matches(str(name).lower(), spelled, n=most, cutoff=0.5)
    choice = f"choose one of {', '.join(spelled.values())}" if spelled else "there is none to choose here, so remove it"
    hint = f"did you mean {' or '.join(repr(spelled[one]) for one in near)}?" if near else choice
    return UserError(f"{what}: unknown name {str(name)!r}; {hint}")


@dataclass(frozen=True)
class Registry:
    """A table from names to importable objects, imported on use.

    Attributes:
        what: the configuration field, for error messages.
        builtin: name -> "module:attribute".
        group: entry-point group through which an installed package adds names.
        removed: former name -> why it was removed.
    """

    what: str
    builtin: Mapping[str, str]
    group: str = ""
    removed: Mapping[str, str] = field(default_factory=dict)
    _added: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, value: Any) -> None:
        """Register an object of this process, for notebooks and tests."""
        self._added[name] = value

    def names(self) -> list[str]:
        return sorted({*self.builtin, *self._find_installed(), *self._added})

    def get(self, name: str) -> Any:
        """Import the object called `name`. Raises UserError, with the nearest known name, if there is none."""
        if name in self._added:
            return self._added[name]
        if name in self.builtin:
            module, _, attribute = self.builtin[name].partition(":")
            return getattr(import_module(module), attribute)
        installed = self._find_installed()
        if name in installed:
            return installed[name].load()
        raise self.unknown(self.what, name)

    def unknown(self, what: str, name: str) -> UserError:
        """Make the error for an unknown name: why it was removed, or the nearest known name."""
        if name in self.removed:
            return UserError(f"{what}: {name!r} was removed: {self.removed[name]}")
        return unknown(what, name, self.names())

    def _find_installed(self) -> Mapping[str, EntryPoint]:
        return _find_entry_points(self.group, tuple(sys.path)) if self.group else {}


@cache
def _find_entry_points(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Find the entry points of a group, cached by module path: a scan of all installed packages takes 0.1 s."""
    return {point.name: point for point in entry_points(group=group)}
