"""The adapter to swe-rex, with its deployment on this machine; docker and the cloud are the same calls."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from messages import says
from paths import REPOSITORY
from repositories import FAULTY, MEND, needs_boxes, said, small_problem, small_repository

from halfway.curriculum import UserError
from halfway.curriculum.boxes import docker
from halfway.curriculum.boxes.box import Base, BoxLostError
from halfway.curriculum.boxes.docker import around
from halfway.curriculum.boxes.swerex import SweRex, SweRexBox, _Image
from halfway.curriculum.boxes.trees import Changes, unpack
from halfway.curriculum.repositories.environment import Repository
from halfway.curriculum.support.acceptance import VARIABLE

needs_swerex = pytest.mark.skipif(importlib.util.find_spec("swerex") is None, reason="swe-rex is not installed")


@pytest.fixture(autouse=True)
def local_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "deployment:local")


@needs_swerex
def test_commands_files_and_changes(tmp_path: Path) -> None:
    box = SweRex({"type": "local"}).open(small_repository(tmp_path))
    assert unpack(box.save()) == Changes()
    done = box.exec("cat; echo two >&2; exit 3", 20, b"one\n")
    assert (done.status, done.output, done.ended) == (3, "one\ntwo\n", "exit")
    assert box.exec("sleep 9", 0.5).ended == "time"
    box.write("a b/c", b"\x00\xff" * 40_000)
    assert box.read("a b/c") == b"\x00\xff" * 40_000
    with pytest.raises(FileNotFoundError):
        box.read("none")
    box.exec("rm tests/test_means.py; echo 'A = 1' > stats/means.py; ln -s x link", 20)
    changes = {entry.path: (entry.kind, entry.data) for entry in unpack(box.save()).tree}
    assert changes == {
        "a b/c": ("file", b"\x00\xff" * 40_000),
        "tests/test_means.py": ("deleted", b""),
        "stats/means.py": ("file", b"A = 1\n"),
        "link": ("link", b"x"),
    }
    box.close()


class ForgedBox(SweRexBox):
    """A container in which every line prints the same."""

    def __init__(self, printed: str):
        self.printed, self._place, self._path, self._spared = printed, "/", "", ""
        self._image = _Image({}, "", "")

    def _ask(self, line: str, seconds: float) -> str:
        marks = re.findall(r"[0-9a-f]{32}", line)
        return self.printed.replace("MARK", marks[-1] if marks else "")


@pytest.mark.parametrize("printed", ["f\x00644\x00MARK0", "x\x00MARK0", "MARKnone", "MARK" + "9" * 5000])
def test_a_container_that_lists_no_work_tree_is_lost(printed: str) -> None:
    with pytest.raises(BoxLostError):
        ForgedBox(printed).save()


@pytest.mark.parametrize("printed", ["aMARK0", "MARKnone", "x"])
def test_a_container_that_gives_no_file_is_lost(printed: str) -> None:
    with pytest.raises(BoxLostError):
        ForgedBox(printed).read("x")


@pytest.mark.parametrize("status", ["none", "9" * 5000, "0\nforged"])
def test_a_forged_status_is_none(status: str) -> None:
    line = around("true", "/", 1, {})
    assert line.read(f"output{line.end}{status}") == ("output", None)
    assert line.read(f"output{line.end}7") == ("output", 7)


@needs_swerex
def test_an_episode_lives_in_one_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rollouts of one problem do not see each other; the submission is judged in a third box."""
    problem = small_problem(tmp_path / "pristine")
    opened: list[Path] = []
    first = SweRex.open

    def copied(self: SweRex, base: Base) -> object:
        copy = Path(tempfile.mkdtemp(dir=tmp_path))  # two threads open boxes at the same time
        opened.append(copy)
        shutil.copytree(base.tree, copy, dirs_exist_ok=True)
        return first(self, Base(str(copy)))

    monkeypatch.setattr(SweRex, "open", copied)
    environment = Repository(seconds=20, test_seconds=60, box={"swerex": {"deployment": {"type": "local"}}})
    episodes = environment.start([problem, problem])
    results = environment.step(episodes, [said(MEND), said("cat stats/means.py")])
    assert FAULTY in results[1].observation and not environment.forkable
    results = environment.step([r.episode for r in results], [said("submit"), said("submit")])
    assert [result.success for result in results] == [True, False] and len(opened) == 4
    environment.close()


