"""Makes frozen dataclasses from plain mappings, with one-line errors that name the field."""

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from itertools import islice
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from halfway.curriculum.support.errors import MOST, UserError, join_errors, refusal
from halfway.curriculum.support.registry import Registry, unknown

Options = TypeVar("Options")


@dataclass(frozen=True)
class Reader:
    """Reads a field of a type that YAML does not have. The field's type hint is `Annotated[Type, Reader(...)]`.

    Attributes:
        read: makes the value from the file's value and the field's path; raises UserError.
        wanted: description of valid values, for error messages.
        registry: registry of the named component, if the field names one.
    """

    read: Callable[[Any, str], Any]
    wanted: str
    registry: Registry | None = None


def construct(kind: type[Options], data: Any, path: str = "") -> Options:
    """Make an instance of the dataclass `kind`, including nested dataclasses, from a mapping.

    Fields that the mapping leaves out keep their defaults, also in nested dataclasses. Text that reads as a number is
    accepted as a number, and a number as text.

    Args:
        kind: its attribute REMOVED, if it has one, gives for each former field the value that is accepted (None = any),
            since it means what is left, and why others were removed.
        path: dotted path of `data` in the file, for error messages.

    Raises:
        UserError: for the first unknown, missing or ill-typed field, with its path, its value and a remedy; `others`
            has the rest. Errors of the dataclass itself get the path in front.
    """
    errors = list(islice(_name_errors(kind, data, path), MOST))
    made = _make(kind, data, path, path, None, errors) if isinstance(data, Mapping) else None
    if errors:
        raise join_errors(errors)
    assert made is not None
    return made


def _make(
    kind: type[Options], data: Mapping[str, Any], path: str, root: str, default: Options | None, errors: list[UserError]
) -> Options | None:
    """Make an instance; missing fields come from `default`. Errors of a dataclass itself get `root` in front.

    Args:
        errors: collects every mistake in `data` but wrong names. If there is any, None is returned.
    """
    values: dict[str, Any] = {}
    by_name, hints, before = {field.name: field for field in _known(kind)}, _hints(kind), len(errors)
    complete = default is not None or all(name in data for name, field in by_name.items() if _is_required(field))
    for name, value in data.items():
        if name not in by_name:
            continue
        hint, at = hints[name], _join(path, name)
        if _is_options(hint):
            below = _default(by_name[name]) if default is None else getattr(default, name)
            values[name] = _make(hint, value, at, root, below, errors) if isinstance(value, Mapping) else None
            complete = complete and values[name] is not None
            continue
        try:
            values[name] = _convert(hint, value, at)
        except UserError as error:
            errors.append(error)
    if not complete or len(errors) > before:
        return None
    try:
        return kind(**values) if default is None else replace(default, **values)  # type: ignore[type-var]
    except UserError as error:
        errors += [UserError(_under(root, str(one))) for one in error.all]
        return None


def _convert(hint: Any, value: Any, path: str) -> Any:
    for reader in getattr(hint, "__metadata__", ()):
        return reader.read(value, path)
    if hint is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # such as name=2026: a shell removes the quotes
    try:
        return msgspec.convert(value, hint, strict=False)
    except (msgspec.ValidationError, UnicodeError):  # the second for broken text, such as half a character
        raise _wrong_type(path, value, hint) from None


def _name_errors(kind: type[Any], data: Any, path: str) -> Iterator[UserError]:
    """Yield the errors of the names: no mapping, unknown fields, and missing required fields."""
    if not isinstance(data, Mapping):
        yield refusal(path or "configuration", data, "give a mapping of fields")
        return
    known = {field.name: field for field in _known(kind)}
    removed: Mapping[str, tuple[Any, str]] = getattr(kind, "REMOVED", {})
    for name in data:
        if name in removed:
            left, why = removed[name]
            if left is not None and data[name] != left:
                yield UserError(f"{_join(path, name)}: {data[name]!r} was removed: {why}; leave the option out")
        elif name not in known:
            yield unknown(_join(path, name), name, known)
    hints = _hints(kind)
    for name, field in known.items():
        hint = hints[name]
        if name not in data and _is_required(field):
            yield UserError(f"{_join(path, name)}: missing; give {_describe(hint)}")
        if name in data and _is_options(hint):
            yield from _name_errors(hint, data[name], _join(path, name))


def _known(kind: Any) -> list[Field[Any]]:
    """The fields that a file may give."""
    return [field for field in fields(kind) if field.init]


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _is_options(hint: Any) -> bool:
    """True if a field is a nested dataclass of options."""
    return isinstance(hint, type) and is_dataclass(hint)


def _default(field: Field[Any]) -> Any:
    """Find the default of a field; None if it has none."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None if field.default is MISSING else field.default


def _wrong_type(path: str, value: Any, hint: Any) -> UserError:
    if get_origin(hint) is Literal and isinstance(value, str):
        return unknown(path, value, map(str, get_args(hint)))
    return refusal(path, value, f"give {_describe(hint)}")


def _describe(hint: Any) -> str:
    """Describe a type hint in words."""
    simple = {int: "an integer", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    for reader in getattr(hint, "__metadata__", ()):
        return str(reader.wanted)
    if hint in simple:
        return simple[hint]
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
    """Put the path in front of a message, unless its first word already ends the path ("greso.floor: ...")."""
    head, _, rest = message.partition(".")
    return f"{path}.{rest}" if path.split(".")[-1] == head and rest else f"{path}: {message}" if path else message
