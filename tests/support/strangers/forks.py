"""A fork server: one process that has imported everything, in whose forks strangers' files are read within limits."""

import hashlib
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from memory import peak_mib

from strangers.kinds import Kind
from strangers.mutations import CANARY, SPECIAL, flipped, is_text, mutated, weighted

SECONDS, MEBIBYTES = 30, 1024
"""What reading one file may take: seconds of the processor, and memory of its process with all that it has imported."""
ADDRESSES = 6 << 30
"""Addresses that a fork may have beyond those of its parent; much of them never becomes memory."""
REFUSED, SAME, OTHER = "refused in one line", "same result", "another result"
SOUND = (REFUSED, SAME, OTHER)
TRACEBACK, LATE, LARGE, SILENT, RAN = "traceback", "too long", "too large", "silently another result", "ran code"
FAILED = (TRACEBACK, LATE, LARGE, SILENT, RAN)


class Case(NamedTuple):
    """One change of a specimen.

    Attributes:
        how: "any" change, one "bit", one "heavy" value, or a "special" file in place of one.
        number: the seed, or which of `places`.
    """

    kind: str
    how: str
    number: int


CHANGES = {"any": mutated, "bit": lambda name, content, chance: flipped(content, chance), "heavy": weighted}


class Late(BaseException):
    """A file has taken too long. Nothing that reads files catches it."""


def in_fork(work: Callable[[Callable[[Any], None]], None], wall: float) -> Iterator[Any]:
    """What `work`, in a fork of this process, passes to the function that it is given; nothing more once it is late.

    The fork leads a process group of its own, which is killed at the end.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.setsid()
        with suppress(BaseException):
            silent = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(silent, descriptor)
            own = resource.getpagesize() * int(Path("/proc/self/statm").read_text().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (own + ADDRESSES,) * 2)
            try:
                work(lambda value: _write(writing, value))
            except BaseException:
                _write(writing, {"harness": traceback.format_exc()})
        os._exit(0)
    os.close(writing)
    try:
        with open(reading, "rb", buffering=0) as pipe:
            left = b""
            while select.select([pipe], [], [], wall)[0] and (piece := pipe.read(1 << 16)):
                *lines, left = (left + piece).split(b"\n")
                for value in map(json.loads, lines):
                    assert not isinstance(value, dict) or "harness" not in value, value["harness"]
                    yield value
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _write(pipe: int, value: Any) -> None:
    content = json.dumps(value).encode() + b"\n"
    while content:
        content = content[os.write(pipe, content) :]


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """A scope that may take so long of the processor, and ten times as long by the clock of a busy machine."""

    def late(*_: object) -> None:
        raise Late

    signal.signal(signal.SIGPROF, late)
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def make(kind: Kind, folder: Path) -> None:
    """Make a specimen, in a fork, so that this process stays as it is."""
    folder.mkdir(parents=True)
    [wrong] = list(in_fork(lambda say: say(_make(kind, folder)), 600)) or ["its process ended"]
    assert not wrong, wrong


def reference(kind: Kind, specimen: Path) -> str:
    """The hash of what a specimen is read as."""
    kind.warm(specimen)
    copy = specimen.parent / "reference" / "stranger"
    [[found, wrong]] = list(in_fork(lambda say: say(_once(kind, specimen, copy)), 600)) or [["", "its process ended"]]
    assert not wrong, wrong
    return str(found)


def _make(kind: Kind, folder: Path) -> str:
    try:
        kind.make(folder)
    except BaseException:
        return traceback.format_exc()
    return ""


def _once(kind: Kind, folder: Path, copy: Path) -> tuple[str, str]:
    """The hash of a result, read twice so that it cannot depend on chance if that is cheap, or the traceback."""
    try:
        found = []
        for _ in range(2 if kind.share == 1 else 1):
            _fresh(folder, copy)
            found.append(_digest(kind.read(copy)))
        shutil.rmtree(copy)
        assert found[0] == found[-1], "two readings differ"
    except BaseException:
        return "", traceback.format_exc()
    return found[0], ""


def _fresh(specimen: Path, copy: Path) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(specimen, copy)


def _digest(result: Any) -> str:
    return hashlib.sha256(repr(result).encode("utf-8", "surrogatepass")).hexdigest()


def tried(kind: Kind, cases: Sequence[Case], specimen: Path, wanted: str, seed: int) -> Iterator[dict[str, Any]]:
    """The outcome of each case; all are tried in one fork, and in another one after a case that has killed it."""
    waiting = list(cases)
    while waiting:
        with tempfile.TemporaryDirectory(dir=specimen.parent, ignore_cleanup_errors=True) as name:
            place = Path(name)

            def work(say: Callable[[Any], None], place: Path = place) -> None:
                os.chdir(place)
                for case in waiting:
                    say(_outcome(kind, case, specimen, place, wanted, seed))

            count = 0
            for outcome in in_fork(work, 11 * SECONDS):
                count += 1
                yield outcome
            for case in waiting[count : count + 1]:  # neither a result nor an exception came
                yield {**case._asdict(), "outcome": LATE, "why": "its process ended or was silent", "file": ""}
            del waiting[: count + 1]


def places(kind: Kind, specimen: Path, seed: int) -> list[tuple[Path, str]]:
    """Every file of a specimen with everything special that may stand in its place, in an order by the seed."""
    found = list(product(dict.fromkeys(kind.files(specimen)), SPECIAL))
    random.Random(seed).shuffle(found)
    return found


def change(kind: Kind, case: Case, copy: Path, seed: int) -> str:
    """Change a copy of a specimen as the case says; returns the file's name."""
    if case.how == "special":
        chosen, what = places(kind, copy, seed)[case.number]
        chosen.unlink()
        SPECIAL[what](chosen)
        kind.after(copy)
        return f"{chosen.relative_to(copy)}: {what}"
    chance = random.Random(f"{seed} {case}")
    files = kind.files(copy)
    chosen = chance.choice([path for path in files if is_text(path.name)] if case.how == "heavy" else files)
    content = chosen.read_bytes()
    changed = content
    while changed == content:
        changed = CHANGES[case.how](chosen.name, content, chance)
    chosen.write_bytes(changed)
    kind.after(copy)
    return str(chosen.relative_to(copy))


