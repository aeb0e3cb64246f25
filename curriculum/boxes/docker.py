"""The command line of docker or podman, used beside swe-rex: limits, a check that it answers, removal of containers."""

import os
import shutil
import subprocess
from contextlib import suppress
from functools import lru_cache
from tempfile import TemporaryFile

from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import one_line

ANSWER_SECONDS = 120.0
MOST_SAID = 64 << 20
"""Bytes that a runtime may write to a file when it is asked whether it works."""


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
    with TemporaryFile() as said:
        try:
            words = ["/bin/sh", "-c", f'ulimit -f {MOST_SAID >> 9}; exec "$0" info', shutil.which(runtime) or runtime]
            asked = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=said, timeout=ANSWER_SECONDS)
            said.seek(max(said.seek(0, os.SEEK_END) - 1000, 0))
            last = said.read().decode("utf-8", "replace").strip()[-200:]
            why = "" if asked.returncode == 0 else one_line(last or f"status {asked.returncode}")
        except subprocess.TimeoutExpired:
            why = f"nothing within {ANSWER_SECONDS:g} s"
        except OSError as error:
            why = one_line(error)
    if why:
        raise UserError(f"box swerex: {runtime} does not answer ({why}); start it, or give another swerex.deployment")


def remove(runtime: str, container: str) -> None:
    """Remove a container, if it is there."""
    with suppress(OSError, subprocess.TimeoutExpired):
        words = [runtime, "rm", "-f", "--", container]
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=ANSWER_SECONDS)


@lru_cache
def remove_at_the_end(runtime: str, process: int) -> subprocess.Popen[bytes]:
    """A shell that waits until this process ends, for whatever reason, and then removes the containers it has left."""
    ids = f"{runtime} ps -aq --filter label={label(process)} | head -c 1000000 | grep -xE '[0-9a-f]{{12,64}}'"
    line = f"read -r _; {ids} | xargs -r {runtime} rm -f --"
    return subprocess.Popen(
        ["sh", "-c", line],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
