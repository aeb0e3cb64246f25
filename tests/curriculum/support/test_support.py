"""Files written at once, marked blocks of a text, settings by name."""

import errno
import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from messages import says

from halfway.curriculum import Registry, UserError, require
from halfway.curriculum.support import extras
from halfway.curriculum.support import registry as registry_module
from halfway.curriculum.support.atomic import (
    WriteError,
    open_own,
    replacing,
    replacing_folder,
    require_no_link,
    write_bytes,
    write_json,
    write_text,
    writing,
)
from halfway.curriculum.support.blocks import find_between, find_fenced
from halfway.curriculum.support.components import NONE, Component, at_most_one_of, one_of, plain
from halfway.curriculum.support.extras import load_extra, remedy
from halfway.curriculum.support.validation import construct
from halfway.curriculum.tasks.verifiers.function_induction import last_python_block
from halfway.experiments.output_flags import natural
from halfway.trainers.propel.domains.domain import Invalid
from halfway.trainers.propel.domains.induction import FunctionInduction
from halfway.trainers.propel.domains.maths import Maths


def test_a_written_file_is_read_back(tmp_path: Path) -> None:
    write_text(tmp_path / "text", "ü\n")
    write_bytes(tmp_path / "bytes", b"\0\1")
    write_json(tmp_path / "json", {"a": [1, None]})
    assert (tmp_path / "text").read_bytes() == "ü\n".encode()
    assert (tmp_path / "bytes").read_bytes() == b"\0\1"
    assert json.loads((tmp_path / "json").read_text()) == {"a": [1, None]}
    assert len(list(tmp_path.iterdir())) == 3


