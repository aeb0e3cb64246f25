"""Boxes of swe-rex: docker or podman on this machine, cloud sandboxes. Needs `pip install swe-rex`."""

import asyncio
import base64
import shlex
import subprocess
import threading
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from halfway.curriculum.boxes.base import Base, Box, BoxFullError, BoxLostError, Executed
from halfway.curriculum.boxes.determinism import VARIABLES
from halfway.curriculum.boxes.trees import Changes, Entry, pack, unpack
from halfway.curriculum.support.errors import UserError, require
from halfway.curriculum.support.extras import one_line

Result = TypeVar("Result")

NOTES = "/tmp/.halfway"
"""Where a container keeps the list of files that its image came with."""

MARK = "\N{BLACK SQUARE}status\N{BLACK SQUARE}"
CHUNK = 60_000
"""Characters of one command: a system takes 131,072 at most."""

LIST = "find . -path ./.git -prune -o {which} -print0 2> /dev/null"
SERVICE_SECONDS = 120.0
CONTAINERS = ("docker", "modal", "fargate", "daytona")
WITHOUT_WALLS = "local"
"""swe-rex's deployment in this very process, for tests of this adapter."""


@dataclass(frozen=True)
class SweRex:
    """Boxes of swe-rex. See `base.BoxMaker`.

    A container lives as long as its episode, so a state is continued once; what continues it a second time executes
    its commands once more. Limits on memory, processes and disk are the container's: give them in `deployment`.

    Attributes:
        deployment: `type` (docker, modal, fargate, daytona) and options of swe-rex's configuration of that type. The
            image comes from the task. swe-rex's type remote is one server for all, and no box of its own.
        path: folders in front of PATH, whether they are there or not: where the images of SWE-bench and R2E-Gym keep
            the Python that their tests need.
    """

    deployment: dict[str, Any] = field(default_factory=lambda: {"type": "docker", "python_standalone_dir": "/root"})
    path: tuple[str, ...] = ("/opt/miniconda3/envs/testbed/bin", "/testbed/.venv/bin")

    def __post_init__(self) -> None:
        kind = self.deployment.get("type")
        require(kind in (*CONTAINERS, WITHOUT_WALLS), "swerex.deployment.type", kind, f"give one of {CONTAINERS}")

    @property
    def forkable(self) -> bool:
        return False

    def open(self, base: Base) -> Box:
        """A container of the task's image; see `base.BoxMaker.open`."""
        try:
            from pydantic import TypeAdapter
            from swerex.deployment.config import DeploymentConfig, get_deployment
        except ModuleNotFoundError as error:
            raise UserError(f"box swerex: needs {error.name}; pip install swe-rex, or use the box bubblewrap") from None
        options = dict(self.deployment)
        if options["type"] != WITHOUT_WALLS:
            require(bool(base.image), "box", "swerex", "the task is a folder, not an image; use the box bubblewrap")
            options["image"] = base.image
        try:
            deployment = get_deployment(TypeAdapter(DeploymentConfig).validate_python(options))
        except ValueError as error:
            raise UserError(f"swerex.deployment: {one_line(error)}; see swe-rex's configuration") from None
        if options["type"] == "docker":
            _answers(str(options.get("container_runtime", "docker")))
        return SweRexBox(deployment, base, self.path)