@pytest.mark.parametrize(
    ("deployment", "word"),
    [
        ({"type": "local"}, "local"),
        ({"type": "modal"}, "modal"),
        ({"type": "docker", "docker_args": ["--privileged", "-v", "/:/host"]}, "docker_args"),
        ({"type": "docker", "exec_shell": ["/bin/sh", "-c"]}, "exec_shell"),
        ({"type": "docker", "docker_internal_host": "http://elsewhere"}, "docker_internal_host"),
        ({"type": "docker", "container_runtime": "./docker; id > stolen"}, "container_runtime"),
        ({"type": "docker", "python_standalone_dir": "/root\nRUN curl elsewhere | sh"}, "python_standalone_dir"),
        ({"type": "docker", "platform": "--volume=/:/host"}, "platform"),
        ({"type": "docker", "an option of later versions": 1}, "an option of later versions"),
    ],
)
def test_a_deployment_that_acts_outside_of_containers_needs_the_users_word(
    deployment: dict[str, Any], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(UserError, match=says(f"swerex.deployment.{word}", f"{VARIABLE}=deployment:{word}")):
        SweRex(deployment)
    monkeypatch.setenv(VARIABLE, f"deployment:{word}")
    assert " " in word or SweRex(deployment).deployment == deployment
    usual = {"type": "docker", "container_runtime": "podman", "python_standalone_dir": None, "startup_timeout": 60.0}
    assert SweRex({**usual, "platform": "linux/amd64", "pull": "never"}).deployment["pull"] == "never"


@pytest.mark.parametrize("image", ["--privileged", "-v/:/host", "a b", "a\nb", "a;id", "$(id)", "a'b", "x" * 300])
def test_an_image_of_a_task_cannot_be_an_option_of_docker(image: str) -> None:
    with pytest.raises(UserError, match=says("image", "container")):
        SweRex().open(Base(image=image))
    for usual in ("python:3.11-slim", "ghcr.io/org/app_1@sha256:" + "0" * 64, "localhost:5000/a/b"):
        SweRex().require(Base(image=usual))


def test_a_path_of_a_recipe_cannot_end_the_line_around_a_command() -> None:
    with pytest.raises(UserError, match=r"swerex\.path: "):
        SweRex(path=('"; id #',))


def test_a_missing_part_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for deployment in ({}, {"type": "remote", "host": "h"}):
        with pytest.raises(UserError, match=says("swerex.deployment.type", "'docker'")):
            SweRex(deployment)
    if importlib.util.find_spec("swerex") is None:
        with pytest.raises(UserError, match=says("swerex", "pip install swe-rex", "bubblewrap")):
            SweRex().open(Base(image="x"))


@needs_swerex
@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_a_container_runtime_that_does_not_answer_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Any
) -> None:
    """Not a lost box, of which every rollout would be counted as lost."""
    docker.answers.cache_clear()
    (tmp_path / "docker").write_text("#!/bin/sh\necho 'Cannot connect to the daemon' >&2; exit 1\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    why = {"docker": "Cannot connect to the daemon", "podman": "not found"}[runtime]
    boxes = SweRex({"type": "docker", "container_runtime": runtime})
    with pytest.raises(UserError, match=says("swerex", runtime, why, "start")):
        boxes.open(Base(image="x"))


def runtime_in(folder: Path, script: str) -> str:
    """A program that passes for docker."""
    (folder / "docker").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "docker").chmod(0o755)
    return str(folder / "docker")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("printf '\\377\\376\\033[2J' >&2; exit 1", "�"),
        ("yes endless >&2", "endless"),
        ("kill -9 $$", "status -9"),
        ("exec sleep 60", "nothing within 0.5 s"),
    ],
)
def test_a_container_runtime_that_answers_anything_is_one_line(
    script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker, "ANSWER_SECONDS", 0.5 if "sleep" in script else 60)
    monkeypatch.setattr(docker, "MOST_SAID", 1 << 20)
    docker.answers.cache_clear()
    with pytest.raises(UserError, match=says("answer", "start")) as told:
        docker.answers(runtime_in(tmp_path, script))
    assert why in str(told.value) and str(told.value).isprintable()