def test_a_file_is_replaced_at_the_end_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("ne")
        assert path.read_text() == "old"
        temporary.write_text("new")
    assert path.read_text() == "new"


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_file_that_is_not_finished_leaves_the_old_one(tmp_path: Path, stop: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(stop), replacing(path) as temporary:
        temporary.write_text("ne")
        raise stop
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_files_of_ours_are_not_written_through_links(tmp_path: Path) -> None:
    """A folder from elsewhere may hold links under every name that we are about to write."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    for name in (".text.tmp", "text", "log", "figures"):
        (tmp_path / name).symlink_to(precious)
    write_text(tmp_path / "text", "new")
    assert (tmp_path / "text").read_text() == "new" and not (tmp_path / "text").is_symlink()
    for refused in (lambda: open_own(tmp_path / "log"), lambda: require_no_link(tmp_path / "figures")):
        with pytest.raises(UserError, match=f"is a link to '{precious}'.*remove the link"):
            refused()
    with open_own(tmp_path / "own") as file:
        file.write("a")
    with open_own(tmp_path / "own") as file:
        file.write("b")
    assert (tmp_path / "own").read_text() == "ab" and precious.read_text() == "kept"


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").touch()
    (tmp_path / ".folder.partial").mkdir()  # of a process that was killed
    (tmp_path / ".folder.partial" / "half").touch()
    with replacing_folder(path) as partial:
        (partial / "new").touch()
        assert [file.name for file in path.iterdir()] == ["old"]
    assert [file.name for file in path.iterdir()] == ["new"] and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt])
def test_a_folder_that_is_not_finished_leaves_the_old_one(tmp_path: Path, stop: type[BaseException]) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(stop), replacing_folder(path) as partial:
        (partial / "new").touch()
        raise stop
    assert [file.name for file in path.iterdir()] == ["old"] and list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_a_one_line_error(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "file"
    with pytest.raises(WriteError) as caught:
        write_text(path, "")
    assert re.search(says(path, "No such file or directory", "resume"), str(caught.value))
    with pytest.raises(WriteError, match="No space left on device") as caught, writing(path):
        raise OSError(errno.ENOSPC, "whatever")
    assert caught.value.reason == "No space left on device"
    with pytest.raises(WriteError, match=r"OSError: a library's own words") as caught, writing(path):
        raise OSError("a library's\nown words")


FENCED = re.compile(r"^```(\w+)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```(bash|sh)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
TAGS = re.compile(r"<a>(.*?)</a>", re.DOTALL)
PIECES = (
    "```",
    "```bash",
    "```python",
    "```sh",
    "\n",
    "\n",
    "\n",
    " ",
    "\t",
    "x",
    "```a b",
    "````",
    "\r\n",
    "é",
    "\u2028",
)


def test_the_blocks_are_those_that_regular_expressions_find() -> None:
    stream = np.random.default_rng(0)
    found = 0
    for _ in range(3000):
        text = "".join(stream.choice(PIECES, stream.integers(1, 30)))
        assert find_fenced(text) == FENCED.findall(text)
        assert find_fenced(text, "bash", "sh") == SHELL.findall(text)
        marks = "".join(stream.choice(["<a>", "</a>", "<", "a>", "/", "\n", "x"], stream.integers(1, 20)))
        assert find_between(marks, "<a>", "</a>") == TAGS.findall(marks)
        found += len(find_fenced(text)) + len(find_between(marks, "<a>", "</a>"))
    assert found > 1000


# The regular expressions take more than half an hour.
@pytest.mark.parametrize("name", ["answer", "read", "maths", "between"])
def test_200_000_openings_without_an_end_take_seconds(name: str) -> None:
    count = 200_000
    started = time.process_time()
    if name == "answer":
        assert last_python_block("```python\n" * count) is None
    elif name == "read":
        assert FunctionInduction().parse("```python\n" * count) == Invalid("not one function", "0 python blocks")
    elif name == "maths":
        task = Maths().parse("<problem>" * count)
        assert isinstance(task, Invalid) and task.reason == "unreadable"
    else:
        assert find_between("<a>" * count, "<a>", "</a>") == []
    assert time.process_time() - started < 20


@dataclass(frozen=True)
class Ring:
    """A registered component."""

    size: float = 1.0

    def __post_init__(self) -> None:
        require(self.size > 0, "ring.size", self.size, "give a positive number")


RINGS = Registry("ring", {}, _added={"ring": Ring, "function": len})


@dataclass(frozen=True)
class Bell:
    weight: float = 1.0
    tones: tuple[int, ...] = ()
    kind: Literal["large", "small"] = "small"


@dataclass(frozen=True)
class Tower:
    name: str
    height: int = 3
    bell: Bell = field(default_factory=lambda: Bell(weight=9.0))
    ring: Annotated[Component[Ring], one_of(RINGS)] = NONE
    spare: Annotated[Component[Ring], at_most_one_of(RINGS)] = NONE


def test_a_nested_default_is_kept_where_a_file_says_nothing() -> None:
    assert construct(Tower, {"name": "a", "bell": {"tones": [1, 2]}}).bell == Bell(9.0, (1, 2))


def test_a_number_is_accepted_as_text_and_text_as_a_number() -> None:
    tower = construct(Tower, {"name": 2026, "height": "7", "bell": {"weight": "3e-4"}})
    assert (tower.name, tower.height, tower.bell.weight) == ("2026", 7, 3e-4)


def test_a_component_is_an_object_and_is_written_back_with_every_option() -> None:
    tower = construct(Tower, {"name": "a", "ring": "ring", "spare": {"ring": {"size": 2}}})
    assert (tower.ring.part, tower.spare.part) == (Ring(), Ring(2.0))
    written: Any = plain(tower)
    assert (written["ring"], written["spare"]) == ({"ring": {"size": 1.0}}, {"ring": {"size": 2.0}})
    assert construct(Tower, written) == tower
    without = construct(Tower, {"name": "a", "ring": "ring", "spare": {}})
    assert not without.spare and plain(without.spare) == {}


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "tower.name: missing; give text"),
        ({"name": True}, "tower.name: must be text, not True"),
        ({"name": "a", "hight": 1}, "tower.hight: unknown name 'hight'; did you mean 'height'?"),
        ({"name": "a", "height": 1.5}, "tower.height: must be an integer, not 1.5"),
        ({"name": "a", "bell": 1}, "tower.bell: must be a mapping of fields, not 1"),
        (
            {"name": "a", "bell": {"tones": [0.5]}},
            "tower.bell.tones: must be a list, each an integer, not [0.5]",
        ),
        ({"name": "a", "bell": {"kind": "smal"}}, "tower.bell.kind: unknown name 'smal'; did you mean 'small'?"),
        ({"name": "a", "ring": "rign"}, "tower.ring: unknown name 'rign'; did you mean 'ring'?"),
        ({"name": "a", "ring": {}}, "tower.ring: must be one name, or one {name: options}, not {}"),
        ({"name": "a", "ring": {"ring": {"size": 0}}}, "tower.ring.ring.size: must be a positive"),
        ({"name": "a", "ring": "function"}, "tower.ring: 'function' is not a dataclass of options; fix the package"),
    ],
)
def test_a_mistake_is_one_line_with_field_value_and_remedy(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        construct(Tower, fields, "tower")
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize("path", ["ring", "a.ring"])
def test_an_error_of_the_settings_themselves_gets_the_path_in_front(path: str) -> None:
    with pytest.raises(UserError, match=says(f"{path}.size", "-1.0", "positive")):
        construct(Ring, {"size": -1}, path)


# Names are ordered by the numbers in them.


def test_numbers_in_names_sort_by_value() -> None:
    assert sorted(["s10", "s9", "", "a", "7"], key=natural) == ["", "7", "a", "s9", "s10"]


def test_a_missing_extra_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert remedy(ModuleNotFoundError("", name="no_such_package")) is None, "no extra of ours brings it"
    assert remedy(ModuleNotFoundError("", name="torch.no_such_module")) is None, "installed, so no extra helps"
    monkeypatch.setattr(extras, "EXTRAS", {"no_such_package": "train"})
    line = "needs the package no_such_package; pip install 'halfway[train]'"
    assert remedy(ModuleNotFoundError("", name="no_such_package.part")) == line
    with pytest.raises(UserError) as raised:
        load_extra("no_such_package", "a test")
    assert str(raised.value) == f"a test: {line}"


def test_installed_packages_are_scanned_once_for_a_module_path(monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[str] = []
    monkeypatch.setattr(registry_module, "entry_points", lambda group: scans.append(group) or ())
    parts = Registry("part", {}, group="a group that nobody else has")
    for _ in range(3):
        assert parts.names() == []
    monkeypatch.syspath_prepend("/another/folder")
    assert parts.names() == [] and len(scans) == 2
