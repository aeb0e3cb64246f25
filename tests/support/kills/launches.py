"""A command of `halfway` in forks of this process, which has imported what it needs and computed nothing."""

import atexit
import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from preloaded import HEAVY

from halfway.trainers.distributed.ports import free_port

LEAVE_SECONDS = 30.0
PACE_SECONDS = 0.004


def preload() -> None:
    """Import what launches would import, which is half of the time of a launch that is soon killed."""
    import torch

    for module in (*HEAVY, "kills.engine"):
        import_module(module)
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # a collection would copy every page that a fork shares with its parent
    atexit.register(gc.unfreeze)


class Launch:
    """The processes of one command.

    Attributes:
        pids: of its ranks, the first of which is the learner.
        codes: exit status of each rank that has ended; negative if a signal ended it.
    """

    def __init__(
        self, words: Sequence[str], folder: Path, output: Path, ranks: int, spawned: bool, prepare: Callable[[], None]
    ):
        """
        Args:
            spawned: whether its sampler is a new Python process, and no fork.
            prepare: called in the learner before anything else.
        """
        self.pids: list[int] = []
        self.codes: dict[int, int] = {}
        self.output, self.seen = output, dict[int, int]()
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())} if ranks > 1 else {}
        for rank in range(ranks):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
            variables = {**meeting, **{name: str(value) for name, value in place.items()}} if ranks > 1 else {}
            child = os.fork()
            if not child:
                _become(words, folder, output, variables, spawned, prepare if rank == 0 else lambda: None)
            self.pids.append(child)

    def ended(self) -> bool:
        """Whether all ranks have ended."""
        for pid in self.pids:
            if pid not in self.codes:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    self.codes[pid] = os.waitstatus_to_exitcode(status)
        return len(self.codes) == len(self.pids)

    @property
    def code(self) -> int:
        """The learner's exit status."""
        return self.codes[self.pids[0]]

    def victims(self) -> dict[str, list[int]]:
        """Its processes now, by what they do."""
        found: dict[str, list[int]] = {"learner": [], "rank": [], "sampler": [], "judge": [], "tree": []}
        for rank, pid in enumerate(self.pids):
            if pid not in self.codes:
                found["rank" if rank else "learner"].append(pid)
                for below in _below(pid):
                    found["judge" if b"helper_process" in proc_file(below, "cmdline") else "sampler"].append(below)
        found["tree"] = [pid for pids in found.values() for pid in pids]
        self.seen |= {pid: _started(pid) for pid in found["tree"]}
        return found

    def terminate(self) -> None:
        """Tell its ranks to stop, as a scheduler does."""
        for pid in self.pids:
            if pid not in self.codes:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Wait until all ranks have ended, which is returned, or for so long, or until something else."""
        deadline = time.monotonic() + seconds
        while not (ended := self.ended()) and time.monotonic() < deadline and not until():
            time.sleep(PACE_SECONDS)
        return ended

    def orphans(self) -> dict[int, str]:
        """Processes that are still there some time after the ranks have ended, with their commands. They are killed."""
        self.seen |= {pid: _started(pid) for pid in in_sessions(self.pids)}
        deadline = time.monotonic() + LEAVE_SECONDS
        while (left := [pid for pid, began in self.seen.items() if began and _started(pid) == began]) and (
            time.monotonic() < deadline
        ):
            time.sleep(PACE_SECONDS)
        commands = {pid: proc_file(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")[-200:] for pid in left}
        kill(left)
        return commands


def kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _become(
    words: Sequence[str],
    folder: Path,
    output: Path,
    variables: Mapping[str, str],
    spawned: bool,
    prepare: Callable[[], None],
) -> None:
    """Run the command in this fork, and end it."""
    status = 1
    try:
        os.setsid()
        os.chdir(folder)
        os.environ.update(variables)
        with output.open("a") as file, open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0), os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if not spawned:
            context: Any = multiprocessing.get_context("fork")
            vars(multiprocessing)["get_context"] = lambda how=None: context
        sys.argv = ["halfway", *words]
        prepare()
        from halfway.experiments import cli

        vars(cli)["_show_report"] = lambda folder: None  # its pictures take longer than the run
        cli.main()
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        with suppress(OSError):
            traceback.print_exc()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _below(pid: int) -> Iterator[int]:
    """All processes below a process."""
    for task in _listed(pid):
        for child in map(int, proc_file(pid, f"task/{task}/children").split()):
            yield child
            yield from _below(child)


def in_sessions(leaders: Sequence[int]) -> list[int]:
    """All processes of sessions, among them those whose parent has ended."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [pid for pid in pids if int((_stat(pid) or [0] * 4)[3]) in leaders]


def _stat(pid: int) -> list[bytes]:
    """What /proc says of a process, from its state on; empty if it is gone."""
    return proc_file(pid, "stat").rpartition(b")")[2].split()


def _listed(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []


def proc_file(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _started(pid: int) -> int:
    """When a process was started, in clock ticks; 0 if it has ended."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in (b"Z", b"X") else 0
