"""Makes the frozen dataclasses of registered components from the names and options in a configuration."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from halfway.controllers import CONTROLLERS
from halfway.curriculum.controller import PassRateController, chain
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import remedy
from halfway.curriculum.support.registry import Registry, unknown
from halfway.experiments.config.validation import typed

Members = tuple[tuple[str, PassRateController[Any]], ...]

Make = Callable[[type[Any], Any, str], Any]
"""Makes an instance of a dataclass from a mapping of its options; the text is their path in the file."""

Component = dict[str, dict[str, Any]]
"""`{name: options}`, with every option written out; the dataclass of that name gives their types."""


def build_component(registry: Registry, name: str, options: Any, path: str, make: Make = typed) -> Any:
    """The registered dataclass called `name`, made from a mapping of its options (None means all defaults).

    Raises:
        UserError: for an unknown name or option, or a value that the dataclass refuses.
    """
    return make(kind_of(registry, name, path), {} if options is None else options, f"{path}.{name}")


def kind_of(registry: Registry, name: str, path: str) -> type[Any]:
    """The registered dataclass called `name`. Raises UserError, with `path` in front, if there is none."""
    try:
        kind: type[Any] = registry.get(name)
    except UserError:
        raise unknown(path, name, registry.names()) from None
    except ImportError as error:
        extra = remedy(error) if isinstance(error, ModuleNotFoundError) else None
        lacks = extra or f"needs the module {error.name}, which is not installed"
        raise UserError(f"{path}: {name!r} {lacks}") from None
    if not is_dataclass(kind):
        raise UserError(f"{path}: {name!r} is no dataclass of options; mend the package that registers it")
    return kind


def component(value: Any, registry: Registry, path: str) -> Any:
    """The single component given as `name` or `{name: options}`."""
    match value:
        case str(name):
            return build_component(registry, name, None, path)
        case Mapping() if len(value) == 1:
            name, options = next(iter(value.items()))
            return build_component(registry, str(name), options, path)
        case _:
            raise UserError(f"{path}: {value!r} is not acceptable; give one name, or one {{name: options}}")


def with_defaults(value: Any, registry: Registry, path: str) -> Component:
    """The same component as `{name: options}` with every option written out."""
    built = component(value, registry, path)
    name = value if isinstance(value, str) else str(next(iter(value)))
    return {name: options_of(built)}


def options_of(built: Any) -> dict[str, Any]:
    """The options of a component, as plain data."""
    values = {f.name: getattr(built, f.name) for f in fields(built) if f.init}
    return {name: options_of(value) if is_dataclass(value) else value for name, value in values.items()}


def members(entries: Any, path: str = "controllers", make: Make = typed) -> Members:
    """The labelled controllers of a list whose entries are `name`, `{name: options}` or `{label: {use: name, ...}}`."""
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        raise UserError(f"{path}: {entries!r} is not acceptable; give a list of controllers, such as [uniform]")
    return tuple(_member(entry, path, make) for entry in entries)


def _member(entry: Any, path: str, make: Make) -> tuple[str, PassRateController[Any]]:
    label, name, options = _split(entry, path)
    if label == name:
        return label, build_component(CONTROLLERS, name, options, path, make)
    return label, make(kind_of(CONTROLLERS, name, f"{path}.{label}.use"), options, f"{path}.{label}")


def _split(entry: Any, path: str) -> tuple[str, str, Any]:
    match entry:
        case str(name):
            return name, name, None
        case Mapping() if len(entry) == 1:
            label, options = next(iter(entry.items()))
            if isinstance(options, Mapping) and "use" in options:
                return str(label), str(options["use"]), {k: v for k, v in options.items() if k != "use"}
            return str(label), str(label), options
        case _:
            raise UserError(
                f"{path}: {entry!r} is not acceptable; write name, {{name: options}} or {{label: {{use: name, ...}}}}"
            )


def controllers_with_defaults(entries: Any, path: str = "controllers") -> list[Component]:
    """The same list with every option written out."""
    built = members(entries, path)
    names = [_split(entry, path)[1] for entry in entries]
    return [
        {label: ({} if label == name else {"use": name}) | options_of(controller)}
        for (label, controller), name in zip(built, names, strict=True)
    ]


def check_chain(listed: Members, path: str = "controllers") -> None:
    """Refuse a chain in which a member could never do its work.

    Raises:
        UserError: if two members claim the same thing, if no member chooses problems, or if the order leaves a member
            idle. A member that attaches prefixes, proposes generated problems or trains stored groups takes slots, so
            it comes before the member that fills all the others; a member that judges or changes requests comes after
            it. A member that only weighs groups may stand anywhere.
    """
    chain(*listed)
    owners = [label for label, member in listed if "problems" in member.claims]
    if not owners:
        labels = ", ".join(label for label, _ in listed)
        raise UserError(f"{path}: none of {labels} chooses problems, so no batch would fill; add uniform to the list")
    owner = owners[0]
    place = [label for label, _ in listed].index(owner)
    works = {
        "prefixes": "attaches prefixes",
        "generated": "proposes generated problems",
        "stored": "trains stored groups again",
    }
    for label, member in listed[place + 1 :]:
        for claim in sorted(works.keys() & member.claims):
            raise UserError(
                f"{path}: {label!r} {works[claim]} but is listed after {owner!r}, which fills every slot; "
                f"list {label} before {owner}"
            )
    for label, member in listed[:place]:
        if not works.keys() & member.claims and type(member).propose is not PassRateController.propose:
            raise UserError(
                f"{path}: {label!r} is listed before {owner!r}, which chooses the problems, and would see none; "
                f"list {label} after {owner}"
            )
