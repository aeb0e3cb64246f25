"""A file is complete or absent, and one that cannot be written is one line."""

import errno
import json
from pathlib import Path

import pytest

from halfway.curriculum.support.atomic import (
    WriteError,
    replacing,
    replacing_folder,
    write_bytes,
    write_json,
    write_text,
    writing,
)


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
    assert str(caught.value) == f"{path}: cannot be written (No such file or directory); make room for it and resume"
    with pytest.raises(WriteError, match="No space left on device") as caught, writing(path):
        raise OSError(errno.ENOSPC, "whatever")
    assert caught.value.reason == "No space left on device"
    with pytest.raises(WriteError, match=r"OSError: a library's own words") as caught, writing(path):
        raise OSError("a library's\nown words")