def _outcome(kind: Kind, case: Case, specimen: Path, place: Path, wanted: str, seed: int) -> dict[str, Any]:
    from halfway.curriculum import UserError

    copy = place / "stranger"
    _fresh(specimen, copy)
    name = change(kind, case, copy, seed)
    with suppress(OSError):  # the peak of this case alone
        Path("/proc/self/clear_refs").write_text("5")
    began, why = time.process_time(), ""
    try:
        with within(SECONDS):
            result = kind.read(copy)
        outcome = SAME if _digest(result) == wanted else SILENT if kind.sealed else OTHER
    except (UserError, OSError) as error:  # the commands show both in one line
        outcome, why = REFUSED, str(error)
        if "\n" in why.strip() or len(why) > 3100:
            outcome, why = TRACEBACK, f"not one line: {why[:500]!r}"
    except Late:
        outcome = LATE
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "/tests/" not in f.filename]
        outcome, why = TRACEBACK, f"{type(error).__name__}: {str(error)[:200]!r} at {ours[-1:]} {_own(frames)}"
    took = time.process_time() - began
    peak = peak_mib()
    if outcome in SOUND and peak > MEBIBYTES:
        outcome = LARGE
    if any(Path(path, CANARY).exists() for path in (place, copy, specimen.parent, "/tmp")):
        outcome = RAN
    return {
        **case._asdict(),
        "outcome": outcome,
        "why": why[:600],
        "file": name,
        "seconds": round(took, 2),
        "mib": peak,
    }


def _own(frames: traceback.StackSummary) -> str:
    """The last line of Halfway in a traceback."""
    own = [
        f
        for f in frames
        if "site-packages" not in f.filename and "/tests/" not in f.filename and "/lib/" not in f.filename
    ]
    return f"from {'/'.join(Path(own[-1].filename).parts[-3:])}:{own[-1].lineno}" if own else ""


def quiet() -> None:
    """Prepare this process to be the parent: nothing asks the network, nothing is cached in the user's folders."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1", WANDB_MODE="offline")
    sys.setswitchinterval(0.005)
