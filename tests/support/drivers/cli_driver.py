"""Runs commands of `halfway` in forks of a process that has imported torch and computed nothing.

Each line of standard input is a command as JSON: its words, its folder, the file of its output, and the environment
variables of each rank. The answer is the list of the ranks' exit statuses.
"""

import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from drivers.kill_driver import HEAVY

from halfway.experiments.cli import main


def run(words: Sequence[str], folder: str, output: Path, variables: Mapping[str, str]) -> None:
    os.chdir(folder)
    os.environ.update(variables)
    with output.open("a") as file:
        os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
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


def answer(words: Sequence[str], folder: str, output: str, ranks: Sequence[Mapping[str, str]]) -> list[int]:
    children = []
    for variables in ranks:
        child = os.fork()
        if child == 0:
            run(words, folder, Path(output), variables)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


if __name__ == "__main__":
    for module in (*HEAVY, "halfway.experiments.report.report_page"):
        import_module(module)
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), flush=True)
