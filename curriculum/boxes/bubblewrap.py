"""Boxes on this machine: bubblewrap isolates, an overlay holds the work tree; no container, daemon or network."""

import json
import os
import platform
import shlex
import shutil
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from halfway.curriculum import UserError, require
from halfway.curriculum.boxes.box import Base, Box, BoxFullError, BoxLostError, Executed
from halfway.curriculum.boxes.determinism import VARIABLES, pytest_options
from halfway.curriculum.boxes.limits import bubblewrap_options, command_filter, limits, visible_paths
from halfway.curriculum.boxes.starting_trees import cache_folder, store
from halfway.curriculum.boxes.worker_process import WorkerProcess
from halfway.curriculum.support.atomic import writing

WORKER = Path(__file__).with_name("box_worker.py")
HEADER = struct.Struct("<II")
START_SECONDS = 20.0
GRACE_SECONDS = 10.0
SERVICE_SECONDS = 60.0
"""Time limit on opening, saving and restoring."""

NOBODY = 65_432
"""The user who runs commands if Halfway runs as root: one that owns nothing."""

OUTSIDE = ("/tests", "/solution", "/logs")
"""Paths for a Harbor task's scripts and its reward: links into /tmp; otherwise read-only."""

OWN = ("/tmp", "/dev", "/proc", *OUTSIDE)
"""Files that a box has instead of this machine's."""

DESCRIPTORS = 4096
MIB = 2**20


@dataclass(frozen=True)
class Bubblewrap:
    """Boxes on this machine, Linux only. See `box.BoxMaker`.

    Attributes:
        memory_mib: limit on the memory of all processes of a command together, checked twenty times a second, and on
            the address space of each. Shared memory counts once and in full.
        processes: maximum number of processes and threads of a command.
        disk_mib: most MiB of files that an episode may change or add, including /tmp and /dev/shm, which are in memory.
        files: maximum number of files that an episode may change or add.
        python: folder of a Python environment, read-only for commands, with pytest and the repository's requirements;
            empty = the environment that runs Halfway.
        tree: "overlay"; "copy", if the kernel allows no overlay; "auto" = an overlay if possible.
        variables: further environment variables of commands.
        cache: folder for starting work trees; empty = ~/.cache/halfway, or /var/cache/halfway for root.
    """

    memory_mib: int = 2048
    processes: int = 256
    disk_mib: int = 128
    files: int = 20_000
    python: str = ""
    tree: Literal["auto", "overlay", "copy"] = "auto"
    variables: dict[str, str] = field(default_factory=dict)
    cache: str = ""

    forkable = True

    def __post_init__(self) -> None:
        require(self.memory_mib >= 64, "bubblewrap.memory_mib", self.memory_mib, "give at least 64; Python needs it")
        few = "give at least 8; a shell with pytest needs it"
        require(self.processes >= 8, "bubblewrap.processes", self.processes, few)
        require(self.disk_mib >= 1, "bubblewrap.disk_mib", self.disk_mib, "give at least 1")
        require(self.files >= 64, "bubblewrap.files", self.files, "give at least 64")
        python = Path(self.python or sys.prefix) / "bin" / "python3"
        require(python.exists(), "bubblewrap.python", self.python, "give the folder of a Python environment")

    def check(self) -> None:
        """Run the interpreter in a box of an empty folder; see `box.BoxMaker.check`."""
        with tempfile.TemporaryDirectory() as empty:
            try:
                with closing(self.open(Base(empty))) as box:
                    done = box.exec("python3 -c ''", START_SECONDS)
            except BoxLostError as error:
                raise UserError(f"box bubblewrap: {error}; fix that, or use the box swerex") from None
        if done.status:
            why = " ".join(done.output.split())[-200:]
            raise UserError(
                f"box bubblewrap: python3 of {self.python or sys.prefix} does not run in a box ({why}); give "
                "bubblewrap.python the folder of another Python environment"
            )

    def require(self, base: Base) -> None:
        remedy = "use the box swerex, or a source with trees on this machine"
        require(bool(base.tree), "box", "bubblewrap", f"the image {base.image!r} is a container; {remedy}")

    def open(self, base: Base) -> Box:
        """Open a box with an untouched work tree; see `box.BoxMaker.open`."""
        self.require(base)
        cache = cache_folder(self.cache)
        name = store(os.path.realpath(base.tree), cache, _uid())
        worker = _idle_worker(self._settings(base.place, cache))
        try:
            worker.ask({"do": "open", "base": name})
        except BaseException:
            worker.stop()
            raise
        return BubblewrapBox(worker)

    def _settings(self, place: str, cache: Path) -> str:
        """Build a worker's settings, as JSON."""
        scratch = cache / "scratch"
        with writing(scratch):
            scratch.mkdir(parents=True, exist_ok=True)
            (cache / "bases").mkdir(exist_ok=True)
        prefix = os.path.abspath(self.python or sys.prefix)
        visible = visible_paths(prefix)
        _refuse_hidden(visible, place)
        path = f"{prefix}/bin:{VARIABLES['PATH']}"
        fixed = {**VARIABLES, "PATH": path, "PYTEST_ADDOPTS": pytest_options(prefix)}
        variables = {**fixed, "PYTHONPATH": f"{place}/src:{place}", **self.variables}
        box = f"{scratch}/box"
        mounts = ["--proc", "/proc", "--dev", "/dev", "--bind", f"{box}/shm", "/dev/shm"]
        mounts += ["--bind", f"{box}/tmp", "/tmp", "--bind", f"{box}/tree", place, "--remount-ro", "/dev"]
        for outside in OUTSIDE:
            mounts += ["--symlink", f"tmp{outside}", outside]
        # The worker mounts visible paths below its own folder, by number.
        sources = {path: f"{scratch}/{i}" for i, path in enumerate(visible, start=1)}
        walls = bubblewrap_options(sources, mounts, variables, forks=True, folder=place)
        return json.dumps(
            {
                "walls": [_bubblewrap(), *walls],
                "filter": command_filter(platform.machine()).hex(),
                "limits": limits(self.memory_mib * MIB, self.processes, self.disk_mib * MIB, DESCRIPTORS),
                "scratch": str(scratch),
                "bases": str(cache / "bases"),
                "visible": visible,
                "uid": _uid(),
                "memory": self.memory_mib * MIB,
                "disk": self.disk_mib * MIB,
                "files": self.files,
                "tree": self.tree,
            }
        )


