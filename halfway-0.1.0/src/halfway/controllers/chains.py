"""Reads the `controllers` of a YAML file as a chain. Needs only the core, and PyYAML for a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from halfway.controllers import CONTROLLERS
from halfway.curriculum import Chain, PassRateController, UserError, chain
from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.components import Component, build, plain
from halfway.curriculum.support.errors import each
from halfway.curriculum.support.validation import Reader

Controller = PassRateController[Any]

WORKS = {
    "prefixes": "attaches prefixes",
    "generated": "proposes generated problems",
    "stored": "trains stored groups again",
}
"""Uses of the slots of a batch, by the claim of the member."""
DIVIDES = "quotas"
"""Claim of the member that divides the slots among those members."""


@dataclass(frozen=True)
class Member(Component[Controller]):
    """A controller with its label in the chain; the label is its registered name unless the file has `use`."""

    label: str

    def as_plain(self) -> dict[str, Any]:
        """`{label: options}` with every option written out, and `use` if the name differs from the label."""
        use = {} if self.label == self.name else {"use": self.name}
        return {self.label: use | plain(self.part)}


def from_yaml(source: str | PathLike[str] | Sequence[Any]) -> Chain:
    """Build a chain from the `controllers` of a YAML file: a separate file, or any recipe of one run.

    Args:
        source: the file; or the list itself, for a host that keeps it in its own configuration.

    Raises:
        UserError: one line that names the field, its value and the remedy.
    """
    entries = _entries(Path(source)) if isinstance(source, str | PathLike) else source
    return check_chain(members(entries))


def _entries(path: Path) -> Any:
    """The `controllers` of a YAML file; the rest of it is ignored."""
    try:
        raw = yaml_bases.read(path)
    except ModuleNotFoundError as error:
        raise UserError(f"{path}: reading it needs the package {error.name}; pip install pyyaml") from None
    if "arms" in raw:
        raise UserError(
            f"{path}: has arms, so it is a comparison; give the file of one run, or one with controllers only"
        )
    if "controllers" not in raw:
        raise UserError(f"{path}: has no controllers; add a list, such as controllers: [uniform, greso]")
    return raw["controllers"]


def members(entries: Any, path: str = "controllers") -> tuple[Member, ...]:
    """Parse a list whose entries are `name`, `{name: options}` or `{label: {use: name, ...}}`.

    Raises:
        UserError: for an unknown name or option, or an invalid value.
    """
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        raise UserError(f"{path}: {entries!r} is not acceptable; give a list of controllers, such as [uniform]")
    return tuple(each([partial(_member, entry, path) for entry in entries]))


MEMBERS = Reader(members, "a list of controllers, such as [uniform]")
"""Reads a field that lists controllers."""


def _member(entry: Any, path: str) -> Member:
    match entry:
        case str(label):
            options: Any = {}
        case Mapping() if len(entry) == 1:
            [(label, options)] = entry.items()
        case _:
            raise UserError(
                f"{path}: {entry!r} is not acceptable; write name, {{name: options}} or {{label: {{use: name, ...}}}}"
            )
    label, name, at = str(label), str(label), path
    if isinstance(options, Mapping) and "use" in options:
        name, at = str(options["use"]), f"{path}.{label}.use"
        options = {key: value for key, value in options.items() if key != "use"}
    return Member(name, build(CONTROLLERS, name, options, at, f"{path}.{label}"), label)


def check_chain(listed: Sequence[Member], path: str = "controllers") -> Chain:
    """Build the chain of these members, after checking that each can act.

    Raises:
        UserError: if two members have the same claim, if no member chooses problems, or if the order leaves a member
            idle. A member that attaches prefixes, proposes generated problems or trains stored groups takes slots, so
            it must come before the member that fills the remaining slots, and after a member that divides the batch; a
            member that judges or changes requests must come after the one that fills. A member that only weighs groups
            may be anywhere.
    """
    result = chain(*((member.label, member.part) for member in listed))
    owner = next((label for label, member in result.members.items() if "problems" in member.claims), None)
    if owner is None:
        labels = ", ".join(result.members)
        raise UserError(f"{path}: none of {labels} chooses problems, so no batch would fill; add uniform to the list")
    place = list(result.members).index(owner)
    _require_division(result, path)
    for i, (label, member) in enumerate(result.members.items()):
        works = sorted(WORKS.keys() & member.claims)
        if i > place and works:
            raise UserError(
                f"{path}: {label!r} {WORKS[works[0]]} but is listed after {owner!r}, which fills every slot; "
                f"list {label} before {owner}"
            )
        if (
            i < place
            and not works
            and DIVIDES not in member.claims
            and type(member).propose is not PassRateController.propose
        ):
            raise UserError(
                f"{path}: {label!r} is listed before {owner!r}, which chooses the problems, and would see none; "
                f"list {label} after {owner}"
            )
    return result


def _require_division(chained: Chain, path: str) -> None:
    """Refuse a member that divides the batch if there are no members to divide it among, or one comes before it."""
    divider = next((label for label, member in chained.members.items() if DIVIDES in member.claims), None)
    if divider is None:
        return
    # A member that chooses the problems fills the remaining slots, so it has no share.
    claims = {label: member.claims for label, member in chained.members.items() if "problems" not in member.claims}
    sharing = [label for label in claims if WORKS.keys() & claims[label]]
    if not sharing:
        raise UserError(
            f"{path}: {divider!r} divides the batch among members that take a share of it, and there are none; add "
            "prefix_sampling, probe or replay, or remove it"
        )
    labels = list(chained.members)
    if labels.index(sharing[0]) < labels.index(divider):
        raise UserError(
            f"{path}: {divider!r} divides the batch but is listed after {sharing[0]!r}, which takes its share first; "
            f"list {divider} before {sharing[0]}"
        )
