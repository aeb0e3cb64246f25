"""Controller states as plain JSON data, and back."""

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast, get_args, get_type_hints

import msgspec
import msgspec.inspect
import numpy as np

from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.stored import StoredArray
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import one_line

State = TypeVar("State")
Array = np.ndarray[Any, Any]
Put = Callable[[Array], Sequence[int | None]]
"""Stores an array elsewhere. Returns its place: its location, then its shape."""

Get = Callable[[str, Sequence[int | None]], Array]
"""The array of a dtype that `Put` stored at a place."""


KINDS = {np.bool_: "b", np.integer: "iu", np.floating: "f"}
LARGEST_ITEM = 1024
"""Maximum bytes of an item of an array, which may be a text."""


class Packed(bytes):
    """Bytes of a state, which a checkpoint stores with its arrays, once."""


FEW = 8
"""Arrays of at most this many numbers stay in the plain data."""


def to_plain(value: Any, put: Put | None = None) -> Any:
    """Convert a tree of dataclasses, tuples, dictionaries and arrays to plain JSON data.

    Args:
        put: stores the arrays of more than `FEW` numbers, and the data holds their places; None = the data holds all
            values.
    """
    return msgspec.to_builtins(value, enc_hook=partial(_encode, put=put))


def from_plain(kind: Any, data: Any, get: Get | None = None) -> Any:
    """The inverse of `to_plain`, checked against the type `kind`. Raises msgspec.ValidationError."""
    return msgspec.convert(data, kind, dec_hook=partial(_decode, get=get))


def save_state(state: Any, put: Put | None = None) -> Any:
    """Plain data (None, numbers, strings, lists, dictionaries) from which `restore_state` rebuilds an equal state.

    A state is None, a dataclass, or a dictionary of states keyed by member name. A field that holds the
    `ProblemSet` is not saved: it comes from the configuration. For `put` see `to_plain`.
    """
    if state is None:
        return None
    if isinstance(state, dict):
        return {name: save_state(value, put) for name, value in state.items()}
    assert is_dataclass(state), f"a controller state must be a dataclass, not {type(state).__name__}"
    return {name: to_plain(value, put) for name, value in _saved_fields(state).items()}


def require_savable(state: Any, owner: str = "controllers") -> None:
    """Refuse, before a run starts, a state that `save_state` or `restore_state` could not handle.

    The declared types of the fields are checked too, since a field that is empty now may hold values later.

    Args:
        owner: owner of the state, for the message.

    Raises:
        UserError: naming the member, the field and the type of its value.
    """
    if state is None:
        return
    if isinstance(state, dict):
        for name, member_state in state.items():
            require_savable(member_state, f"{owner}.{name}")
        return
    remedy = "hold None or a dataclass of numbers, text, arrays, tuples, mappings, groups or dataclasses"
    if not is_dataclass(state):
        raise UserError(f"{owner}: its state is a {type(state).__name__}, which cannot be saved; {remedy}")
    for name, value in _saved_fields(state).items():
        try:
            msgspec.to_builtins(value, enc_hook=_encode_without_values)
        except (NotImplementedError, TypeError) as error:
            raise UserError(f"{owner}: the field {name!r} of its state cannot be saved ({error}); {remedy}") from None
    declared = get_type_hints(type(state))
    for name in _saved_fields(state):
        parts = _parts(msgspec.inspect.type_info(declared[name]), set())
        foreign = [kind.cls for kind in parts if isinstance(kind, msgspec.inspect.CustomType)]
        unknown = next((cls for cls in foreign if cls not in (np.ndarray, Packed)), None)
        if unknown is not None:
            what = f"the field {name!r} of its state may hold a {unknown.__name__}"
            raise UserError(f"{owner}: {what}, which cannot be restored; {remedy}")


def _parts(kind: msgspec.inspect.Type, seen: set[int]) -> Iterator[msgspec.inspect.Type]:
    """A declared type and all types that it contains."""
    if id(kind) in seen:
        return
    seen.add(id(kind))
    yield kind
    for name in kind.__struct_fields__:
        value = getattr(kind, name)
        for part in value if isinstance(value, tuple) else (value,):
            inner = part.type if isinstance(part, msgspec.inspect.Field) else part
            if isinstance(inner, msgspec.inspect.Type):
                yield from _parts(inner, seen)


