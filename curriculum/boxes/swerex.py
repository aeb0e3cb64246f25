"""Boxes of swe-rex: docker or podman on this machine, cloud sandboxes. Needs `pip install swe-rex`."""

import asyncio
import base64
import io
import os
import re
import secrets
import shlex
import tarfile
import threading
import time
from collections import defaultdict
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from halfway.curriculum import UserError, require
from halfway.curriculum.boxes import docker
from halfway.curriculum.boxes.box import Base, Box, BoxFullError, BoxLostError, Executed
from halfway.curriculum.boxes.determinism import VARIABLES, options_of_version
from halfway.curriculum.boxes.docker import EVERYBODY, around
from halfway.curriculum.boxes.trees import Changes, Entry, pack, unpack
from halfway.curriculum.support.acceptance import require_accepted
from halfway.curriculum.support.extras import one_line

Result = TypeVar("Result")
Tree = dict[str, tuple[str, str, str]]
"""For each file and link: its kind, its mode, and the checksum of its content or its target."""

NOTES = "/var/tmp"
"""Folder for temporary files of this adapter: not /tmp, which commands list more often."""

SHORT_ARGUMENT = 60_000
"""Maximum number of characters in a line; Linux allows 131,072 in one argument. Longer data go through a file."""

LIST = "find . -path ./.git -prune -o \\( -type f -o -type l \\) -printf '%y\\0%m\\0%l\\0%P\\0'"
SUMS = "find . -path ./.git -prune -o -type f -print0 | xargs -0 -r sha256sum -z --"
SERVICE_SECONDS = 120.0
REQUEST_SECONDS = 200.0
"""Time limit on one request; swe-rex's client gives up after 300 s. Longer commands are polled."""

CONTAINERS = ("docker", "modal", "fargate", "daytona")
WITHOUT_WALLS = "local"
"""swe-rex's deployment in this process, for tests of this adapter."""

HARMLESS = {
    "type": "docker",
    "container_runtime": "docker|podman",
    "python_standalone_dir": r"[\w./-]+|None",
    "platform": r"\w[\w./-]*|None",
    "pull": r"\w+",
    "startup_timeout": r"[\d.]+",
    "port": r"\d+|None",
}
"""Options that only describe docker's container, and the form of their values. All others need the user's consent: they
run commands on this machine, show its files to containers, or spend the user's money."""

IMAGE = re.compile(r"[A-Za-z0-9][\w.:/@-]{0,255}")
"""The form of an image's name. No such name can pass for an option of docker."""


