"""Paths in a configuration, written relative to its file and valid from any folder; and a model's own configuration."""

import glob
import json
from collections.abc import Mapping
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from halfway.curriculum import UserError
from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.atomic import read_whole
from halfway.curriculum.tasks.data_files import matches, path_errors

REPOSITORY = yaml_bases.REPOSITORY
"""The checkout, or the installed package, which contains recipes and starting models."""

Part = TypeVar("Part")

PROBLEM_SOURCES = ("source", "also", "generated")
"""Fields of `problems` that name a registered source."""


def anchor(raw: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Make the paths of model and problem files, relative to `folder`, valid from any folder."""
    result = dict(raw)
    for key, value in raw.items():
        if key == "model" and isinstance(value, Mapping):
            result[key] = _anchored_options(value, folder)
        elif key in ("base", "generator", "solver") and isinstance(value, Mapping):
            result[key] = anchor(value, folder)
        elif key in ("arms", "oracles") and isinstance(value, Mapping):
            result[key] = {k: anchor(v, folder) if isinstance(v, Mapping) else v for k, v in value.items()}
        elif key == "instances" and isinstance(value, list):
            result[key] = [anchor(each, folder) if isinstance(each, Mapping) else each for each in value]
        elif key == "domain":
            result[key] = _anchored_component(value, folder)
        elif key == "problems" and isinstance(value, Mapping):
            result[key] = {k: _anchored_component(v, folder) if k in PROBLEM_SOURCES else v for k, v in value.items()}
    return result


def _anchored_component(value: Any, folder: Path) -> Any:
    """Do the same for the options in `{name: options}`; anything else is left for later checks."""
    if not isinstance(value, Mapping):
        return value
    return {k: _anchored_options(v, folder) if isinstance(v, Mapping) else v for k, v in value.items()}


def _anchored_options(options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return {k: locate(v, folder) if is_path(k, v) else v for k, v in options.items()}


def is_path(name: object, value: Any) -> bool:
    """True if the name of an option says that it is a path of a file or folder."""
    named = isinstance(name, str) and (name == "path" or name.endswith("_path"))
    return named and isinstance(value, str) and value != ""


def locate(value: str, folder: Path) -> str:
    """Make a path valid from any folder: absolute, or relative to the repository if the file is in it.

    A relative path is looked up in `folder`, then in the current folder, then in the repository. A path found in none
    of them is unchanged, since it may be a name on a model hub.
    """
    with path_errors(value):
        for candidate in yaml_bases.candidates(Path(value).expanduser(), folder):
            if exists(candidate):
                place = candidate.resolve()
                return str(place.relative_to(REPOSITORY) if place.is_relative_to(REPOSITORY) else place)
    return value


def recipe(word: str | PathLike[str]) -> Path:
    """The file at this path if it exists; otherwise the recipe at this path in the repository or installed package."""
    path = Path(word)
    return REPOSITORY / path if not path.exists() and (REPOSITORY / path).is_file() else path


def find(value: str) -> Path:
    """Resolve a path made by `locate`: into the repository if it exists there, otherwise unchanged."""
    return REPOSITORY / value if exists(REPOSITORY / value) else Path(value)


def exists(path: Path) -> bool:
    """True if a file or folder exists, or a pattern such as data/train-*.parquet matches one."""
    if path.exists() or not glob.has_magic(str(path)):
        return path.exists()
    base = next((folder for folder in path.parents if folder.is_dir()), Path("."))
    return bool(matches(base, str(path.relative_to(base))))


def paths_of(part: Any) -> dict[str, str]:
    """The options of a component that are paths; empty if there is no component."""
    options = {field.name: getattr(part, field.name) for field in fields(part)} if part else {}
    return {name: value for name, value in options.items() if is_path(name, value)}


LONGEST_CONFIG = 2 << 20
"""Bytes of a model's config.json."""


def openable(part: Part) -> Part:
    """Resolve the paths of a component, so that they can be opened from the current folder."""
    opened = {name: str(find(value)) for name, value in paths_of(part).items()}
    return replace(part, **opened) if opened else part  # type: ignore[type-var]


def find_model(path: str) -> str:
    """Resolve a model: its folder, or its name on a hub as given.

    Raises:
        UserError: if the path must be a folder, and the folder does not exist or holds no model.
    """
    folder = find(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").exists():
            raise UserError(f"model.path: {path!r} holds no config.json; give a folder saved by transformers")
        return str(folder)
    if folder.is_absolute() or path.startswith((".", "~")) or path.count("/") > 1:
        raise UserError(
            f"model.path: {path!r} is not a folder; give a folder saved by transformers, or owner/name on a hub"
        )
    return path


def model_config(path: str) -> dict[str, Any]:
    """A model's config.json; empty if it is not on this machine. Raises UserError if it cannot be read."""
    file = find(path).expanduser() / "config.json"
    if not file.exists():
        return {}
    try:
        content = json.loads(read_whole(file, "give a folder saved by transformers", LONGEST_CONFIG))
    except (ValueError, RecursionError) as error:
        raise UserError(f"model.path: {file} is not JSON ({error}); give a folder saved by transformers") from None
    return content if isinstance(content, dict) else {}
