"""Commands of `halfway` in processes of their own, at a fraction of the price of starting each."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paths import DRIVERS, IMPORTABLE

from halfway.trainers.distributed.ports import free_port


class Preloaded:
    """Runs commands in forks of one process that has imported torch, which takes longer than a short run."""

    def __init__(self, process: "subprocess.Popen[str]"):
        self._process = process

    def __call__(self, folder: Path, output: Path, *words: object, ranks: int = 1) -> None:
        """Run a command in a folder, by several ranks if so wished; its output is appended to a file."""
        each: list[dict[str, str]] = [{}]
        if ranks > 1:
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
            meeting |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
            each = [{**meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        assert self._process.stdin is not None and self._process.stdout is not None
        command = (list(map(str, words)), str(folder), str(output), each)
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        assert json.loads(self._process.stdout.readline()) == [0] * ranks, output.read_text()[-3000:]


@contextmanager
def preloaded_process() -> Iterator[Preloaded]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": IMPORTABLE, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(DRIVERS / "cli_driver.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield Preloaded(process)
        assert process.stdin is not None
        process.stdin.close()