def _saved_fields(state: Any) -> dict[str, Any]:
    values = {f.name: getattr(state, f.name) for f in fields(state)}
    return {name: value for name, value in values.items() if not isinstance(value, ProblemSet)}


def restore_state(template: State, data: Any, get: Get | None = None) -> State:
    """The inverse of `save_state`.

    Args:
        template: a state of the same shape, from `controller.init(problems)`, with the types and the problem set.

    Raises:
        UserError: if members or fields differ from the template's, or an array over problems (named *_P) has another
            shape; the message names both.
    """
    if template is None:
        return template
    if isinstance(template, dict):
        _check_names("controller members", data, template)
        return {name: restore_state(value, data[name], get) for name, value in template.items()}  # type: ignore[return-value]
    assert is_dataclass(template) and not isinstance(template, type)
    hints, saved_fields = get_type_hints(type(template)), _saved_fields(template)
    _check_names(f"fields of {type(template).__name__}", data, saved_fields)
    values = {name: from_plain(hints[name], data[name], get) for name in saved_fields}
    for name, value in values.items():
        _check_shapes(name, value, saved_fields[name])
    return replace(template, **values)


def _check_shapes(name: str, saved: Any, expected: Any) -> None:
    """Refuse arrays over problems whose shape belongs to another configuration."""
    if isinstance(expected, np.ndarray) and name.endswith("_P") and saved.shape != expected.shape:
        raise UserError(
            f"checkpoint: its {name} has shape {saved.shape}, but the configuration gives {expected.shape}; "
            "resume with the controller options that the checkpoint was written with"
        )
    if is_dataclass(expected) and type(saved) is type(expected):
        for each in fields(expected):
            _check_shapes(f"{name}.{each.name}", getattr(saved, each.name), getattr(expected, each.name))


def _check_names(what: str, saved: Any, expected: Any) -> None:
    if set(saved) != set(expected):
        raise UserError(
            f"checkpoint: its {what} are {sorted(saved)}, the configuration has {sorted(expected)}; "
            "resume with the configuration and the version of Halfway that wrote it"
        )


def _encode(value: Any, put: Put | None = None) -> Any:
    if isinstance(value, np.ndarray | StoredArray):
        if put and value.size > FEW and value.dtype.kind in "biuf":
            return {"dtype": value.dtype.str, "at": list(put(cast(Array, value)))}
        plain = {"dtype": value.dtype.str, "values": value.tolist()}
        return plain if value.size else plain | {"shape": list(value.shape)}  # nested lists lose what follows a 0
    if isinstance(value, Packed):
        return _encode(np.frombuffer(value, np.uint8), put)
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"a controller state cannot hold a {type(value).__name__}")


def _encode_without_values(value: Any) -> Any:
    """Like `_encode` but without the values of arrays, which is fast; the type alone says that an array can be
    saved."""
    return _encode(value[:0] if isinstance(value, np.ndarray) and value.ndim else value)


def _kinds_of(kind: Any) -> str:
    """The kinds of numpy's types that an array of this annotation, such as NDArray[np.int32], may have."""
    number = getattr(get_args(get_args(kind)[-1])[0] if get_args(kind) else None, "__mro__", ())
    return next((kinds for base, kinds in KINDS.items() if base in number), "biufU")


def _decode(kind: type, value: Any, get: Get | None) -> Any:
    # msgspec asks for the generic alias NDArray[...] as well as for the bare class.
    if kind is np.ndarray or getattr(kind, "__origin__", None) is np.ndarray:
        dtype = np.dtype(value["dtype"])
        if not isinstance(value["dtype"], str) or dtype.kind not in _kinds_of(kind) or dtype.itemsize > LARGEST_ITEM:
            raise ValueError(f"an array of the type {one_line(value['dtype'])}")
        if get and "at" in value:
            return get(value["dtype"], value["at"])
        array = np.asarray(value["values"], dtype)
        return array.reshape(value["shape"]) if "shape" in value else array
    if kind is Packed:
        if isinstance(value, str):  # in checkpoints before 0.1.0
            return Packed(base64.b64decode(value))
        return Packed(_decode(np.ndarray, value, get).astype(np.uint8).tobytes())
    raise NotImplementedError(f"cannot restore a {kind}")