class BubblewrapBox:
    """One work tree, held by a worker process. See `box.Box`."""

    def __init__(self, worker: "_Worker"):
        self._worker: _Worker | None = worker

    def exec(self, command: str, seconds: float, stdin: bytes = b"") -> Executed:
        argv = ["bash", "--noprofile", "--norc", "-c", command]
        facts, output = self._ask({"do": "run", "argv": argv, "seconds": seconds}, stdin, seconds + GRACE_SECONDS)
        text = output.decode("utf-8", "replace")
        if facts["left_out"]:
            half = len(output) // 2
            head, tail = output[:half].decode("utf-8", "replace"), output[half:].decode("utf-8", "replace")
            text = f"{head}\n[{facts['left_out']} bytes left out]\n{tail}"
        return Executed(facts["status"], text, facts["ended"], facts["seconds"])

    def read(self, path: str) -> bytes:
        argv = ["cat", "--", path]
        facts, output = self._ask({"do": "run", "argv": argv, "seconds": GRACE_SECONDS}, b"", 2 * GRACE_SECONDS)
        if facts["status"] or facts["left_out"]:
            raise FileNotFoundError(f"{path}: not there, or too large to be read")
        return output

    def write(self, path: str, content: bytes) -> None:
        folder, target = shlex.quote(os.path.dirname(path) or "."), shlex.quote(path)
        done = self.exec(f"mkdir -p -- {folder} && cat > {target}", GRACE_SECONDS, content)
        if done.status:
            raise BoxFullError(f"{path}: {done.output.strip()}")

    def save(self) -> bytes:
        return self._ask({"do": "save"})[1]

    def restore(self, saved: bytes) -> None:
        self._ask({"do": "restore"}, saved)

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        try:
            worker.ask({"do": "close"})
        except (BoxLostError, BoxFullError, UserError):
            worker.stop()
        else:
            worker.rest()

    def _ask(
        self, request: Mapping[str, Any], data: bytes = b"", seconds: float = SERVICE_SECONDS
    ) -> tuple[dict[str, Any], bytes]:
        assert self._worker is not None, "the box is closed"
        return self._worker.ask(request, data, seconds)


