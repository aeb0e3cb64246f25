"""Runs untrusted programs in bubblewrap, one process per program, and judges them outside.

The sandbox has no network, a read-only file system with only a Python, its own process table, no capabilities, and a
system-call filter under which a program cannot start a process or thread or send a signal. Memory, time and output are
limited. `sandbox_worker` runs inside.

A program whose determinism matters runs in two lanes: separate processes with different hash seeds.
"""

import json
import os
import platform
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from halfway.curriculum import UserError, require
from halfway.curriculum.boxes.limits import MACHINES, bubblewrap_options, limits, program_filter, visible_paths
from halfway.curriculum.boxes.sandbox_worker import HEADER, MAGIC, REPLY
from halfway.curriculum.boxes.worker_process import WorkerProcess
from halfway.curriculum.support.acceptance import VARIABLE, is_accepted

WITHOUT_SANDBOX = "no-sandbox"
"""The user's consent to run generated programs unprotected on this machine."""

WORKER = Path(__file__).with_name("sandbox_worker.py")
HASH_SEEDS = (1, 2)
"""The hash seed of each lane."""

MAX_REQUEST = 32_768
"""Bytes. A request must fit into a pipe, so that sending never waits for the program."""

MAX_OUTPUT = 65_536
"""Bytes of a program's encoded results."""

DESCRIPTORS = 64
START_SECONDS = 20.0
GRACE_SECONDS = 2.0

Fault = Literal["error", "timeout", "output", "crash", "too long"]


@dataclass(frozen=True)
class SandboxOptions:
    """Limits of one program.

    Attributes:
        seconds: wall-clock limit; processor time is limited to about the same value.
        memory_mib: limit on the address space. The kernel's page tables add at most twice as much, for a program that
            scatters its memory.
        processes: programs that run at once, in each of the two lanes.
    """

    seconds: float = 10.0
    memory_mib: int = 256
    processes: int = 1

    def __post_init__(self) -> None:
        require(0 < self.seconds <= 600, "sandbox.seconds", self.seconds, "give a number above 0, at most 600")
        require(self.memory_mib >= 64, "sandbox.memory_mib", self.memory_mib, "give at least 64; Python needs it")
        require(self.processes >= 1, "sandbox.processes", self.processes, "give at least 1")


@dataclass(frozen=True, slots=True)
class Job:
    """One program and the calls to compute.

    Attributes:
        code: Python that defines the function.
        entry: the function's name.
        inputs: the arguments of each call, as the text of a tuple literal. Each call gets fresh values.
        lane: 0 or 1.
    """

    code: str
    entry: str
    inputs: tuple[str, ...]
    lane: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """The value of one call, as a Python literal, and a text that is the same for all values equal in Python."""

    shown: str
    key: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a program gave no results."""

    fault: Fault
    detail: str = ""


Outcome = tuple[Result, ...] | Failure


class Sandbox:
    """Worker processes that run untrusted programs; they start when first needed.

    `close` stops them, and so does the end of this process.

    Safe to use from several threads. A process that was forked from this one needs its own sandbox.
    """

    def __init__(self, options: SandboxOptions, modules: Sequence[str] = ()):
        """
        Args:
            modules: modules that workers import in advance, to save programs the time.

        Raises:
            UserError: if this machine has no sandbox and the user has not agreed to run without one.
        """
        self.options = options
        self._command = _command(options, modules)
        self._local = threading.local()
        # One worker per thread: bubblewrap ends with the thread that started it.
        self._lanes = [ThreadPoolExecutor(options.processes, f"sandbox-{lane}") for lane in range(len(HASH_SEEDS))]

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run the programs and return their results, in order.

        A program that misbehaves yields a `Failure` and does not affect the others.

        Raises:
            UserError: if a worker cannot be started.
        """
        futures: list[Future[Outcome]] = [self._lanes[job.lane].submit(self._run_one, job) for job in jobs]
        return [future.result() for future in futures]

    def close(self) -> None:
        """Stop all workers."""
        for lane in self._lanes:
            lane.shutdown()

    def _run_one(self, job: Job) -> Outcome:
        body = json.dumps({"code": job.code, "entry": job.entry, "inputs": job.inputs}).encode()
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
            self._local.worker = _Worker(self._command, HASH_SEEDS[lane], MAX_OUTPUT)
        worker: _Worker = self._local.worker
        return worker


