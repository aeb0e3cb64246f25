"""swe-rex's boxes in real containers, if docker or podman and an image are installed.

The image `halfway-boxes`, or the one that HALFWAY_BOXES_IMAGE names, holds bash, git, tar, a `python` with pytest, and
`swerex-remote` on its path; docs/repositories.md says how to make one without a registry.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hostile import HOSTILE
from repositories import FAIL, FAULTY, MEND, PASS, SOUND, said, small_repository

from halfway.curriculum.boxes import docker
from halfway.curriculum.boxes import swerex as module
from halfway.curriculum.boxes.box import Base, Box, BoxLostError
from halfway.curriculum.boxes.swerex import SweRex
from halfway.curriculum.boxes.trees import Changes, unpack
from halfway.curriculum.environments.replay import replay
from halfway.curriculum.repositories.environment import Repository
from halfway.curriculum.repositories.mutation import patch
from halfway.curriculum.repositories.task import RepositoryTask, to_problem

FROM = os.environ.get("HALFWAY_BOXES_IMAGE", "halfway-boxes")
SMALL = "halfway-boxes-small"


def _said(*command: str) -> str:
    """What a program says; empty if it is not there or fails."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.stdout if done.returncode == 0 else ""


def _trouble(runtime: str) -> str:
    if importlib.util.find_spec("swerex") is None:
        return "swe-rex is not installed"
    if not _said(runtime, "info"):
        return f"{runtime} does not answer"
    return "" if _said(runtime, "image", "inspect", FROM) else f"{runtime} has no image {FROM}"


TROUBLE = {runtime: _trouble(runtime) for runtime in ("docker", "podman")}
RUNTIMES = [
    pytest.param(runtime, marks=pytest.mark.skipif(bool(why), reason=why or "never"))
    for runtime, why in TROUBLE.items()
]


@pytest.fixture(scope="module", params=RUNTIMES)
def boxes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SweRex:
    """Containers of an image with the small repository at /repo."""
    folder = tmp_path_factory.mktemp("image")
    small_repository(folder / "repo")
    (folder / "Dockerfile").write_text(f"FROM {FROM}\nCOPY repo /repo\n")
    subprocess.run([request.param, "build", "-q", "-t", SMALL, str(folder)], check=True, capture_output=True)
    deployment = {"type": "docker", "pull": "never", "container_runtime": request.param}
    return SweRex(deployment, memory_mib=512, processes=100)


@pytest.fixture(scope="module")
def box(boxes: SweRex) -> Iterator[Box]:
    opened = boxes.open(Base(image=SMALL))
    yield opened
    opened.close()


def containers(boxes: SweRex, process: int) -> list[str]:
    runtime = str(boxes.deployment["container_runtime"])
    listed = subprocess.run(
        [runtime, "ps", "-aq", "--filter", f"label={docker.label(process)}"], capture_output=True, text=True
    )
    return listed.stdout.split()


def test_commands_files_and_changes(boxes: SweRex) -> None:
    others = containers(boxes, os.getpid())
    box = boxes.open(Base(image=SMALL))
    assert unpack(box.save()) == Changes()
    done = box.exec("cat; echo two >&2; pwd; exit 3", 20, b"one\n")
    assert (done.status, done.output, done.ended) == (3, "one\ntwo\n/repo\n", "exit")
    large = bytes(range(256)) * 4000
    box.write("a b/c", large)
    assert box.read("a b/c") == large
    with pytest.raises(FileNotFoundError):
        box.read("none")
    box.exec("rm tests/test_means.py; echo 'A = 1' > stats/means.py; chmod 755 stats/__init__.py; ln -s x link", 20)
    saved = box.save()
    changes = {entry.path: (entry.kind, entry.mode, entry.data) for entry in unpack(saved).tree}
    assert changes == {
        "a b/c": ("file", 0o644, large),
        "tests/test_means.py": ("deleted", 0, b""),
        "stats/means.py": ("file", 0o644, b"A = 1\n"),
        "stats/__init__.py": ("file", 0o755, b""),
        "link": ("link", 0o777, b"x"),
    }
    box.close()
    assert containers(boxes, os.getpid()) == others


def test_a_long_command_and_a_long_input(box: Box) -> None:
    done = box.exec(f"wc -c; echo {'x' * 200_000} | wc -c", 30, b"y" * 300_000)
    assert (done.status, done.output.split()) == (0, ["300000", "200001"])
    assert box.exec("ls -A /tmp", 20).output == ""


def test_nothing_that_a_command_has_started_lives_on(box: Box) -> None:
    began = time.monotonic()
    assert box.exec("sleep 4321 & echo started", 40).output == "started\n"
    assert box.exec("(setsid sleep 4321 > /dev/null 2>&1 &); setsid sleep 4321 & exit 3", 40).status == 3
    assert time.monotonic() - began < 40
    assert box.exec("kill -9 $(ps -o ppid= $PPID); sleep 4321", 3).status in (124, 137)  # what waits for the command
    assert box.exec("ps ax | grep -c '[s]leep 4321'", 20).output == "0\n"


