"""Builds a session's chain in another trainer from the `controllers` of any recipe."""

from pathlib import Path
from typing import Any

from halfway.curriculum.controller import Chain, chain
from halfway.curriculum.support.errors import UserError
from halfway.experiments.config import yaml_files
from halfway.experiments.config.components import check_chain, members
from halfway.experiments.config.validation import converted


def read_chain(path: Path) -> Chain:
    """The chain that the `controllers` of a YAML file describe; the rest of the file is ignored.

    Raises:
        UserError: one line that names the field, its value and the remedy.
    """
    try:
        raw = yaml_files.read(path)
    except ModuleNotFoundError as error:
        raise UserError(f"{path}: reading it needs the package {error.name}; pip install pyyaml") from None
    if "arms" in raw:
        raise UserError(
            f"{path}: has arms, so it is a comparison; give the file of one run, or one with controllers only"
        )
    if "controllers" not in raw:
        raise UserError(f"{path}: has no controllers; add a list, such as controllers: [uniform, greso]")
    return chain_of(raw["controllers"])


def chain_of(entries: Any) -> Chain:
    """The chain that a list of controllers describes, for hosts that keep it in their own configuration.

    Raises:
        UserError: one line that names the field, its value and the remedy.
    """
    listed = members(entries, make=converted)
    check_chain(listed)
    return chain(*listed)
