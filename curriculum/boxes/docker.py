"""The command line of docker or podman, used beside swe-rex: limits, a check that it answers, removal of containers."""

import os
import subprocess
from contextlib import suppress
from functools import lru_cache

from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import one_line

ANSWER_SECONDS = 120.0


def label(process: int) -> str:
    """The label of all containers that belong to a process."""
    return f"halfway={os.uname().nodename}-{process}"


def limits(memory_mib: int, processes: int) -> list[str]:
    """Options of `docker run`; 0 = no limit."""
    memory = [f"--memory={memory_mib}m"] if memory_mib else []
    counted = [f"--pids-limit={processes}"] if processes else []
    rights = ["--cap-drop=NET_RAW", "--cap-drop=MKNOD", "--security-opt=no-new-privileges"]
    return [f"--label={label(os.getpid())}", "--hostname=box", *memory, *counted, *rights]


@lru_cache
def answers(runtime: str) -> None:
    """Raise UserError unless the container runtime exists and answers. If it fails later, boxes are lost."""
    try:
        asked = subprocess.run([runtime, "info"], capture_output=True, text=True, timeout=ANSWER_SECONDS)
        why = "" if asked.returncode == 0 else one_line(asked.stderr)[-200:] or f"status {asked.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        why = one_line(error)
    if why:
        raise UserError(f"box swerex: {runtime} does not answer ({why}); start it, or give another swerex.deployment")


def remove(runtime: str, container: str) -> None:
    """Remove a container, if it is there."""
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run([runtime, "rm", "-f", container], capture_output=True, timeout=ANSWER_SECONDS)


@lru_cache
def remove_at_the_end(runtime: str, process: int) -> subprocess.Popen[bytes]:
    """A shell that waits until this process ends, for whatever reason, and then removes the containers it has left."""
    line = f"read -r _; {runtime} ps -aq --filter label={label(process)} | xargs -r {runtime} rm -f"
    return subprocess.Popen(
        ["sh", "-c", line],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
