"""Runs docker or podman beside swe-rex, and builds the lines of bash around a command in a container.

Inside a container nothing is isolated: a command runs as root beside the server that runs it. It can break its
container and falsify what we read from it. It cannot reach another container, and the judge opens its own.
"""

import os
import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from tempfile import TemporaryFile

from halfway.curriculum import UserError
from halfway.curriculum.support.extras import one_line

KEPT_BYTES = 2**20
"""Bytes to keep of a long output's beginning, and of its end."""

ROUNDS = 100
"""Rounds of killing a command's processes, which may start others meanwhile."""

EVERYBODY = "/proc/[0-9]*"
"""All processes that exist before the command starts."""

TEMPLATE = """
shopt -s nullglob
declare -A before
for p in {spared} /proc/$$ /proc/$PPID; do before[$p]=1; done
cd -- {place} || exit 1
exec 9>&1
exec 8> >(head -c {kept}; printf %s {middle}; tail -c {kept})
reader=$!
timeout -s KILL {seconds} env {variables} {shell} < {stdin} >&8 2>&1 8>&- 9>&- &
group=$!
wait "$group" 2> /dev/null
status=$?
kill -9 -- "-$group" 2> /dev/null
if [ -n "{spared}" ]; then
  for ((round = 0; round < {rounds}; round++)); do
    left=
    for p in /proc/[0-9]*; do
      [[ ${{before[$p]}} || $p == "/proc/$reader" ]] && continue
      {{ read -r facts < "$p/stat"; }} 2> /dev/null || continue
      facts=(${{facts##*) }})
      [[ ${{facts[0]}} == [ZX] || ${{facts[1]}} == "$reader" ]] && continue
      kill -9 "${{p#/proc/}}" 2> /dev/null; left=1
    done
    [[ $left ]] || break
  done
fi
exec 8>&-
wait "$reader"
rm -f -- {files}
printf %s%s {end} "$status"
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of bash that runs one command, for `bash -c`.

    Attributes:
        middle: the random mark between the kept beginning and the kept end of the output.
        end: the mark between the output and the status.
    """

    text: str
    middle: str
    end: str

    def read(self, printed: str) -> tuple[str, int | None]:
        """Read output and status of the command; no status if the line was killed with its command, or forged."""
        output, found, status = printed.rpartition(self.end)
        if not found:
            output, status = printed, ""
        head, _, tail = output.partition(self.middle)
        if len(tail.encode("utf-8", "replace")) >= KEPT_BYTES:
            head += "\n[bytes left out]\n"
        return head + tail, int(status) if re.fullmatch(r"[0-9]{1,3}", status) else None


def around(
    shell: str,
    place: str,
    seconds: float,
    variables: Mapping[str, str],
    path: str = "",
    stdin: str = "/dev/null",
    files: Sequence[str] = (),
    spared: str = EVERYBODY,
) -> Line:
    """Build the line for a shell.

    Args:
        shell: the command, itself a line of bash, such as `bash -c "..."`.
        place: its working folder.
        path: folders in front of the container's PATH, each with its colon.
        stdin: file for its standard input.
        files: files to remove afterwards.
        spared: processes not to kill afterwards, as paths below /proc separated by blanks; "" = kill only the command's
            process group, since others start processes here meanwhile.
    """
    middle, end = secrets.token_hex(16), secrets.token_hex(16)
    values = [f"{name}={shlex.quote(value)}" for name, value in variables.items() if name != "PATH"]
    text = TEMPLATE.format(
        kept=KEPT_BYTES,
        middle=middle,
        end=end,
        place=shlex.quote(place),
        seconds=seconds,
        variables=" ".join([*values, f'PATH="{path}$PATH"']),
        shell=shell,
        stdin=shlex.quote(stdin),
        files=shlex.join(files),
        spared=spared,
        rounds=ROUNDS,
    )
    return Line(text, middle, end)


ANSWER_SECONDS = 120.0
MOST_SAID = 64 << 20
"""Maximum number of bytes that a runtime may write to a file during the check."""


def label(process: int) -> str:
    """The label of all containers of a process."""
    return f"halfway={os.uname().nodename}-{process}"


def limits(memory_mib: int, processes: int) -> list[str]:
    """Build options of `docker run`; 0 = no limit."""
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
    """Remove a container if it exists."""
    with suppress(OSError, subprocess.TimeoutExpired):
        words = [runtime, "rm", "-f", "--", container]
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=ANSWER_SECONDS)


@lru_cache
def remove_at_the_end(runtime: str, process: int) -> subprocess.Popen[bytes]:
    """Start a shell that waits until this process ends, for whatever reason, then removes its containers."""
    ids = f"{runtime} ps -aq --filter label={label(process)} | head -c 1000000 | grep -xE '[0-9a-f]{{12,64}}'"
    line = f"read -r _; {ids} | xargs -r {runtime} rm -f --"
    return subprocess.Popen(
        ["sh", "-c", line],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