@dataclass(frozen=True)
class SweRex:
    """Boxes of swe-rex. See `box.BoxMaker`.

    A container lives as long as its episode, so a state can be used once; to use it a second time, its commands are
    executed again. All processes that a command starts end with it. All containers end with this process, for whatever
    reason.

    Attributes:
        deployment: `type` (docker, modal, fargate, daytona) and options of swe-rex's configuration of that type. The
            image comes from the task. swe-rex's type remote is one server for all episodes, so it cannot serve as
            boxes. Types other than docker, and options such as docker_args, need the user's consent, see `HARMLESS`.
        path: folders in front of PATH, even if they do not exist: by default those in which images of SWE-bench and
            R2E-Gym have the Python for their tests.
        memory_mib: memory of a container of type docker; 0 = no limit. Limits for other types, and on disk, belong in
            `deployment`.
        processes: processes and threads of a container of type docker; 0 = no limit.
        start_seconds: seconds for starting a container, including pulling and building its image.
    """

    deployment: dict[str, Any] = field(default_factory=lambda: {"type": "docker", "python_standalone_dir": "/root"})
    path: tuple[str, ...] = ("/opt/miniconda3/envs/testbed/bin", "/testbed/.venv/bin")
    memory_mib: int = 4096
    processes: int = 512
    start_seconds: float = 1800.0

    forkable = False

    def __post_init__(self) -> None:
        kind = self.deployment.get("type")
        require(kind in (*CONTAINERS, WITHOUT_WALLS), "swerex.deployment.type", kind, f"give one of {CONTAINERS}")
        for word in _words_needed(self.deployment):
            require_accepted(f"deployment:{word}", f"swerex.deployment.{word}", "acts outside of its container")
        plain = all(re.fullmatch(r"[\w./+-]*", folder) for folder in self.path)
        require(plain, "swerex.path", list(self.path), "give folders named by letters, digits and . / + - _")
        require(self.memory_mib >= 0, "swerex.memory_mib", self.memory_mib, "give 0 (= no limit) or more")
        require(self.processes >= 0, "swerex.processes", self.processes, "give 0 (= no limit) or more")
        require(self.start_seconds > 0, "swerex.start_seconds", self.start_seconds, "give a number above 0")

    @property
    def _runtime(self) -> str:
        """The program that runs containers on this machine; "" if they run elsewhere."""
        of_docker = self.deployment["type"] == "docker"
        return str(self.deployment.get("container_runtime", "docker")) if of_docker else ""

    def check(self) -> None:
        """Raise UserError unless swe-rex is installed and docker answers; images are checked when they are needed."""
        self._deployment("")
        if self._runtime:
            docker.answers(self._runtime)

    def require(self, base: Base) -> None:
        there = bool(base.image) or self.deployment["type"] == WITHOUT_WALLS
        require(there, "box", "swerex", "the task is a folder, not an image; use the box bubblewrap")
        named = not base.image or IMAGE.fullmatch(base.image) is not None
        require(named, "image", base.image, "name a container image")

    def open(self, base: Base) -> Box:
        """Open a container of the task's image; see `box.BoxMaker.open`."""
        self.require(base)
        deployment, runtime = self._deployment(base.image), self._runtime
        if runtime:
            docker.answers(runtime)
            docker.remove_at_the_end(runtime, os.getpid())
        return SweRexBox(deployment, base, self.path, runtime, self.start_seconds)

    def _deployment(self, image: str) -> Any:
        """Make swe-rex's deployment. Raises UserError if swe-rex is not installed, or its options are wrong."""
        os.environ.setdefault("SWE_REX_LOG_STREAM_LEVEL", "CRITICAL")  # read when it is imported
        try:
            from pydantic import TypeAdapter
            from swerex.deployment.config import DeploymentConfig, get_deployment
        except ModuleNotFoundError as error:
            raise UserError(f"box swerex: needs {error.name}; pip install swe-rex, or use the box bubblewrap") from None
        options = dict(self.deployment)
        kind = options["type"]
        if kind != WITHOUT_WALLS:
            options["image"] = image
        if kind == "docker":
            options["docker_args"] = [*docker.limits(self.memory_mib, self.processes), *options.get("docker_args", ())]
        try:
            return get_deployment(TypeAdapter(DeploymentConfig).validate_python(options))
        except ValueError as error:
            raise UserError(f"swerex.deployment: {one_line(error)}; see swe-rex's configuration") from None


def _words_needed(deployment: Mapping[str, Any]) -> list[str]:
    """List the type, if it is not docker; otherwise the options that reach beyond the container."""
    if deployment["type"] != "docker":
        return [str(deployment["type"])]
    known = {name: str(value) for name, value in deployment.items() if name in HARMLESS}
    harmless = {name for name, value in known.items() if re.fullmatch(HARMLESS[name], value, re.ASCII)}
    return [str(name) for name in deployment if name not in harmless]


