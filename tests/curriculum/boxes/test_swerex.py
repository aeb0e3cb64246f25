"""The adapter to swe-rex, with its deployment on this machine; docker and the cloud are the same calls."""

import importlib.util
import shutil
from pathlib import Path

import pytest
from repositories import FAULTY, MEND, said, small_problem, small_repository

from halfway.curriculum.boxes.base import Base
from halfway.curriculum.boxes.swerex import SweRex
from halfway.curriculum.boxes.trees import Changes, unpack
from halfway.curriculum.environments.repository import Repository
from halfway.curriculum.support.errors import UserError

needs_swerex = pytest.mark.skipif(importlib.util.find_spec("swerex") is None, reason="swe-rex is not installed")
LOCAL = SweRex({"type": "local"})


@needs_swerex
def test_commands_files_and_changes(tmp_path: Path) -> None:
    box = LOCAL.open(small_repository(tmp_path))
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


@needs_swerex
def test_an_episode_lives_in_one_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rollouts of one problem do not see each other; the submission is judged in a third box."""
    problem = small_problem(tmp_path / "pristine")
    opened: list[Path] = []
    first = SweRex.open

    def copied(self: SweRex, base: Base) -> object:
        opened.append(tmp_path / f"copy{len(opened)}")
        shutil.copytree(base.tree, opened[-1])
        return first(self, Base(str(opened[-1])))

    monkeypatch.setattr(SweRex, "open", copied)
    environment = Repository(seconds=20, test_seconds=60, box={"swerex": {"deployment": {"type": "local"}}})
    episodes = environment.start([problem, problem])
    results = environment.step(episodes, [said(MEND), said("cat stats/means.py")])
    assert FAULTY in results[1].observation and not environment.forkable
    results = environment.step([r.episode for r in results], [said("submit"), said("submit")])
    assert [result.success for result in results] == [True, False] and len(opened) == 4
    environment.close()


def test_what_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"swerex\.deployment"):
        SweRex({})
    if importlib.util.find_spec("swerex") is None:
        with pytest.raises(UserError, match=r"box swerex: needs .* pip install swe-rex, or use the box bubblewrap"):
            SweRex().open(Base(image="x"))
