"""What happens to a launch while it runs, and to the files that it was writing when it died."""

import errno
import json
import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["process", "file", "full", "limit", "stop"]
"""A process is killed at an instant; the learner dies at one of its operations on files; from one on the disk is full,
or no file may grow beyond a size; or all processes are told to stop, and killed when their grace is over."""

LOGS = {
    "decisions": "decisions.jsonl",
    "steps": "steps.jsonl",
    "evaluations": "evaluations.jsonl",
    "samples": "samples.jsonl",
    "events": "events.jsonl",
    "event_arrays": "events.bin",
}


@dataclass(frozen=True)
class Fault:
    """One disturbance.

    Attributes:
        at: when, as a share of what is left of the run: of its time, or of the operations on files.
        victim: of "process": whose turn it is, see `kills.launches.victims`.
        size: of "limit": the largest file, bytes; of "stop": the grace, seconds.
    """

    kind: Kind
    at: float
    victim: str = ""
    size: float = 0.0


def draw(chance: random.Random, victims: Sequence[str]) -> Fault:
    """A fault; half of them kill a process at an instant, or all if the learner is no victim."""
    others: list[Kind] = ["file", "file", "full", "limit", "stop"]
    kind: Kind = chance.choice(["process", "process", "process", "process", *(others if "learner" in victims else [])])
    size = {"limit": 2 ** chance.uniform(9, 19), "stop": chance.choice([0.0, 0.3, 30.0])}.get(kind, 0.0)
    return Fault(kind, chance.random(), chance.choice(list(victims)) if kind == "process" else "", size)


WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = {"os.rename", "os.mkdir", "os.truncate", "os.remove", "os.rmdir", "shutil.rmtree"}
NEEDS_ROOM = {"open", "os.mkdir"}


def count_operations(folder: Path, act: Callable[[int, str], None]) -> None:
    """Have this process call `act` before each of its own changes to files below a folder, with number and event."""
    inside, own, number = f"{folder}{os.sep}", os.getpid(), 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal number
        if event not in CHANGES and (event != "open" or not (arguments[2] or 0) & WRITING):
            return
        path = arguments[0]
        if isinstance(path, str | os.PathLike) and str(path).startswith(inside) and os.getpid() == own:
            number += 1
            act(number, event)

    sys.addaudithook(hook)


def action(fault: Fault | None, due: int) -> Callable[[int, str], None]:
    """What the learner does at its operations on files: nothing before the one that is due."""

    def act(number: int, event: str) -> None:
        if fault is None or number < due:
            return
        if fault.kind == "file":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.kind == "full" and event in NEEDS_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if fault.kind == "limit" and number == due:
            printed = os.fstat(2).st_size  # to a file, too, and the last line must fit
            resource.setrlimit(resource.RLIMIT_FSIZE, (printed + int(fault.size), resource.RLIM_INFINITY))

    return act


def tear(run: Path, chance: random.Random) -> int:
    """Damage what a run was writing when it died. Returns the number of files.

    That is whatever has not got its name yet, and what logs have gained since the newest checkpoint.
    """
    torn = 0
    for path in sorted(run.rglob("*")):
        parts = path.relative_to(run).parts
        unnamed = any(part.startswith(".") and part.endswith((".tmp", ".partial")) for part in parts)
        if unnamed and path.is_file():
            torn += _tear(path, 0, chance)
    newest = max((run / "checkpoints").glob("step-*"), default=None)
    sizes = json.loads((newest / "loop.json").read_text())["log_sizes"] if newest else {}
    for name, file in LOGS.items():
        if (run / file).exists():
            torn += _tear(run / file, sizes.get(name, 0), chance)
    return torn


def _tear(path: Path, kept: int, chance: random.Random) -> int:
    """Cut a file, or turn a part of it into zeros or noise; its first bytes are kept. 1 if there was more, else 0."""
    size = path.stat().st_size
    if size <= kept or chance.random() < 0.3:
        return 0
    start = chance.randint(kept, size - 1)
    with path.open("r+b") as file:
        file.seek(start)
        match chance.choice(["cut", "zeros", "noise", "more"]):
            case "cut":
                file.truncate()
            case "zeros":
                file.write(bytes(size - start))
            case "noise":
                file.write(chance.randbytes(size - start))
            case _:
                file.seek(size)
                file.write(chance.randbytes(100))
    return 1
