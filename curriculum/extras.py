"""Optional packages, and values as they appear in one-line messages."""

from importlib import import_module
from typing import Any

from curriculum.errors import UserError

TASKS_INSTALL = "pip install 'halfway[tasks]'"


def load_extra(module: str, needed_by: str) -> Any:
    """Import a module of the `tasks` extra. Raises UserError, naming the extra, if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(f"{needed_by}: needs the package {error.name}; {TASKS_INSTALL}") from error


def one_line(value: object, limit: int = 160) -> str:
    """A value, or an exception with its type, on one line of at most `limit` characters."""
    text = f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
