"""Shared by commands and scripts: a user's mistake is shown in one line, with exit status 2."""

import argparse
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

USER_ERROR = 2
RED, PLAIN = "\033[31m", "\033[0m"

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def one_line_errors(command: str) -> Iterator[None]:
    """Show a UserError, a missing extra or an error of the operating system as one line, and exit with status 2.

    If the reader of the output leaves, as in `... | head -1`, the command ends silently, with status 1. Our own errors
    are raised.

    Args:
        command: the user's command, for errors that do not name it.
    """
    from halfway.curriculum import UserError
    from halfway.curriculum.support.extras import remedy

    try:
        yield
    except BrokenPipeError:  # the rest of the output is discarded
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except UserError as error:
        refuse(str(error))
    except ModuleNotFoundError as error:
        lacking = remedy(error)
        if lacking is None:
            raise
        refuse(f"{command}: {lacking}")
    except OSError as error:
        refuse(f"{error.filename or 'system'}: {error.strerror or error}; check disk space, permissions and the path")


def refuse(message: str) -> NoReturn:
    """Print one line on stderr and exit with the status of a user's mistake."""
    complain(message)
    raise SystemExit(USER_ERROR) from None


def complain(message: str) -> None:
    """Print one line on stderr, red in a terminal; nothing in the message can control that terminal."""
    from halfway.curriculum.support.extras import clean  # here, since `--help` answers without numpy

    line = f"error: {clean(' '.join(message.split()))}"
    print(f"{RED}{line}{PLAIN}" if sys.stderr.isatty() else line, file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        refuse(f"{message}; --help lists the options")


def script_parser(document: str | None) -> argparse.ArgumentParser:
    """Make a parser that shows the module's docstring as help and refuses wrong words in one line."""
    return _Parser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)


def script(main: Callable[P, T]) -> Callable[P, T]:
    """Decorate a script's main function with `one_line_errors`."""

    @functools.wraps(main)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        with one_line_errors(Path(sys.argv[0]).stem):
            return main(*args, **kwargs)

    return guarded