class _Worker:
    """A worker process, used by one box after the other. It ends with this process, for whatever reason."""

    def __init__(self, settings: str):
        self.settings, self.owner = settings, os.getpid()
        python = [os.path.realpath(sys.executable), "-I", "-S", "-B"]
        self._process = WorkerProcess([*python, str(WORKER), settings], {})
        try:
            self._receive(START_SECONDS)
        except BoxLostError:
            complaint = self.stop()
            raise BoxLostError(f"a box does not start ({complaint or 'it printed nothing'})") from None
        except BaseException:
            self.stop()
            raise

    def ask(
        self, request: Mapping[str, Any], data: bytes = b"", seconds: float = SERVICE_SECONDS
    ) -> tuple[dict[str, Any], bytes]:
        head = json.dumps(request).encode()
        if not self._process.send(HEADER.pack(len(head), len(data)) + head + data):
            raise BoxLostError("the process of the box has ended")
        try:
            return self._receive(seconds)
        except BoxLostError:
            self.stop()  # otherwise the next request would read the late answer
            raise

    def rest(self) -> None:
        """Drop the work tree and wait for the next box."""
        with _LOCK:
            _IDLE.setdefault((self.settings, self.owner), []).append(self)

    def stop(self) -> str:
        """End the process; returns the end of its error output."""
        return self._process.stop()

    def _receive(self, seconds: float) -> tuple[dict[str, Any], bytes]:
        deadline = time.monotonic() + seconds
        lengths = HEADER.unpack(self._read(HEADER.size, deadline))
        facts: dict[str, Any] = json.loads(self._read(lengths[0], deadline))
        data = self._read(lengths[1], deadline)
        if facts.get("full"):
            raise BoxFullError(str(facts["error"]))
        if facts.get("lost"):
            raise BoxLostError(f"a command cannot be started ({facts['error']})")
        if "error" in facts:
            raise UserError(_not_here(str(facts["error"])))
        return facts, data

    def _read(self, size: int, deadline: float) -> bytes:
        data = self._process.receive(size, deadline)
        if data is None:
            raise BoxLostError("the process of the box does not answer")
        return data


_LOCK = threading.Lock()
_IDLE: dict[tuple[str, int], list[_Worker]] = {}


def _idle_worker(settings: str) -> _Worker:
    with _LOCK:
        idle = _IDLE.get((settings, os.getpid()))
        if idle:
            return idle.pop()
    return _Worker(settings)


def _uid() -> int:
    """The user who runs commands: a user without rights if we are root, unless root is mapped from another user."""
    if os.geteuid() != 0:
        return os.geteuid()
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    mapped = any(first <= NOBODY < first + count for first, _, count in ranges)
    return NOBODY if mapped else 0


def _refuse_hidden(visible: Sequence[str], place: str) -> None:
    """Raise UserError if a box would hide its own Python environment."""
    for path in visible:
        hidden = next((own for own in (*OWN, place) if Path(path).is_relative_to(own)), None)
        if hidden is not None:
            raise UserError(
                f"bubblewrap.python: {path} is below {hidden}, and a box has a {hidden} of its own; make the Python "
                "environment in another folder, or use the box swerex"
            )


def _bubblewrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise UserError(
            "box bubblewrap: bubblewrap is not installed (no bwrap on the path); "
            "apt-get install bubblewrap, or use the box swerex"
        )
    return found


def _not_here(why: str) -> str:
    if "user namespaces" in why or "uid_map" in why or "Operation not permitted" in why:
        return (
            f"box bubblewrap: this machine forbids what it needs ({why}); allow user namespaces (sysctl "
            "kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0, or docker run "
            "--security-opt seccomp=unconfined --security-opt systempaths=unconfined), or use the box swerex"
        )
    return f"box bubblewrap: {why}"
