"""The process of one of our own vLLM servers: start, restart, end, log."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from halfway.curriculum.support import end_with_parent
from halfway.curriculum.support.extras import clean
from halfway.trainers.distributed.cluster import restart_pause
from halfway.trainers.engines.vllm_servers import auth

# If a server inherited these from a training process, it would wait for other ranks or look for their store.
OF_A_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# Others that a training process sets for itself alone.
OF_A_PROCESS = ("VLLM_ENABLE_V1_MULTIPROCESSING", "CUBLAS_WORKSPACE_CONFIG", auth.FILE_VARIABLE)
SAFE = {"PYTHONSAFEPATH": "1"}  # imports nothing from the user's current folder
ERROR, HARMLESS = re.compile(r"\w[\w.]*Error: .*"), re.compile(r"\b(DEBUG|INFO|WARNING)\b")


def of_a_trainer(name: str) -> bool:
    """True if a training process must not pass on this environment variable to a server."""
    return name in (*OF_A_RANK, *OF_A_PROCESS) or name.startswith(("TORCHELASTIC_", "GROUP_", "ROLE_"))


@dataclass(eq=False)
class Process:
    """A process that ends with this one.

    Attributes:
        command: the command that starts it; empty if it is not our own.
        log: file with its messages.
        environment: additional environment variables.
        attempts: number of starts since it last worked.
        started: time of the last start, on the monotonic clock.
    """

    command: tuple[str, ...] = ()
    log: Path | None = None
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    attempts: int = 0
    started: float = 0.0
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)
    _log_start: int = field(default=0, repr=False)
    _kept: Path | None = field(default=None, repr=False)
    _blocks: set[str] = field(default_factory=set, repr=False)

    def start(self) -> None:
        """Start the process; end an earlier one first."""
        assert self.log is not None
        self.stop()
        self.attempts += 1
        self.started = time.monotonic()
        own = {name: value for name, value in os.environ.items() if not of_a_trainer(name)}
        with self.log.open("ab") as file:
            self._log_start = file.tell()
            self.process = subprocess.Popen(
                (sys.executable, "-P", end_with_parent.__file__, str(self.log.parent), *self.command),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=own | SAFE | self.environment,
                start_new_session=True,
            )

    def ended(self) -> bool:
        """True if it is our own and is not running."""
        return bool(self.command) and (self.process is None or self.process.poll() is not None)

    def is_due(self) -> bool:
        """True if it has ended and its pause is over; the pause grows with every failed start."""
        return self.ended() and time.monotonic() >= self.started + restart_pause(self.attempts)

    def ask_to_end(self) -> None:
        """Ask the process to clean up, for example its shared memory, and to end; `stop` waits for it."""
        if self.process is not None:
            self.process.terminate()

    def stop(self, grace_seconds: float = 0.0) -> None:
        """End the process and its children, even if they are frozen.

        Args:
            grace_seconds: time to end by itself after `ask_to_end`.
        """
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(grace_seconds)
            self.remember_memory()
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            end_with_parent.unlink(self._blocks)
            self._blocks = set()
            self.process.communicate()
            self.process = None

    def remember_memory(self) -> None:
        """Note its open shared memory, to remove it if the process is killed."""
        if self.process is not None:
            self._blocks |= end_with_parent.shared_blocks(self.process.pid)

    def first_error(self) -> str:
        """The first error in the log since the last start, the cause of later ones; empty if there is none."""
        if self.log is None or not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            lines = file.read(1 << 24).decode(errors="replace").splitlines()
        errors = (ERROR.search(line) for line in lines if not HARMLESS.search(line))
        return next((clean(" ".join(found[0].split()))[:600] for found in errors if found), "")

    def keep_log(self) -> str:
        """Copy the log to a place that survives the run. Returns the path; empty if there is no log."""
        if self.log is None or not self.log.exists():
            return ""
        if self._kept is None:
            self._kept = Path(tempfile.mkdtemp(prefix="halfway-log-")) / self.log.name
        shutil.copyfile(self.log, self._kept)
        return str(self._kept)
