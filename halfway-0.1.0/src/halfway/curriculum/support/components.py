"""Reads and writes registered components, in files `name` or `{name: options}`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar

from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import remedy
from halfway.curriculum.support.registry import Registry
from halfway.curriculum.support.validation import Reader, construct

Part = TypeVar("Part")
WANTED = "one name, or one {name: options}"


@dataclass(frozen=True)
class Component(Generic[Part]):
    """A registered component and its name in a file.

    Attributes:
        name: the name; empty if the file gives none.
        part: the registered dataclass, whose fields are the options.
    """

    name: str
    part: Part

    def __bool__(self) -> bool:
        return bool(self.name)

    def as_plain(self) -> dict[str, Any]:
        """`{name: options}` with every option written out; empty if none is named."""
        return {self.name: plain(self.part)} if self else {}


NONE: Component[Any] = Component("", None)


def one_of(registry: Registry) -> Reader:
    """Reads a field that names one component of a registry."""
    return Reader(lambda value, path: component(value, registry, path), WANTED, registry)


def at_most_one_of(registry: Registry) -> Reader:
    """Reads a field that names one component of a registry, or nothing."""
    return Reader(lambda value, path: component(value, registry, path) if value else NONE, WANTED, registry)


def component(value: Any, registry: Registry, path: str) -> Component[Any]:
    """Make the component given as `name` or `{name: options}`.

    Raises:
        UserError: for an unknown name or option, or a value that the component refuses.
    """
    match value:
        case str(name):
            options: Any = {}
        case Mapping() if len(value) == 1:
            [(name, options)] = value.items()
        case _:
            raise UserError(f"{path}: {value!r} is not acceptable; give {WANTED}")
    return Component(str(name), build(registry, str(name), options, path, f"{path}.{name}"))


def build(registry: Registry, name: str, options: Any, path: str, at: str) -> Any:
    """Make the registered dataclass called `name` from a mapping of its options (None = all defaults).

    Args:
        path, at: paths of the name and of the options in the file.

    Raises:
        UserError: like `component`.
    """
    try:
        kind: type[Any] = registry.get(name)
    except UserError:
        raise registry.unknown(path, name) from None
    except ImportError as error:
        extra = remedy(error) if isinstance(error, ModuleNotFoundError) else None
        lacks = extra or f"needs the module {error.name}, which is not installed"
        raise UserError(f"{path}: {name!r} {lacks}") from None
    if not is_dataclass(kind):
        raise UserError(f"{path}: {name!r} is not a dataclass of options; fix the package that registers it")
    return construct(kind, {} if options is None else options, at)


def plain(value: Any) -> Any:
    """Convert settings to plain data, from which `construct` makes equal settings."""
    if isinstance(value, Component):
        return value.as_plain()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(item) for item in value)
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.init}
    return value
