"""Makes frozen dataclasses from plain mappings, with one-line errors that name the field."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.registry import unknown

Options = TypeVar("Options")


def typed(kind: type[Options], data: Any, path: str = "") -> Options:
    """An instance of the dataclass `kind`, including its nested dataclasses, with the values of a mapping.

    Args:
        path: dotted path of `data` in the file, for error messages.

    Raises:
        UserError: for an unknown, missing or ill-typed field, with its path, its value and a remedy; errors raised by
            the dataclass itself get the path in front.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    check_names(kind, data, path)
    try:
        built = OmegaConf.to_object(OmegaConf.merge(_structured(kind, data), data))
    except UserError as error:
        raise UserError(_under(path, str(error))) from None
    except OmegaConfBaseException as error:
        check_types(kind, data, path)
        raise UserError(f"{path or 'configuration'}: {str(error).splitlines()[0]}") from None
    assert isinstance(built, kind)
    return built


def _structured(kind: type[Any], data: Mapping[str, Any]) -> Any:
    """The fields of `kind` with their defaults, except for mappings in `data`, which replace their default."""
    from omegaconf import OmegaConf

    built = OmegaConf.structured(kind)
    _make_room(built, data)
    return built


def _make_room(node: Any, data: Mapping[str, Any]) -> None:
    from omegaconf import OmegaConf, read_write

    hints = get_type_hints(OmegaConf.get_type(node))
    with read_write(node):  # the node of a frozen dataclass is read-only
        for name, value in data.items():
            if not isinstance(value, Mapping):
                continue
            if OmegaConf.is_missing(node, name) and is_dataclass(hints[name]):
                node[name] = OmegaConf.structured(hints[name])
            if is_dataclass(OmegaConf.get_type(node, name)):  # the default's type, which may be a subclass of the hint
                _make_room(node[name], value)
            elif get_origin(hints[name]) is dict:
                node[name] = {}


def converted(kind: type[Options], data: Any, path: str = "") -> Options:
    """The same as `typed` without OmegaConf, since other trainers pin another version of it or have none.

    It is as strict as JSON: text is not a number, even if it looks like one.
    """
    check_names(kind, data, path)
    hints = get_type_hints(kind)
    values = {name: _converted(hints[name], value, _join(path, name)) for name, value in data.items()}
    try:
        return kind(**values)
    except UserError as error:
        raise UserError(_under(path, str(error))) from None


def _converted(hint: Any, value: Any, path: str) -> Any:
    if isinstance(hint, type) and is_dataclass(hint):
        return converted(hint, value, path)
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError:
        raise _wrong_type(path, value, hint) from None


def check_names(kind: type[Any], data: Any, path: str) -> None:
    """Refuse anything but a mapping, fields that do not exist, and required fields that are absent."""
    if not isinstance(data, Mapping):
        raise UserError(f"{path or 'configuration'}: {data!r} is not acceptable; give a mapping of fields")
    known = {field.name: field for field in fields(kind) if field.init}
    for name in data:
        if name not in known:
            raise unknown(_join(path, name), name, known)
    hints = get_type_hints(kind)
    for name, field in known.items():
        if name not in data and _required(field):
            raise UserError(f"{_join(path, name)}: missing; give {describe(hints[name])}")
        if name in data and is_dataclass(hints[name]):
            check_names(hints[name], data[name], _join(path, name))


def check_types(kind: type[Any], data: Mapping[str, Any], path: str) -> None:
    """Refuse the first field whose value does not fit its type."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    hints = get_type_hints(kind)
    for name, value in data.items():
        if is_dataclass(hints[name]) and isinstance(hints[name], type):
            check_types(hints[name], value, _join(path, name))
            continue
        try:
            OmegaConf.merge(OmegaConf.structured(kind), {name: value})
        except OmegaConfBaseException:
            raise _wrong_type(_join(path, name), value, hints[name]) from None


def _wrong_type(path: str, value: Any, hint: Any) -> UserError:
    if get_origin(hint) is Literal and isinstance(value, str):
        return unknown(path, value, map(str, get_args(hint)))
    return UserError(f"{path}: {value!r} is not acceptable; give {describe(hint)}")


def describe(hint: Any) -> str:
    """What a type hint asks for, in words."""
    simple = {int: "an integer", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    if hint in simple:
        return simple[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(describe(argument) for argument in arguments)
    if origin in (tuple, list):
        kind = describe(arguments[0])
        return (
            f"a list, each {kind}" if origin is list or ... in arguments else f"a list of {len(arguments)}, each {kind}"
        )
    return "a mapping of fields"


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _under(path: str, message: str) -> str:
    """A message with the path in front, unless its first word already ends the path ("greso.floor: ...")."""
    head, _, rest = message.partition(".")
    return f"{path}.{rest}" if path.split(".")[-1] == head and rest else f"{path}: {message}" if path else message
