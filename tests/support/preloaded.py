"""Commands of `halfway`, and programs, in processes of their own, at a fraction of the price of starting each."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from paths import DRIVERS, IMPORTABLE

from halfway.trainers.distributed.ports import free_port

HEAVY = (
    "duckdb",
    "halfway.controllers.contrib.pilot",
    "halfway.controllers.prefix_sampling",
    "halfway.curriculum.environments.single_turn",
    "halfway.curriculum.tasks.files",
    "halfway.experiments.api",
    "halfway.experiments.cli",
    "halfway.experiments.report.provenance",
    "halfway.experiments.report.report_page",
    "halfway.experiments.running.build",
    "halfway.experiments.running.parts",
    "halfway.experiments.running.runs",
    "halfway.experiments.tracking.tracker_process",
    "halfway.trainers.engines.transformers.engine",
    "halfway.trainers.learner.learner",
    "halfway.trainers.loop.held_out",
    "halfway.trainers.loop.training",
    "halfway.trainers.rollouts.collector",
    "halfway.trainers.rollouts.sampling_process",
    "torch.profiler._cupti_monitor",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.encoder_decoder",
    "transformers.models.qwen3.modeling_qwen3",
    "typer._adapters",
)
"""What a short run imports."""


class Preloaded:
    """Runs commands in forks of one process that has imported torch, which takes longer than a short run.

    A command is the words after `halfway`, or the path of a program in Python and its arguments.
    """

    def __init__(self, process: "subprocess.Popen[str]"):
        self._process = process

    def __call__(self, folder: Path, output: Path, *words: object, ranks: int = 1) -> None:
        """Run a command in a folder, by several ranks if so wished; its output is appended to a file."""
        each = places(ranks) if ranks > 1 else [{}]
        assert self.statuses(self._begin(folder, output, words, each)) == [0] * ranks, output.read_text()[-3000:]

    def status(self, folder: Path, output: Path, *words: object) -> int:
        """Run a command in a folder; returns its exit status."""
        return self.statuses(self._begin(folder, output, words, [{}]))[0]

    def run_ranks(self, folder: Path, program: str, **variables: str) -> list[tuple[int, str]]:
        """Run a program in two processes that can meet, with further variables: exit status and output of each."""
        outputs = [folder / f"rank-{rank}.txt" for rank in range(2)]
        each = [place | variables | {"OUTPUT": str(path)} for place, path in zip(places(2), outputs, strict=True)]
        statuses = self.statuses(self._begin(folder, outputs[0], [program], each))
        return [(status, path.read_text()) for status, path in zip(statuses, outputs, strict=True)]

    def begin_ranks(self, folder: Path, output: Path, *words: object) -> list[int]:
        """Start a command in two processes that can meet; returns their ids, the leader's first."""
        return self._begin(folder, output, words, places(2))

    def begin(self, folder: Path, *words: object, **variables: str) -> "Command":
        """Start a command in a folder, with further environment variables."""
        errors = folder / "errors.txt"
        errors.unlink(missing_ok=True)
        [pid] = self._begin(folder, folder / "output.txt", words, [variables | {"ERRORS": str(errors)}])
        return Command(self, pid, errors)

    def statuses(self, pids: list[int]) -> list[int]:
        """Wait for processes to end."""
        return self._ask(pids)

    def _begin(
        self, folder: Path, output: Path, words: Iterable[object], each: Sequence[Mapping[str, str]]
    ) -> list[int]:
        return self._ask((list(map(str, words)), str(folder), str(output), each))

    def _ask(self, line: object) -> list[int]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        answer: list[int] = json.loads(self._process.stdout.readline())
        return answer


def places(ranks: int) -> list[dict[str, str]]:
    """The variables by which torch's launcher tells processes their ranks and where they meet."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    meeting |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return [{**meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


class Command:
    """A command that runs."""

    def __init__(self, preloaded: Preloaded, pid: int, errors: Path):
        self.pid, self._preloaded, self._errors = pid, preloaded, errors

    def runs(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def ended(self, seconds: float) -> tuple[int, str]:
        """Its exit status and standard error, once it has ended; it is killed if it does not."""
        deadline = time.monotonic() + seconds
        while self.runs() and time.monotonic() < deadline:
            time.sleep(0.02)
        if late := self.runs():
            os.kill(self.pid, signal.SIGKILL)
        [status] = self._preloaded.statuses([self.pid])
        assert not late, f"it does not end: {self._errors.read_text()}"
        return status, self._errors.read_text()


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
