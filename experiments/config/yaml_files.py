"""Reads YAML files with findable paths, and dotted overrides; replaces interpolations. Results are unchecked."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import one_line
from halfway.experiments.config.paths import anchored


def read(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file, laid over its bases, with its paths made findable. Raises UserError."""
    return yaml_bases.read(path, anchored)


def is_study(raw: Mapping[str, Any]) -> bool:
    """Whether a mapping is a study of task generators: only a study, or its base, has a domain."""
    lower = raw.get("base")
    return "domain" in raw or (isinstance(lower, Mapping) and "domain" in lower)


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """The nested mapping for overrides such as "learner.lr=3e-4"; their paths are relative to the current folder."""
    changes: dict[str, Any] = {}
    for override in overrides:
        changes = yaml_bases.merge(changes, _parse_override(override))
    return anchored(changes, Path())


def _parse_override(override: str) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    name, equals, _ = override.partition("=")
    if not equals or not name:
        raise UserError(f"override: {override!r} is not acceptable; write field=value, for example learner.lr=3e-4")
    try:
        return _mapping(OmegaConf.from_dotlist([override]))
    except (YAMLError, OmegaConfBaseException) as error:
        raise UserError(
            f"override: {override!r} is not YAML, which wants a space after ':' and brackets closed ({one_line(error)})"
        ) from None


def interpolated(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The same mapping with every "${other.field}" replaced. Raises UserError if there is no such field."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return _mapping(OmegaConf.create(dict(raw)), resolve=True)
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key}: {str(error).splitlines()[0]}") from None


def _mapping(config: Any, resolve: bool = False) -> dict[str, Any]:
    from omegaconf import OmegaConf

    container = OmegaConf.to_container(config, resolve=resolve)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}
