"""Makes frozen dataclasses from plain mappings, with one-line errors that name the field."""

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.registry import unknown

Options = TypeVar("Options")


@dataclass(frozen=True)
class Reader:
    """Reads a field of a type that YAML does not have. The field's type hint is `Annotated[Type, Reader(...)]`.

    Attributes:
        read: makes the value from what the file holds and the field's path; raises UserError.
        wanted: what to give, for error messages.
    """

    read: Callable[[Any, str], Any]
    wanted: str


def typed(kind: type[Options], data: Any, path: str = "") -> Options:
    """An instance of the dataclass `kind`, including its nested dataclasses, with the values of a mapping.

    What the mapping leaves out keeps its default, also inside a nested dataclass. Text that reads as a number is
    accepted as one, and a number as text.

    Args:
        path: dotted path of `data` in the file, for error messages.

    Raises:
        UserError: for an unknown, missing or ill-typed field, with its path, its value and a remedy; errors raised by
            the dataclass itself get the path in front.
    """
    _check_names(kind, data, path)
    return _made(kind, data, path, path, None)


def _made(kind: type[Options], data: Mapping[str, Any], path: str, root: str, default: Options | None) -> Options:
    """An instance whose other fields are those of `default`; errors of a dataclass itself get `root` in front."""
    values, by_name = {}, {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    hints = _hints(kind)
    for name, value in data.items():
        hint, at = hints[name], _join(path, name)
        if _is_options(hint):
            below = _default(by_name[name]) if default is None else getattr(default, name)
            values[name] = _made(hint, value, at, root, below)
        else:
            values[name] = _converted(hint, value, at)
    try:
        return kind(**values) if default is None else replace(default, **values)  # type: ignore[type-var]
    except UserError as error:
        raise UserError(_under(root, str(error))) from None


def _converted(hint: Any, value: Any, path: str) -> Any:
    for reader in getattr(hint, "__metadata__", ()):
        return reader.read(value, path)
    if hint is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # such as name=2026, whose quotes a shell removes
    try:
        return msgspec.convert(value, hint, strict=False)
    except (msgspec.ValidationError, UnicodeError):  # the second for text that is none, such as half a character
        raise _wrong_type(path, value, hint) from None


def _check_names(kind: type[Any], data: Any, path: str) -> None:
    """Refuse anything but a mapping, fields that do not exist, and required fields that are absent."""
    if not isinstance(data, Mapping):
        raise UserError(f"{path or 'configuration'}: {data!r} is not acceptable; give a mapping of fields")
    known = {field.name: field for field in fields(kind) if field.init}
    for name in data:
        if name not in known:
            raise unknown(_join(path, name), name, known)
    hints = _hints(kind)
    for name, field in known.items():
        hint = hints[name]
        if name not in data and field.default is MISSING and field.default_factory is MISSING:
            raise UserError(f"{_join(path, name)}: missing; give {_describe(hint)}")
        if name in data and _is_options(hint):
            _check_names(hint, data[name], _join(path, name))


def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _is_options(hint: Any) -> bool:
    """Whether a field is a dataclass of options, nested in the file as well."""
    return isinstance(hint, type) and is_dataclass(hint)


def _default(field: Field[Any]) -> Any:
    """The default of a field; None if it has none."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None if field.default is MISSING else field.default


def _wrong_type(path: str, value: Any, hint: Any) -> UserError:
    if get_origin(hint) is Literal and isinstance(value, str):
        return unknown(path, value, map(str, get_args(hint)))
    return UserError(f"{path}: {value!r} is not acceptable; give {_describe(hint)}")


def _describe(hint: Any) -> str:
    """What a type hint asks for, in words."""
    simple = {int: "an integer", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    if hint in simple:
        return simple[hint]
    for reader in getattr(hint, "__metadata__", ()):
        return str(reader.wanted)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(argument) for argument in arguments)
    if origin is tuple:
        size = "" if ... in arguments else f" of {len(arguments)}"
        return f"a list{size}, each {_describe(arguments[0])}"
    return "a mapping of fields"


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _under(path: str, message: str) -> str:
    """A message with the path in front, unless its first word already ends the path ("greso.floor: ...")."""
    head, _, rest = message.partition(".")
    return f"{path}.{rest}" if path.split(".")[-1] == head and rest else f"{path}: {message}" if path else message
