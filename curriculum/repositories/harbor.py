"""Tasks as folders of the Harbor framework: an instruction, an image, a script that writes the reward.

    task.toml                    settings: [task] name, [environment] docker_image and workdir, [verifier] env
    instruction.md               the task, in words
    environment/Dockerfile       the image, unless task.toml names one
    tests/test.sh                runs at /tests in the end; writes /logs/verifier/reward.txt or reward.json
    solution/solve.sh            a reference, if there is one

The layout follows Harbor's documentation (schema 1.4, and 1.0 where it is the same). Tasks with several steps or
containers, or judged in a separate container, are not supported; they are dropped and counted.
"""

import errno
import io
import json
import math
import os
import re
import secrets
import shlex
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from halfway.curriculum import Problem, Stream, UserError, require
from halfway.curriculum.boxes.box import Base, Box, BoxFullError
from halfway.curriculum.repositories.task import TURN_BY_TURN, RepositoryTask, to_problem
from halfway.curriculum.support.atomic import read_whole, walk
from halfway.curriculum.support.extras import blaming, one_line
from halfway.curriculum.tasks.data_files import Bad
from halfway.curriculum.tasks.files import keep_and_count
from halfway.curriculum.tasks.sources import Loaded, Source

OPENING = f"You work in a shell; your folder is {{place}}. Do what is asked below.\n\n{TURN_BY_TURN}"

WORKDIR, FROM = re.compile(r"^WORKDIR\s+(\S+)", re.MULTILINE), re.compile(r"^FROM\s+(\S+)\s*$", re.MULTILINE)
BUILDING = re.compile(r"^(RUN|COPY|ADD)\b|^FROM\b[\s\S]*^FROM\b", re.MULTILINE)
SERVICE_SECONDS = 60.0
LONGEST_TEXT = 1 << 20
MOST_FILES, LARGEST_FOLDER = 10_000, 256 << 20
"""Maximum number of files, and bytes, of a task's tests or solution."""
NO_ROOM = os.strerror(errno.ENOSPC)

UNPACK = """\
folder=$(readlink -m {folder}); mkdir -p "$folder" && find "$folder" -mindepth 1 -delete
tar -xzf {archive} -C "$folder" && rm {archive}"""
REWARD = """\
mkdir -p "$(readlink -m /logs/verifier)" && rm -f /logs/verifier/reward.*
{variables} bash /tests/test.sh < /dev/null > /logs/verifier/test-stdout.txt 2>&1
echo; echo {mark}
head -c 4000 /logs/verifier/reward.json 2> /dev/null || head -c 4000 /logs/verifier/reward.txt 2> /dev/null"""


@dataclass(frozen=True)
class HarborTasks(Source):
    """Task folders below a folder, or one task folder; see `halfway.curriculum.repositories.harbor`.

    A submission is judged like those of other repositories, in a fresh work tree: changes outside of it do not count,
    so `halfway validate --rows` drops tasks whose reference makes such changes. The time limits are the environment's,
    not those in task.toml. A reward of 1 or more is a pass. If there are several rewards, the one called "reward"
    decides; without one of that name, all of them must pass.

    Attributes:
        path: the folder.
        heldout_path: folder of the held-out tasks; empty = they are taken from `path`.
        image: name of the image for tasks whose Dockerfile must be built, with "{name}" for the task folder's name.
        trees: a folder with a work tree for each task, named like its task folder, for boxes that run here; empty =
            images.
        place: path of the work tree if neither task.toml nor the Dockerfile gives it.
    """

    path: str
    heldout_path: str = ""
    image: str = ""
    trees: str = ""
    place: str = "/app"

    def __post_init__(self) -> None:
        require(bool(self.path), "harbor_tasks.path", self.path, "give a folder")
        named = not self.image or "{name}" in self.image
        require(named, "harbor_tasks.image", self.image, "put {name} in place of the folder's name")
        require(self.place.startswith("/"), "harbor_tasks.place", self.place, "give an absolute path")

    def heldout(self) -> Source | None:
        return replace(self, path=self.heldout_path, heldout_path="") if self.heldout_path else None

    def load(self, wanted: int | None, stream: Stream) -> Loaded:
        """Load all tasks, by the names of their folders."""
        folders = list(task_folders(Path(self.path)))
        if not folders:
            raise UserError(f"{self.path}: contains no folder with a task.toml; give a folder of Harbor tasks")
        loaded = keep_and_count((str(folder), self._problem(folder)) for folder in folders)
        if not loaded.problems:
            first = loaded.report.examples[0]
            raise UserError(f"{self.path}: none of {len(folders)} folders holds a usable task (first: {first})")
        return loaded

    def _problem(self, folder: Path) -> Problem | Bad:
        try:
            settings = tomllib.loads(_text(folder / "task.toml"))
        except (ValueError, RecursionError) as error:
            return Bad("task.toml cannot be read", one_line(error))
        try:
            instruction = _text(folder / "instruction.md")
        except ValueError as error:
            return Bad("instruction.md cannot be read", one_line(error))
        trouble = _trouble(folder, settings)
        base = trouble or self._base(folder, settings)
        if isinstance(base, Bad):
            return base
        task = RepositoryTask(
            str(_table(settings, "task").get("name") or folder.name), base, folder=str(folder.resolve())
        )
        about = _table(settings, "metadata")
        features: dict[str, float | str] = {k: str(about.get(k, "")) for k in ("difficulty", "category")}
        return to_problem(task, without_canary(instruction), "harbor_tasks", features, OPENING)

    def _base(self, folder: Path, settings: Mapping[str, Any]) -> Base | Bad:
        environment = _table(settings, "environment")
        file = folder / "environment" / "Dockerfile"
        try:
            recipe = _text(file, "replace") if file.exists() else ""
        except ValueError as error:
            return Bad("Dockerfile cannot be read", one_line(error))
        place = str(environment.get("workdir") or (WORKDIR.findall(recipe) or [self.place])[-1])
        if self.trees:
            return Base(str(Path(self.trees) / folder.name), place=place)
        image = str(environment.get("docker_image") or "")
        if not image and self.image:
            image = self.image.replace("{name}", folder.name)
        if not image and (start := FROM.search(recipe)) and not BUILDING.search(recipe):
            image = start[1]
        return Base(image=image, place=place) if image else Bad("its image has to be built", "give harbor_tasks.image")