class SweRexBox:
    """One container. See `base.Box`; `save` knows regular files and links of the work tree, not /tmp."""

    def __init__(self, deployment: Any, base: Base, path: Sequence[str] = ()):
        self._deployment, self._place = deployment, base.tree or base.place
        self._path = "".join(f"{folder}:" for folder in path)
        self._call(deployment.start(), SERVICE_SECONDS)
        listing = LIST.format(which=r"\( -type f -o -type l \)")
        self._must(
            f"{listing} | sort -z > {NOTES}; touch -d '1 second ago' {NOTES}.time; {self._sums()} > {NOTES}.sums"
        )

    def exec(self, command: str, seconds: float, given: bytes = b"") -> Executed:
        began = time.monotonic()
        fed = f"base64 -d <<< {base64.b64encode(given).decode()} |" if given else ""
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in VARIABLES.items() if name != "PATH")
        variables += f' PATH="{self._path}$PATH"'
        shell = f"timeout -s KILL {seconds} bash --noprofile --norc -c {shlex.quote(command)}"
        line = f"cd {shlex.quote(self._place)} && {{ {fed} env {variables} {shell} ; }} 2>&1; echo {MARK}$?"
        output, status = self._run(line, seconds + SERVICE_SECONDS)
        spent = time.monotonic() - began
        ended = "time" if status == 137 and spent >= seconds else "exit"
        return Executed(124 if ended == "time" else status, output, "time" if ended == "time" else "exit", spent)

    def read(self, path: str) -> bytes:
        output, status = self._run(self._within(f"base64 -w0 -- {shlex.quote(path)}"), SERVICE_SECONDS)
        if status:
            raise FileNotFoundError(f"{path}: not there")
        return base64.b64decode(output)

    def write(self, path: str, content: bytes) -> None:
        target, encoded = shlex.quote(path), base64.b64encode(content).decode()
        folder = shlex.quote(path.rpartition("/")[0] or ".")
        lines = [f"mkdir -p -- {folder} && rm -rf -- {target} && : > {target}"]
        lines += [f"echo {encoded[i : i + CHUNK]} | base64 -d >> {target}" for i in range(0, len(encoded), CHUNK)]
        for line in lines:
            output, status = self._run(self._within(line), SERVICE_SECONDS)
            if status:
                raise BoxFullError(f"{path}: {output.strip()}")

    def save(self) -> bytes:
        now = set(self._must(LIST.format(which=r"\( -type f -o -type l \)")).split("\0")) - {""}
        before = set(self._must(f"cat {NOTES}").split("\0")) - {""}
        changed = self._must(f"{self._sums()} | sort | comm -13 <(sort {NOTES}.sums) -").splitlines()
        paths = sorted({line.partition("  ")[2] for line in changed} | (now - before))
        entries = [self._entry(path.removeprefix("./")) for path in paths if path in now]
        entries += [Entry(path.removeprefix("./"), "deleted") for path in before - now]
        return pack(Changes(0, tuple(sorted(entries, key=lambda entry: entry.path))))

    def restore(self, saved: bytes) -> None:
        """Only in a container that is as its image: what changed since is not taken back."""
        for entry in unpack(saved).tree:
            if entry.kind == "file":
                self.write(entry.path, entry.data)
                self._must(f"chmod {entry.mode:o} -- {shlex.quote(entry.path)}")
            elif entry.kind == "deleted":
                self._must(f"rm -rf -- {shlex.quote(entry.path)}")

    def close(self) -> None:
        with suppress(BoxLostError):  # it may be gone already
            self._call(self._deployment.stop(), SERVICE_SECONDS)

    def _entry(self, path: str) -> Entry:
        quoted = shlex.quote(path)
        kind, mode = self._must(f"stat -c '%F %a' -- {quoted}").rsplit(" ", 1)
        if kind == "symbolic link":
            return Entry(path, "link", 0o777, data=self._must(f"readlink -n -- {quoted}").encode())
        return Entry(path, "file", int(mode, 8), data=self.read(path))

    def _sums(self) -> str:
        return f"{LIST.format(which='-type f')} | xargs -0 -r sha256sum --"

    def _within(self, command: str) -> str:
        return f"cd {shlex.quote(self._place)} && {{ {command} ; }} 2>&1; echo {MARK}$?"

    def _must(self, command: str) -> str:
        output, status = self._run(self._within(command), SERVICE_SECONDS)
        if status:
            raise BoxLostError(f"a container cannot run {command.split()[0]!r}: {output.strip()[:200]}")
        return output

    def _run(self, line: str, seconds: float) -> tuple[str, int]:
        """Output and status of a line of bash."""
        from swerex.runtime.abstract import Command

        asked = Command(command=["bash", "-c", line], timeout=seconds, shell=False)
        done = self._call(self._deployment.runtime.execute(asked), seconds + SERVICE_SECONDS)
        output, mark, status = str(done.stdout).rpartition(MARK)
        if not mark:
            raise BoxLostError(f"a container ended in the middle of a command: {str(done.stderr)[:200]}")
        return output, int(status)

    def _call(self, coroutine: Coroutine[Any, Any, Result], seconds: float) -> Result:
        future = asyncio.run_coroutine_threadsafe(coroutine, _loop())
        try:
            return future.result(seconds)
        except (UserError, BoxLostError):
            raise
        except Exception as error:  # of swe-rex, of its web client, of the container service
            future.cancel()
            raise BoxLostError(f"swe-rex: {one_line(error)}") from error


@lru_cache
def _answers(runtime: str) -> None:
    """Raise UserError unless a container runtime is there and has answered once; later it may be lost as boxes are."""
    try:
        asked = subprocess.run([runtime, "info"], capture_output=True, text=True, timeout=SERVICE_SECONDS)
        why = "" if asked.returncode == 0 else one_line(asked.stderr)[-200:] or f"status {asked.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        why = one_line(error)
    if why:
        raise UserError(f"box swerex: {runtime} does not answer ({why}); start it, or give another swerex.deployment")


@lru_cache(maxsize=1)
def _loop() -> asyncio.AbstractEventLoop:
    """swe-rex is asynchronous; its calls run in a thread of their own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="swerex", daemon=True).start()
    return loop