class SweRexBox:
    """One container. See `box.Box`; `save` covers regular files and links of the work tree, not /tmp."""

    def __init__(
        self, deployment: Any, base: Base, path: Sequence[str] = (), runtime: str = "", start_seconds: float = 1800.0
    ):
        self._deployment, self._place, self._runtime = deployment, base.tree or base.place, runtime
        self._path = "".join(f"{folder}:" for folder in path)
        self._spared = EVERYBODY if base.image else ""
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda loop, context: None)  # swe-rex stops what is already gone
        threading.Thread(target=self._loop.run_forever, name="swerex", daemon=True).start()
        try:
            self._start(base.image, start_seconds)
            if runtime:
                self._spared = self._ask("echo /proc/[0-9]*", SERVICE_SECONDS).strip()
            self._image = _IMAGES.get((base.image, self._place)) or self._inspect()
        except BaseException:
            self.close()
            raise
        if base.image:
            _IMAGES[base.image, self._place] = self._image

    def _start(self, image: str, seconds: float) -> None:
        """Start the container. The first of several with a new image starts alone, and pulls or builds the image."""
        if image and image not in _MADE:
            with _FIRST[image]:
                if image not in _MADE:
                    self._call(self._deployment.start(), seconds)
                    _MADE.add(image)
                    return
        self._call(self._deployment.start(), seconds)

    def exec(self, command: str, seconds: float, stdin: bytes = b"") -> Executed:
        began = time.monotonic()
        shell, files, source = f"-c {shlex.quote(command)}", [], "/dev/null"
        if len(shell) > SHORT_ARGUMENT:
            shell = self._store(command.encode())
            files.append(shell)
        if stdin:
            source = self._store(stdin)
            files.append(source)
        output, status = self._run(f"{self._image.layout}bash --noprofile --norc {shell}", seconds, source, files)
        spent = time.monotonic() - began
        if status is None:  # the command has killed the line around it, and may have left processes behind
            self._run("true", SERVICE_SECONDS, "/dev/null", ())
            status = 137
        late = status == 137 and spent >= seconds
        return Executed(124 if late else status, output, "time" if late else "exit", spent)

    def read(self, path: str) -> bytes:
        output, status = self._within(f"base64 -w0 -- {shlex.quote(path)}")
        if status:
            raise FileNotFoundError(f"{path}: not there")
        with _check_statements():
            return base64.b64decode(output)

    def write(self, path: str, content: bytes) -> None:
        target, folder = shlex.quote(path), shlex.quote(path.rpartition("/")[0] or ".")
        lines = f"mkdir -p -- {folder} && rm -rf -- {target}"
        encoded = base64.b64encode(content).decode()
        if len(encoded) <= SHORT_ARGUMENT:
            lines += f" && base64 -d <<< {encoded or shlex.quote('')} > {target}"
        else:
            lines += f" && mv -- {self._store(content)} {target} && chmod 644 -- {target}"
        output, status = self._within(lines)
        if status:
            raise BoxFullError(f"{path}: {output.strip()}")

    def save(self) -> bytes:
        before, now = self._image.tree, self._tree()
        changed = sorted(path for path, facts in now.items() if before.get(path) != facts)
        entries = [*self._entries(changed), *(Entry(path, "deleted") for path in before if path not in now)]
        return pack(Changes(0, tuple(sorted(entries, key=lambda entry: entry.path))))

    def restore(self, saved: bytes) -> None:
        """See `box.Box`. Only for a container that still equals its image: later changes are not undone."""
        for entry in unpack(saved).tree:
            if entry.kind == "file":
                self.write(entry.path, entry.data)
                self._must(f"chmod {entry.mode:o} -- {shlex.quote(entry.path)}")
            elif entry.kind == "deleted":
                self._must(f"rm -rf -- {shlex.quote(entry.path)}")

    def close(self) -> None:
        name = getattr(self._deployment, "container_name", None)
        with suppress(BoxLostError):  # the container may be gone already
            self._call(self._deployment.stop(), SERVICE_SECONDS)
        if self._runtime and name:  # swe-rex leaves a container whose server does not answer
            docker.remove(self._runtime, name)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _inspect(self) -> "_Image":
        """Inspect a new container."""
        layout = "setarch $(uname -m) -R "
        allowed = self._within(f"{layout} true")[1] == 0
        version = self._within(f'PATH="{self._path}$PATH" python -m pytest --version')[0]
        return _Image(self._tree(), layout if allowed else "", options_of_version(version))

    def _tree(self) -> "Tree":
        listed, summed = (self._must(command).split("\0")[:-1] for command in (LIST, SUMS))
        with _check_statements():
            sums = dict(line.split("  ./", 1)[::-1] for line in summed)
            parts = zip(*(listed[i::4] for i in range(4)), strict=True)
            return {path: (kind, mode, sums.get(path, "") if kind == "f" else link) for kind, mode, link, path in parts}

    def _entries(self, paths: Sequence[str]) -> list[Entry]:
        """Read the present files and links."""
        if not paths:
            return []
        names = self._store("".join(f"{path}\0" for path in paths).encode())
        packed = self._must(f"tar --null -c -T {names} | base64 -w0; rm -f {names}")
        found = []
        with _check_statements(), tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed)), mode="r:") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() or member.islnk() else None
                if content is not None:
                    found.append(Entry(member.name, "file", member.mode, data=content.read()))
                elif member.issym():
                    found.append(Entry(member.name, "link", 0o777, data=member.linkname.encode()))
        return found

    def _store(self, data: bytes) -> str:
        """Write data to a file in the container; returns its path."""
        from swerex.runtime.abstract import WriteFileRequest

        name, encoded = f"{NOTES}/.{secrets.token_hex(8)}", base64.b64encode(data).decode()
        if len(encoded) <= SHORT_ARGUMENT:
            self._must(f"base64 -d <<< {encoded} > {name}")
            return name
        request = WriteFileRequest(content=encoded, path=f"{name}.64")
        self._call(self._deployment.runtime.write_file(request), SERVICE_SECONDS)
        self._must(f"base64 -d {name}.64 > {name}; rm {name}.64")
        return name

    def _run(self, shell: str, seconds: float, stdin: str, files: Sequence[str]) -> tuple[str, int | None]:
        """Run a policy's command; returns output and status. No status: it has killed the line around it."""
        variables = {**VARIABLES, "PYTEST_ADDOPTS": self._image.pytest_options}
        line = around(shell, self._place, seconds, variables, self._path, stdin, files, self._spared)
        if seconds + SERVICE_SECONDS / 2 <= REQUEST_SECONDS:
            return line.read(self._ask(line.text, seconds + SERVICE_SECONDS / 2))
        name, began = f"{NOTES}/.{secrets.token_hex(8)}", time.monotonic()
        detached = f"bash -c {shlex.quote(line.text)} > {name}; : > {name}.end"
        self._ask(f"setsid bash -c {shlex.quote(detached)} < /dev/null > /dev/null 2>&1 &", SERVICE_SECONDS)
        waiting = f"for i in {{1..600}}; do [ -e {name}.end ] && echo yes && exit; read -t .1 <> <(:); done"
        while self._ask(waiting, REQUEST_SECONDS) != "yes\n":  # it may be killed with the command's own processes
            if time.monotonic() - began > seconds + SERVICE_SECONDS:
                raise BoxLostError("a container did not finish a command")
        return line.read(self._ask(f"cat {name}; rm -f {name} {name}.end", SERVICE_SECONDS))

    def _must(self, command: str) -> str:
        output, status = self._within(command)
        if status:
            raise BoxLostError(f"a container cannot run {command.split()[0]!r}: {output.strip()[:200]}")
        return output

    def _within(self, command: str) -> tuple[str, int]:
        """Run one of our own commands in the work tree; returns output and status."""
        mark = secrets.token_hex(16)
        line = f"cd -- {shlex.quote(self._place)} && {{ {command} ; }} 2>&1; echo {mark}$?"
        output, found, status = self._ask(line, SERVICE_SECONDS).rpartition(mark)
        if not found:
            raise BoxLostError("a container ended in the middle of a command")
        with _check_statements():
            return output, int(status)

    def _ask(self, line: str, seconds: float) -> str:
        """Run a line of bash; returns its output."""
        from swerex.runtime.abstract import Command

        asked = Command(command=["bash", "-c", line], timeout=seconds, shell=False)
        return str(self._call(self._deployment.runtime.execute(asked), seconds + SERVICE_SECONDS).stdout)

    def _call(self, coroutine: Coroutine[Any, Any, Result], seconds: float) -> Result:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(seconds)
        except Exception as error:  # from swe-rex, its web client or the container service
            future.cancel()
            raise BoxLostError(f"swe-rex: {one_line(error)}") from error


@contextmanager
def _check_statements() -> Iterator[None]:
    """Raise BoxLostError for errors in a container's statements, which a command may have forged."""
    try:
        yield
    except (ValueError, LookupError, OverflowError, tarfile.TarError) as error:
        raise BoxLostError(f"a container sent an impossible response ({one_line(error)})") from error


_MADE: set[str] = set()
_FIRST: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


@dataclass(frozen=True, slots=True)
class _Image:
    """Facts about an image, from its first container.

    Attributes:
        tree: the entries of its work tree.
        layout: prefix of a command that turns off address randomisation; empty if that is not allowed.
        pytest_options: the variable PYTEST_ADDOPTS.
    """

    tree: Tree
    layout: str
    pytest_options: str


_IMAGES: dict[tuple[str, str], _Image] = {}
"""Facts by image name and path of the work tree."""
