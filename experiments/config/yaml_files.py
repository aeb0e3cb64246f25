"""Reads YAML files and dotted overrides, resolves paths, and replaces interpolations. Results are unchecked."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from halfway.curriculum import UserError, refusal, require
from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.acceptance import require_accepted
from halfway.curriculum.support.extras import one_line
from halfway.experiments.config.paths import anchor


def read(path: Path) -> dict[str, Any]:
    """Read the mapping in a YAML file, merged over its bases, with its paths resolved. Raises UserError."""
    return yaml_bases.read(path, anchor)


def is_study(raw: Mapping[str, Any]) -> bool:
    """True if a mapping is a study of task generators: only studies and their bases have a domain."""
    lower = raw.get("base")
    return "domain" in raw or (isinstance(lower, Mapping) and "domain" in lower)


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """Parse overrides such as "learner.lr=3e-4" into a nested mapping; paths are relative to the current folder."""
    changes: dict[str, Any] = {}
    limits = [override.partition("=")[0] for override in overrides if override.startswith("budget.")]
    for limit in limits:
        require(limit == limits[0], limit, limits, "a budget has one limit; give one of these")
    for override in overrides:
        changes = yaml_bases.merge(changes, _parse_override(override))
    return anchor(changes, Path())


def _parse_override(override: str) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    name, equals, _ = override.partition("=")
    if not equals or not name:
        raise refusal("override", override, "write field=value, for example learner.lr=3e-4")
    try:
        return _mapping(OmegaConf.from_dotlist([override]))
    except (YAMLError, OmegaConfBaseException, ValueError, LookupError, TypeError, RecursionError) as error:
        raise UserError(
            f"override: {override!r} is not YAML, which needs a space after ':' and closed brackets ({one_line(error)})"
        ) from None


REFERENCE = re.compile(r"\$\{([^{}$]*)\}")
MOST_REFERRED = 1 << 20
"""Maximum number of characters that all references of a file together may expand to."""


def interpolate(raw: Mapping[str, Any], within: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Replace every "${other.field}" in a mapping by the value of that field, which may be a list or a mapping.

    "${oc.env:NAME}" is replaced by an environment variable, with the user's consent only: a file may leak its value,
    for example as the name of a run.

    Args:
        within: mapping in which fields are looked up; default: the mapping itself.

    Raises:
        UserError: if there is no such field, or if it contains a reference itself.
    """
    spent = 0

    def referred(name: str, field: str) -> Any:
        nonlocal spent
        value = _environment(name, field) if ":" in name else _field(raw if within is None else within, name, field)
        spent += len(str(value))
        require("${" not in str(value), field, f"${{{name}}}", "that field holds a reference itself; write its value")
        require(spent <= MOST_REFERRED, field, f"${{{name}}}", "the references of this file expand to too much text")
        return value

    def replaced(value: Any, field: str) -> Any:
        if isinstance(value, Mapping):
            return {key: replaced(below, f"{field}.{key}" if field else str(key)) for key, below in value.items()}
        if isinstance(value, list | tuple):
            return [replaced(below, f"{field}[{i}]") for i, below in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        whole = REFERENCE.fullmatch(value)
        text = REFERENCE.sub(lambda found: str(referred(found[1], field)), value) if whole is None else ""
        require("${" not in text, field, value, "write ${other.field}")
        return text if whole is None else referred(whole[1], field)

    return {str(key): replaced(value, str(key)) for key, value in raw.items()}


def _field(raw: Mapping[str, Any], name: str, field: str) -> Any:
    """The value at a dotted path."""
    value: Any = raw
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise UserError(f"{field}: '${{{name}}}' is not found; give the dotted path of a field of this file")
        value = value[part]
    return value


def _environment(name: str, field: str) -> str:
    """The value of an environment variable."""
    resolver, _, variable = name.partition(":")
    require(resolver == "oc.env", field, f"${{{name}}}", "write ${other.field}, or ${oc.env:NAME}")
    require_accepted(f"environment:{variable}", field, f"reads the environment variable {variable}")
    require(variable in os.environ, field, f"${{{name}}}", "set this environment variable")
    return os.environ[variable]


def _mapping(config: Any) -> dict[str, Any]:
    from omegaconf import OmegaConf

    container = OmegaConf.to_container(config)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}