def test_a_container_runtime_may_say_much_while_it_works(tmp_path: Path) -> None:
    docker.answers.cache_clear()
    docker.answers(runtime_in(tmp_path, "yes | head -c 100000000"))


def test_only_ids_that_a_container_can_have_are_removed(tmp_path: Path) -> None:
    log = tmp_path / "removed"
    script = (
        f'case $1 in rm) echo "$@" >> {log};; '
        "ps) printf '%s\\n' 0123456789ab --all '-v' 'x; id' /etc \"a'b\" 0123456789abcdef;; esac"
    )
    waiting = docker.remove_at_the_end(runtime_in(tmp_path, script), os.getpid())
    waiting.communicate(b"\n", timeout=60)
    assert log.read_text() == "rm -f -- 0123456789ab 0123456789abcdef\n"
    docker.remove(runtime_in(tmp_path, script), "-v")
    assert log.read_text().splitlines()[1:] == ["rm -f -- -v"]


IN_A_ROOT_OF_ITS_OWN = """
import shutil, sys
from pathlib import Path
from test_harbor import SETTINGS, write
from halfway.curriculum.boxes import docker
from halfway.curriculum.boxes.box import Base, BoxLostError
from halfway.curriculum.boxes.docker import around
from halfway.curriculum.boxes.swerex import SweRex, SweRexBox, _Image
from halfway.curriculum.repositories.checking import check_problems
from halfway.curriculum.repositories.harbor import HarborTasks
from halfway.curriculum.repositories.task import from_text
from halfway.curriculum.streams import Stream

names = {"good": {}, "idle": {"solution_solve__sh": "true\\n"}, "zero_variance": {"tests_test__sh": "exit 0\\n"}}
for name, changed in names.items():
    write(Path("/tmp/tasks", name), task__toml=SETTINGS.replace("greeting", name), **changed)
first = SweRex.open

def fresh(self, base):  # as a container of the image is
    for folder in ("/tests", "/solution", "/logs", "/app"):
        shutil.rmtree(folder, ignore_errors=True)
    Path("/app").mkdir()
    return first(self, base)

SweRex.open = fresh
found = check_problems(HarborTasks("/tmp/tasks").load(None, Stream(0)).problems, SweRex({"type": "local"}), 60)
print([from_text(problem.answer, "").name for problem in found.problems], dict(found.report.dropped))
"""


@needs_swerex
@needs_boxes
def test_task_folders_of_harbor(tmp_path: Path) -> None:
    """Their places /tests, /solution, /logs and /app, in a root that is thrown away afterwards."""
    names = [f"/{name}" for name in os.listdir("/") if name not in ("dev", "proc", "tmp")]
    seen = chain.from_iterable(("--ro-bind", name, name) for name in names)
    hidden = ("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp")
    needed = chain.from_iterable(("--ro-bind", place, place) for place in (str(REPOSITORY), sys.prefix))
    walls = ["bwrap", "--unshare-pid", *seen, *hidden, *needed]  # a clone may be below /tmp
    paths = os.pathsep.join(path for path in (str(Path(__file__).parents[1] / "repositories"), *sys.path) if path)
    done = subprocess.run(
        [*walls, "--chdir", "/tmp", sys.executable, "-c", IN_A_ROOT_OF_ITS_OWN],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=240,
    )
    wanted = "['ours/good'] {'the reference fails': 1, 'tests do not run': 1}"
    assert done.stdout.splitlines()[-1:] == [wanted], done.stdout + done.stderr
