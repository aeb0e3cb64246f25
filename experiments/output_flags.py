"""The amount and form of a command's output: `--full`, `--quiet` and `--json`."""

import functools
import inspect
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class Shown(NamedTuple):
    """The running command's options of this kind."""

    full: bool = False
    quiet: bool = False
    json: bool = False

    @property
    def progress(self) -> "Console":
        """The console for progress."""
        return terminal(quiet=self.quiet, stderr=self.json)

    def warn(self, console: "Console", message: str) -> None:
        """Show a warning above the progress; without progress, on stderr."""
        from halfway.curriculum.support.extras import clean

        line = f"warning: {clean(message)}"
        if console.is_terminal and not self.quiet:
            console.print(line, style="yellow", highlight=False)
        else:
            typer.echo(line, err=True)


PATIENCE = 4.0
"""Seconds without output after which `busy` prints a line."""
NOW: ContextVar[Shown] = ContextVar("shown")
OPTIONS = {
    "full": typer.Option("--full", help="Show everything, not only the finding."),
    "quiet": typer.Option("--quiet", "-q", help="Show no progress, only warnings and the result."),
    "json": typer.Option("--json", help="Print the result as JSON; whatever else is shown goes to stderr."),
}


def clean_lines(text: str) -> str:
    """A text of one or more lines in which nothing acts on a terminal."""
    from halfway.curriculum.support.extras import clean

    return "\n".join(map(clean, text.split("\n")))


def terminal(**options: Any) -> "Console":
    """A console for texts that may come from a stranger: nothing in them is markup, or acts on the terminal."""
    from rich.console import Console

    class Terminal(Console):
        def render_str(self, text: str, **more: Any) -> "Text":
            return super().render_str(clean_lines(text), **more)

    return Terminal(markup=False, **options)


def now() -> Shown:
    """The output settings of the running command."""
    return NOW.get(Shown())


def with_options(function: Callable[..., None], shared: Mapping[str, str], *names: str) -> Callable[..., None]:
    """Make the function of a command: with help for its parameters, and these `OPTIONS`, which `now()` returns.

    Args:
        shared: help for parameters that have none under "Args:" in the docstring.
    """

    @functools.wraps(function)
    def showing(*args: Any, **kwargs: Any) -> None:
        NOW.set(Shown(**{name: kwargs.pop(name) for name in names}))
        function(*args, **kwargs)

    own = inspect.signature(function, eval_str=True)
    helps = {**shared, **section_texts(function.__doc__, "Args:\n")}
    parameters = [each.replace(annotation=_with_help(each, helps[each.name])) for each in own.parameters.values()]
    flag = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY, default=False)
    parameters += [flag(name, annotation=Annotated[bool, OPTIONS[name]]) for name in names]
    showing.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    showing.__annotations__ = {one.name: one.annotation for one in parameters}
    showing.__doc__ = (function.__doc__ or "").partition("Args:\n")[0].rstrip()
    return showing


def _with_help(parameter: inspect.Parameter, text: str) -> Any:
    """The annotation of a parameter, with its help. Without typer's information, it is an argument, option or flag."""
    hint, *infos = (
        get_args(parameter.annotation) if get_origin(parameter.annotation) is Annotated else (parameter.annotation,)
    )
    flag = [f"--{parameter.name.replace('_', '-')}"] if hint is bool else []
    required = parameter.default is inspect.Parameter.empty
    info = copy(infos[0]) if infos else typer.Argument() if required else typer.Option(*flag)
    info.help = text
    return Annotated[hint, info]


def section_texts(document: str | None, heading: str) -> dict[str, str]:
    """Map each name in a section of a docstring, such as "Args:", to its text in one line."""
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in inspect.cleandoc(document or "").partition(heading)[2].splitlines():
        if line and not line.startswith("    "):
            break
        start = re.match(r" {4}(\w+(?:, \w+)*): (.*)", line)
        if start:
            names = start[1].split(", ")
            texts |= dict.fromkeys(names, start[2])
        else:
            texts |= {name: f"{texts[name]} {line.strip()}".rstrip() for name in names}
    return texts


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show what is being done: in a terminal at once, elsewhere on stderr if it takes more than four seconds."""
    from rich.console import Console

    console = Console(stderr=True, quiet=now().quiet)
    if console.is_terminal:
        with console.status(what):
            yield
        return
    timer = threading.Timer(PATIENCE, console.out, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def as_json(result: Any) -> str:
    """Convert a result to indented JSON, with characters that could control a terminal escaped."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(result)).decode()
    return re.sub(r"[^\x00-\x7e]", lambda odd: odd[0] if odd[0].isprintable() else json.dumps(odd[0])[1:-1], text)


def natural(name: str) -> list[tuple[int, int, str]]:
    """Make a sort key that orders numbers within names by value ("2" before "10"), and numbers before words."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]
