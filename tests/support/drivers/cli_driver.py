"""Runs commands of `halfway` in forks of a process that has imported torch and computed nothing.

Each line of standard input is a command as JSON: its words, its folder, the file of its output, and the environment
variables of each rank. ERRORS names a file for standard error. The answer is the list of the ranks' process ids. A
line with such a list is answered by their exit statuses, once they have ended.
"""

import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from drivers.kill_driver import HEAVY

from halfway.experiments.cli import main


def run(words: Sequence[str], folder: str, output: Path, variables: Mapping[str, str]) -> None:
    os.chdir(folder)
    os.environ.update(variables)
    with output.open("a") as file, Path(variables.get("ERRORS", output)).open("a") as errors:
        os.dup2(file.fileno(), 1), os.dup2(errors.fileno(), 2)
    sys.argv = ["halfway", *words]
    try:
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
    for module in (*HEAVY, "halfway.experiments.report.report_page"):
        import_module(module)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
