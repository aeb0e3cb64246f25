"""What the scripts share: help from the docstring, and a user's mistake told in one line, with exit status 2."""

import argparse
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import remedy

USER_ERROR = 2

P = ParamSpec("P")
T = TypeVar("T")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR, f"error: {message}; --help lists the options\n")


def script_parser(document: str | None) -> argparse.ArgumentParser:
    """A parser that shows the module's docstring as help and refuses wrong words in one line."""
    return _Parser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)


def script(main: Callable[P, T]) -> Callable[P, T]:
    """Decorate a script's main function: a user's mistake ends the script with one line and status 2.

    If the reader of its output leaves, it ends without a word, with status 1.
    """

    @functools.wraps(main)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return main(*args, **kwargs)
        except BrokenPipeError:  # whoever read our output has left, as in `... | head -1`; the rest goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None
        except (UserError, ModuleNotFoundError, OSError) as error:
            line = blame(error, Path(sys.argv[0]).stem)
            if line is None:
                raise
            print(f"error: {line}", file=sys.stderr)
            raise SystemExit(USER_ERROR) from None

    return guarded


def blame(error: UserError | ModuleNotFoundError | OSError, command: str) -> str | None:
    """What a user can do about an error of a command, in one line; None if it is our own, or a reader that has left."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        lacking = remedy(error)
        return None if lacking is None else f"{command}: {lacking}"
    if isinstance(error, BrokenPipeError):  # as in `halfway list | head -1`
        return None
    return f"{error.filename or 'system'}: {error.strerror or error}; check space, rights and the path"
