"""Optional packages, and values as they appear in one-line messages."""

from importlib import import_module
from typing import Any

from halfway.curriculum.support.errors import UserError


def load_extra(module: str, needed_by: str, extra: str = "tasks") -> Any:
    """Import a module of an optional extra. Raises UserError, naming the extra, if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(f"{needed_by}: needs the package {error.name}; pip install 'halfway[{extra}]'") from error


def one_line(value: object, limit: int = 160) -> str:
    """A value, or an exception with its type, on one line of at most `limit` characters."""
    text = f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