def test_a_command_longer_than_a_request(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """swe-rex's client gives up after five minutes; tests of a repository may take longer."""
    monkeypatch.setattr(module, "REQUEST_SECONDS", 1.5)
    monkeypatch.setattr(module.SweRexBox, "_ask", with_patience(module.SweRexBox._ask))
    done = box.exec("sleep 3; echo slept; sleep 4321 & exit 5", 40)
    assert (done.status, done.output, done.ended) == (5, "slept\n", "exit") and done.seconds > 3
    assert box.exec("sleep 4321", 2.0).ended == "time"
    assert box.exec("ps ax | grep -c '[s]leep 4321'; ls -A /tmp", 20).output == "0\n"


def with_patience(ask):  # type: ignore[no-untyped-def]
    """The same with the service's usual patience; only the time limit of a command in one request is short."""
    return lambda self, line, seconds: ask(self, line, max(seconds, 60))


INSIDE = {
    "files: passwords": "of the image",
    "files: system": "of the container",
    "files: environment of Python": "of the container",
    "files: root": "of the container",
    "files: devices": "a file below /dev of the container",
    "files: link out": "to a file of the image",
    "files: other root": "of the container",
    "files: disk": "no limit but the daemon's storage options",
    "files: many": "the same",
    "files: shared memory": "64 MiB by docker's default",
    "files: hard link out": "of the container",
    "files: set user id": "a command is root in its container",
    "process: others": "those of its container",
    "process: memory of another": "processes of its container, where the filter of system calls allows that",
    "kernel: trace": "processes of its container",
    "kernel: keys": "refused by docker's filter of system calls; podman's allows a process its own keys",
    "kernel: user namespace": "the same: a namespace inside the container's",
}
"""What a command gets in a container that it does not get in bubblewrap: its own container."""

NOT_EXCLUDED = {
    "network: internet": "unless the container's network has no way out",
    "network: other families": "docker 20.10 allows sockets that reach the host of a virtual machine",
    "process: kills all": "the box is lost where swe-rex's server is not the container's first process",
    "process: memory of many": "the same, where the kernel ends swe-rex's server for want of memory",
    "process: memory without names": "the same",
    "process: shared memory": "the same",
}


@pytest.mark.parametrize("name", sorted(HOSTILE.keys() - {*INSIDE, *NOT_EXCLUDED}))
def test_a_hostile_command_gets_nothing(box: Box, name: str) -> None:
    command = HOSTILE[name].replace("PORT", "22").replace("HERE", str(Path.cwd()))
    began = time.monotonic()
    done = box.exec(command, 6)
    assert "WON" not in done.output.split(), done.output[-500:]
    assert time.monotonic() - began < 60 and len(done.output) < 3 * 2**20
    cleared = box.exec("rm -rf big a b /dev/shm/* /tmp/*; ls; ps ax | grep -c -e '[s]leep' -e '[p]ython -c'", 20)
    assert cleared.output.split() == ["stats", "tests", "0"]


@pytest.mark.parametrize("name", [name for name in NOT_EXCLUDED if "memory" in name])
def test_a_command_that_fills_its_container_gets_no_more_and_harms_nothing_else(boxes: SweRex, name: str) -> None:
    before = set(containers(boxes, os.getpid()))
    box = boxes.open(Base(image=SMALL))
    with suppress(BoxLostError):
        assert "WON" not in box.exec(HOSTILE[name], 6).output.split()
    box.close()
    assert set(containers(boxes, os.getpid())) == before


def test_a_container_that_a_command_has_broken_is_lost_and_removed(boxes: SweRex) -> None:
    before = set(containers(boxes, os.getpid()))
    box = boxes.open(Base(image=SMALL))
    with pytest.raises(BoxLostError):
        box.exec("kill -9 -1", 20)
    box.close()
    assert set(containers(boxes, os.getpid())) == before


def test_no_container_outlives_a_killed_host(boxes: SweRex) -> None:
    script = (
        "from halfway.curriculum.boxes.swerex import SweRex\nfrom halfway.curriculum.boxes.box import Base\n"
        f"box = SweRex({boxes.deployment!r}).open(Base(image={SMALL!r})); print('open', flush=True)\n"
        "box.exec('sleep 99', 99)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    host = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    assert host.stdout is not None and host.stdout.readline() == "open\n"
    assert len(containers(boxes, host.pid)) == 1
    host.send_signal(signal.SIGKILL)
    host.communicate()
    deadline = time.monotonic() + 60
    while containers(boxes, host.pid):
        assert time.monotonic() < deadline
        time.sleep(0.2)


SCRIPT = (
    "ls -la; hostname",
    "python -m pytest -q --durations=3 2>&1 | tail -20",
    'python -c \'print({1, "a", "b"}, hash("x"), object())\' && echo > notes',
    MEND,
)


def test_an_episode_is_judged_and_replayed(boxes: SweRex) -> None:
    """Two rollouts of one problem do not see each other; each submission is judged in its own container."""
    others, bug = containers(boxes, os.getpid()), patch("stats/means.py", SOUND, FAULTY)
    problem = to_problem(RepositoryTask("means", Base(image=SMALL), bug, "", FAIL, PASS), "Negative.", "test", {})
    options = {"deployment": boxes.deployment, "memory_mib": 512}
    environment = Repository(seconds=60, test_seconds=120, box={"swerex": options})
    [episode] = environment.start([problem])
    observed = []
    for command in SCRIPT:
        [result] = environment.step([episode], [said(command)])
        assert not result.lost and result.success is None
        observed.append(result.observation)
        episode = result.episode
    assert "2 failed" in observed[1] or "3 failed" in observed[1]
    responses = [said(command) for command in SCRIPT]
    start = environment.start([problem, problem])
    again = replay(environment, start, [responses, responses[:2]], [observed, observed[:2]])
    assert again[0] == episode, again
    ends = environment.step([episode, *again], [said("submit")] * 3)  # type: ignore[list-item]
    assert [end.success for end in ends] == [True, True, False]
    environment.close()
    assert containers(boxes, os.getpid()) == others
