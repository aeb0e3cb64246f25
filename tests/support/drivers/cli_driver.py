"""Runs commands of `halfway`, and programs, in forks of a process that has imported torch and computed nothing.

Each line of standard input is a command as JSON: its words, its folder, the file of its output, and the environment
variables of each rank. A first word that ends in ".py" is a program in Python. OUTPUT and ERRORS name other files for
standard output and standard error. The answer is the list of the ranks' process ids. A line with such a list is
answered by their exit statuses, once they have ended.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from runpy import run_path
from typing import Any

from preloaded import HEAVY

from halfway.experiments.cli import main

MOST_SECONDS = 600
"""A process that hangs is ended."""


def run(words: Sequence[str], folder: str, output: Path, variables: Mapping[str, str]) -> None:
    signal.alarm(MOST_SECONDS)
    os.chdir(folder)
    os.environ.update(variables)
    output = Path(variables.get("OUTPUT", output))
    with output.open("a") as file, Path(variables.get("ERRORS", output)).open("a") as errors:
        os.dup2(file.fileno(), 1), os.dup2(errors.fileno(), 2)
    is_program = words[0].endswith(".py")
    sys.argv = [*words] if is_program else ["halfway", *words]
    try:
        if is_program:
            run_path(words[0], run_name="__main__")
        else:
            main()
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(status or 0)


def begin(words: Sequence[str], folder: str, output: str, ranks: Sequence[Mapping[str, str]]) -> list[int]:
    children = []
    for variables in ranks:
        child = os.fork()
        if child == 0:
            run(words, folder, Path(output), variables)
        children.append(child)
    return children


def answer(line: list[Any]) -> list[int]:
    if isinstance(line[0], int):
        return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in line]
    return begin(*line)


if __name__ == "__main__":
    for module in HEAVY:
        import_module(module)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
