"""Runs programs that nobody has read: in bubblewrap, one process per program, judged only on this side.

The sandbox has no network, a read-only file system that holds nothing but a Python, its own process table, no
capabilities, and a system-call filter under which a program can start no process or thread and send no signal. Memory,
time and output are limited. See `sandbox_worker` for what runs inside.

A program whose determinism matters runs in two lanes, which are separate processes with different hash seeds.
"""

import json
import os
import platform
import re
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Literal

from halfway.curriculum.boxes.sandbox_worker import FOLDER, HEADER, MAGIC, REPLY
from halfway.curriculum.support.errors import UserError, require

WITHOUT_SANDBOX = "HALFWAY_WITHOUT_SANDBOX"
ACCEPTANCE = "I accept that generated programs run unprotected on this machine"
WORKER = Path(__file__).with_name("sandbox_worker.py")
HASH_SEEDS = (1, 2)
"""The hash seed of each lane."""

MAX_REQUEST = 32_768
"""Bytes; a request must fit into a pipe, so that sending it never waits for the program."""

MODULE_FILE = re.compile(r"[a-z_][a-z0-9_]{0,40}\.py")
FOLDER_BYTES = 2**20
START_SECONDS = 20.0
GRACE_SECONDS = 2.0

Fault = Literal["error", "timeout", "output", "crash", "too long"]


@dataclass(frozen=True)
class SandboxOptions:
    """Limits of one program.

    Attributes:
        seconds: wall-clock limit; processor time is limited to about the same value.
        memory_mib: limit on the address space. The kernel's page tables come on top: at most twice as much again, for a
            program that scatters its memory.
        output_bytes: limit on the encoded results.
        processes: programs that run at once, in each of the two lanes.
    """

    seconds: float = 10.0
    memory_mib: int = 256
    output_bytes: int = 65_536
    processes: int = 1

    def __post_init__(self) -> None:
        require(0 < self.seconds <= 600, "sandbox.seconds", self.seconds, "give a number above 0, at most 600")
        require(self.memory_mib >= 64, "sandbox.memory_mib", self.memory_mib, "Python itself needs 64")
        require(1024 <= self.output_bytes <= 2**24, "sandbox.output_bytes", self.output_bytes, "give 1024 to 2^24")
        require(self.processes >= 1, "sandbox.processes", self.processes, "give at least 1")


@dataclass(frozen=True, slots=True)
class Job:
    """One program and what to compute with it.

    Attributes:
        code: Python that defines the function.
        entry: the function's name.
        inputs: the arguments of each call, as the text of a tuple literal. Each call gets fresh values.
        lane: 0 or 1.
        files: names and texts of Python files that are placed, read-only, in the folder where the program runs.

    Raises:
        ValueError: for a file whose name is not a plain Python module's.
    """

    code: str
    entry: str
    inputs: tuple[str, ...]
    lane: int = 0
    files: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name, _ in self.files:
            if not MODULE_FILE.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a Python module's file")