class _Worker:
    """One worker process."""

    def __init__(self, command: Sequence[str], hash_seed: int, output: int):
        self.process = WorkerProcess(command, {"PYTHONHASHSEED": str(hash_seed)})
        self.output = output
        probe = json.dumps({"code": "def f(): return 1", "entry": "f", "inputs": ["()"]}).encode()
        reply = self.ask(probe, START_SECONDS)
        if reply is None or _outcome(*reply, expected=1) != (Result("1", "1"),):
            complaint = self.process.stop()
            raise UserError(f"sandbox: does not start ({complaint or reply}); {_remedy()}")

    def ask(self, body: bytes, seconds: float) -> tuple[bytes, bytes] | None:
        """Status and output of one program, or None if the worker is gone or does not answer this request in time."""
        number = os.urandom(8)
        if not self.process.send(HEADER.pack(MAGIC, number, len(body), round(1000 * seconds)) + body):
            return None
        deadline = time.monotonic() + seconds + GRACE_SECONDS
        header = self.process.receive(REPLY.size, deadline)
        if header is None:
            return None
        answered, status, size = REPLY.unpack(header)
        output = self.process.receive(size, deadline) if answered == number and size <= self.output else None
        return None if output is None else (status, output)

    def stop(self) -> None:
        self.process.stop()


def _outcome(status: bytes, output: bytes, expected: int) -> Outcome:
    """Read a program's claimed results; the bytes are as hostile as the program."""
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
    """Build the command that starts a worker. Raises UserError as `Sandbox` does."""
    unprotected, system, machine = is_accepted(WITHOUT_SANDBOX), platform.system(), platform.machine()
    if not unprotected and (system != "Linux" or machine not in MACHINES):
        raise UserError(f"sandbox: needs Linux on {' or '.join(MACHINES)}, this is {system} {machine}; {_remedy()}")
    settings = {
        "output": MAX_OUTPUT,
        "limits": limits(memory=options.memory_mib * 2**20, processes=0, file_bytes=0, descriptors=DESCRIPTORS),
        "filter": "" if unprotected else program_filter(machine).hex(),
        "modules": list(modules),
    }
    # Not -I, which ignores the hash seed. The environment has no other variables.
    python = [os.path.realpath(sys.executable), "-P", "-s", "-S", "-B"]
    if unprotected:
        return [*python, str(WORKER), json.dumps(settings)]
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        raise UserError(f"sandbox: bubblewrap is not installed (no bwrap on the path); {_remedy()}")
    visible = {path: path for path in visible_paths(sys.base_prefix)} | {"/worker.py": str(WORKER)}
    walls = bubblewrap_options(visible, ["--dev-bind", "/dev/null", "/dev/null"], {}, forks=False)
    return [bubblewrap, *walls, "--", *python, "/worker.py", json.dumps(settings)]


def _remedy() -> str:
    remedy = f"set {VARIABLE}={WITHOUT_SANDBOX} to run generated programs unprotected on this machine"
    return f"install bubblewrap, or {remedy}"


@lru_cache(maxsize=8)
def _get_sandbox(options: SandboxOptions, modules: tuple[str, ...], process: int, unprotected: bool) -> Sandbox:
    return Sandbox(options, modules)


def get_sandbox(options: SandboxOptions, modules: Sequence[str] = ()) -> Sandbox:
    """This process's sandbox with these options. Raises UserError as `Sandbox` does."""
    return _get_sandbox(options, tuple(modules), os.getpid(), is_accepted(WITHOUT_SANDBOX))