def task_folders(root: Path) -> Iterator[Path]:
    """Yield folders with a task.toml, by name; no hidden folders, and none inside another."""

    def fail(error: OSError) -> None:
        raise UserError(f"{error.filename}: cannot be read ({one_line(error)}); check harbor_tasks.path") from None

    for folder, below, names in walk(root, fail):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if "task.toml" in names:
            yield Path(folder)
            below.clear()


def _trouble(folder: Path, settings: Mapping[str, Any]) -> Bad | None:
    """Why a folder's task cannot be judged here."""
    verifier, environment = _table(settings, "verifier"), _table(settings, "environment")
    if (folder / "steps").is_dir() or settings.get("steps"):
        return Bad("several steps")
    if any((folder / "environment" / f"docker-compose.{ending}").exists() for ending in ("yaml", "yml")):
        return Bad("several containers")
    if verifier.get("environment_mode") == "separate" or verifier.get("environment"):
        return Bad("judged in a container of its own")
    if environment.get("mcp_servers"):
        return Bad("needs tool servers")
    if not (folder / "tests" / "test.sh").is_file():
        return Bad("no tests/test.sh")
    try:
        for name in ("tests", "solution"):
            _require_moderate(folder / name)
    except UserError as error:
        return Bad("tests or solution too large", str(error))
    if any("${" in str(value) for value in _table(verifier, "env").values()):
        return Bad("its tests need a secret of this machine")
    return None


def _text(path: Path, errors: str = "strict") -> str:
    """Read a file's text. Raises ValueError, such as UserError, if it cannot be read."""
    return read_whole(path, "fix it", LONGEST_TEXT).decode(errors=errors)


def _require_moderate(folder: Path) -> None:
    """Raise UserError if a folder holds too much to copy it into a box for every judgement."""
    files = (Path(place, name) for place, _, names in walk(folder) for name in names)
    sizes = [path.lstat().st_size for path in islice(files, MOST_FILES + 1)]
    if len(sizes) > MOST_FILES or sum(sizes) > LARGEST_FOLDER:
        raise UserError(
            f"{folder}: holds more than {MOST_FILES:,} files or {LARGEST_FOLDER >> 20} MiB; put them into the image"
        )


def _table(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = values.get(name)
    return table if isinstance(table, Mapping) else {}


def without_canary(instruction: str) -> str:
    """Remove the first lines that mark a benchmark, a warning not to collect it as training data."""
    lines = instruction.splitlines()
    while lines and ("canary" in lines[0].lower() or not lines[0].strip()):
        lines.pop(0)
    return "\n".join(lines)


def run_tests(box: Box, folder: Path, seconds: float) -> tuple[float | None, float]:
    """Run a task's tests on a box's present tree; returns the reward (None: not written) and the seconds.

    Raises:
        UserError: if the folder's tests no longer exist.
    """
    settings = tomllib.loads(_text(folder / "task.toml"))
    _bring(box, folder / "tests", "/tests")
    given = _table(_table(settings, "verifier"), "env")
    variables = " ".join(["env", *(shlex.quote(f"{name}={value}") for name, value in given.items())])
    mark = f"reward-{secrets.token_hex(8)}"
    done = box.exec(REWARD.format(variables=variables, mark=mark), seconds)
    _, found, reward = done.output.rpartition(mark)
    return (reward_of(reward) if found and done.ended == "exit" else None), done.seconds


def solve(box: Box, folder: Path, seconds: float) -> str:
    """Run a task's reference in a box; returns its output if it failed, otherwise ""."""
    _bring(box, folder / "solution", "/solution")
    done = box.exec("bash /solution/solve.sh < /dev/null", seconds)
    return "" if done.status == 0 else " ".join(done.output.split())[-200:] or f"status {done.status}"


def reward_of(text: str) -> float | None:
    """Read the reward in a file: a finite number, or JSON with names; None for anything else."""
    try:
        value = json.loads(text)
        named = value if isinstance(value, Mapping) else {"reward": value}
        chosen = [named["reward"]] if "reward" in named else named.values()
        rewards = [float(one) for one in chosen if isinstance(one, int | float)]
    except (ValueError, RecursionError, OverflowError):
        return None
    return min(rewards) if rewards and all(map(math.isfinite, rewards)) else None


def _bring(box: Box, source: Path, target: str) -> None:
    """Copy a folder to an absolute path in a box, and replace the content. Raises BoxFullError if there is no room."""
    _require_moderate(source)
    packed = io.BytesIO()
    unread = blaming(f"{source}: cannot be read", "put it back, or drop the task", OSError)
    with unread, tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(source, ".")
    name = f"/tmp/{secrets.token_hex(8)}.tar.gz"
    box.write(name, packed.getvalue())
    done = box.exec(UNPACK.format(folder=target, archive=name), SERVICE_SECONDS)
    if done.status and NO_ROOM in done.output:  # a submission may have filled the disk
        raise BoxFullError(f"{target}: {NO_ROOM}")
    if done.status:
        raise UserError(
            f"{source}: could not be copied into the box ({one_line(done.output)}); use an image with bash and tar"
        )