@dataclass(frozen=True, slots=True)
class Result:
    """The value of one call, as a Python literal and as a text that values which are equal in Python share."""

    shown: str
    key: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A program that gave no results, with what it did instead."""

    fault: Fault
    detail: str = ""


Outcome = tuple[Result, ...] | Failure


class Sandbox:
    """A set of workers, started when first needed and stopped by `close` or when this process ends.

    Safe to use from several threads. A process that was forked from this one needs its own sandbox.
    """

    def __init__(self, options: SandboxOptions, modules: Sequence[str] = ()):
        """
        Args:
            modules: imported by the workers beforehand, so that programs need not.

        Raises:
            UserError: if there is no sandbox on this machine and the user has not agreed to do without.
        """
        self.options = options
        self._command = _command(options, modules)
        self._local = threading.local()
        # A worker belongs to one thread: bubblewrap ends with the thread that started it.
        self._lanes = [ThreadPoolExecutor(options.processes, f"sandbox-{lane}") for lane in range(len(HASH_SEEDS))]

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """What each program computes, in order. A program that misbehaves yields a `Failure` and disturbs no other.

        Raises:
            UserError: if a worker cannot be started.
        """
        futures: list[Future[Outcome]] = [self._lanes[job.lane].submit(self._run_one, job) for job in jobs]
        return [future.result() for future in futures]

    def close(self) -> None:
        """Stop all workers."""
        for lane in self._lanes:
            lane.shutdown()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run_one(self, job: Job) -> Outcome:
        request = {"code": job.code, "entry": job.entry, "inputs": job.inputs, "files": dict(job.files)}
        body = json.dumps(request).encode()
        if len(body) > MAX_REQUEST:
            return Failure("too long", f"{len(body)} bytes, at most {MAX_REQUEST}")
        for _ in range(2):  # a worker may have been killed from outside since its last program
            worker = self._worker(job.lane)
            reply = worker.ask(body, self.options.seconds)
            if reply is not None:
                return _outcome(*reply, expected=len(job.inputs))
            worker.stop()
            del self._local.worker
        return Failure("crash", "its worker ended twice")

    def _worker(self, lane: int) -> "_Worker":
        if "worker" not in vars(self._local):
            self._local.worker = _Worker(self._command, HASH_SEEDS[lane], self.options.output_bytes)
        worker: _Worker = self._local.worker
        return worker


class _Worker:
    """One worker process and the pipes to it."""

    def __init__(self, command: Sequence[str], hash_seed: int, output: int):
        environment = {"PYTHONHASHSEED": str(hash_seed)}
        # Its error output matters only if it does not start, so it goes to a pipe that is read only then.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        self.output = output
        probe = json.dumps({"code": "def f(): return 1", "entry": "f", "inputs": ["()"], "files": {}}).encode()
        reply = self.ask(probe, START_SECONDS)
        if reply is None or _outcome(*reply, expected=1) != (Result("1", "1"),):
            self.process.kill()
            complaint = " ".join(self.process.communicate()[1].decode(errors="replace").split())[-300:]
            raise UserError(f"sandbox: does not start ({complaint or reply}); {_remedy()}")

    def ask(self, body: bytes, seconds: float) -> tuple[bytes, bytes] | None:
        """Status and output of one program, or None if the worker is gone or does not answer this request in time."""
        assert self.process.stdin is not None
        number = os.urandom(8)
        try:
            self.process.stdin.write(HEADER.pack(MAGIC, number, len(body), round(1000 * seconds)) + body)
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        deadline = time.monotonic() + seconds + GRACE_SECONDS
        header = self._read(REPLY.size, deadline)
        if header is None:
            return None
        answered, status, size = REPLY.unpack(header)
        output = self._read(size, deadline) if answered == number and size <= self.output else None
        return None if output is None else (status, output)

    def _read(self, size: int, deadline: float) -> bytes | None:
        assert self.process.stdout is not None
        source, data = self.process.stdout.fileno(), b""
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([source], [], [], left)[0]:
                return None
            part = os.read(source, size - len(data))
            if not part:
                return None
            data += part
        return data

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


def _outcome(status: bytes, output: bytes, expected: int) -> Outcome:
    """Read what a program claims to have computed; the bytes are as hostile as the program."""
    if status != b"k":
        return Failure("timeout" if status == b"t" else "output")
    try:
        reply = json.loads(output)
    except (ValueError, RecursionError):
        return Failure("crash", "ended without a result")
    match reply:
        case {"error": str(message)}:
            return Failure("error", message)
        case {"results": list(results)} if len(results) == expected:
            pairs = [Result(*pair) for pair in results if _is_pair(pair)]
            if len(pairs) == expected:
                return tuple(pairs)
    return Failure("crash", "wrote something else than results")


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)


def _command(options: SandboxOptions, modules: Sequence[str]) -> list[str]:
    """The command that starts a worker. Raises UserError if there is no sandbox and the user has not agreed to that."""
    accepted = os.environ.get(WITHOUT_SANDBOX, "")
    if accepted and accepted != ACCEPTANCE:
        raise UserError(f"sandbox: {WITHOUT_SANDBOX}={accepted!r} is not the sentence; it must be {ACCEPTANCE!r}")
    limits = [str(options.output_bytes), str(options.memory_mib * 2**20)]
    # Not -I: it would ignore the hash seed. The environment holds nothing else.
    python = [os.path.realpath(sys.executable), "-P", "-s", "-S", "-B"]
    if accepted:
        return [*python, str(WORKER), *limits, "unfiltered", *modules]
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise UserError(
            f"sandbox: needs Linux on x86-64, this is {platform.system()} {platform.machine()}; {_remedy()}"
        )
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        raise UserError(f"sandbox: bubblewrap is not installed (no bwrap on the path); {_remedy()}")
    return [bubblewrap, *_walls(), "--", *python, "/worker.py", *limits, "filtered", *modules]


def _remedy() -> str:
    return f"install bubblewrap, or set {WITHOUT_SANDBOX} to the sentence {ACCEPTANCE!r}"


def _walls() -> list[str]:
    """bubblewrap's options: a separate root with a Python in it, read-only except for the folder of programs' files."""
    visible = [path for path in ("/usr", "/lib", "/lib64") if os.path.isdir(path) and not os.path.islink(path)]
    links = [(os.readlink(path), path) for path in ("/lib", "/lib64") if os.path.islink(path)]
    base = os.path.realpath(sys.base_prefix)
    if not base.startswith("/usr/"):
        visible.append(base)
    walls = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    walls += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    for path in visible:
        walls += ["--ro-bind", path, path]
    for target, path in links:
        walls += ["--symlink", target, path]
    walls += ["--ro-bind", str(WORKER), "/worker.py", "--dev-bind", "/dev/null", "/dev/null"]
    return [*walls, "--size", str(FOLDER_BYTES), "--tmpfs", FOLDER, "--remount-ro", "/"]


@lru_cache(maxsize=8)
def _shared(options: SandboxOptions, modules: tuple[str, ...], process: int, accepted: str | None) -> Sandbox:
    return Sandbox(options, modules)


def shared(options: SandboxOptions, modules: Sequence[str] = ()) -> Sandbox:
    """This process's sandbox with these options. Raises UserError as `Sandbox` does."""
    return _shared(options, tuple(modules), os.getpid(), os.environ.get(WITHOUT_SANDBOX))
