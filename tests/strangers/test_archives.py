"""Damaged archives of sources cost one line."""

import hashlib
import os
import tarfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from messages import says
from strangers.files import archive_files, make_archive

from halfway.curriculum import Stream, UserError
from halfway.curriculum.boxes.box import Base
from halfway.curriculum.repositories import archives
from halfway.curriculum.repositories.archives import Project


def test_a_damaged_archive_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "cache_folder", lambda chosen: tmp_path / "cache")
    make_archive(tmp_path)
    [path] = archive_files(tmp_path)
    whole = path.read_bytes()
    with tarfile.open(tmp_path / "link.tar.gz", "w:gz") as opened:
        member = tarfile.TarInfo("a")
        member.type, member.linkname = tarfile.LNKTYPE, "b"
        opened.addfile(member)
    for content in (whole[: len(whole) // 2], b"", b"x", (tmp_path / "link.tar.gz").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(UserError, match=says(path, "not a source distribution", "tar.gz")):
            archives.unpack(path, hashlib.sha256(content).hexdigest())


def climbing(file: tarfile.TarFile, target: str) -> None:
    """A way out by a link whose path is longer than the system resolves, and back in by short names."""
    place, steps = "", "abcdefghijklmnop"
    for step in steps:
        folder = f"{place}{'d' * 247}"
        add(file, folder, tarfile.DIRTYPE)
        add(file, f"{place}{step}", tarfile.SYMTYPE, "d" * 247)
        place = f"{folder}/"
    long = "/".join((*steps, "l" * 254))
    add(file, long, tarfile.SYMTYPE, "../" * len(steps))
    add(file, "out", tarfile.SYMTYPE, f"{long}/{target}")
    add(file, "out/canary", tarfile.REGTYPE)


def behind_a_link(file: tarfile.TarFile, target: str) -> None:
    add(file, "a", tarfile.DIRTYPE)
    add(file, "link", tarfile.SYMTYPE, "a")
    add(file, "link/canary", tarfile.REGTYPE)


def over_a_link(file: tarfile.TarFile, target: str) -> None:
    add(file, "a", tarfile.REGTYPE)
    add(file, "link", tarfile.SYMTYPE, "a")
    add(file, "link", tarfile.REGTYPE)


def hard_link_behind_a_link(file: tarfile.TarFile, target: str) -> None:
    add(file, "a/b", tarfile.REGTYPE)
    add(file, "link", tarfile.SYMTYPE, "a")
    add(file, "c", tarfile.LNKTYPE, "link/b")


def add(file: tarfile.TarFile, name: str, kind: bytes, target: str = "") -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    file.addfile(member)


@pytest.mark.parametrize("write", [climbing, behind_a_link, over_a_link, hard_link_behind_a_link])
def test_an_archive_writes_nothing_through_a_link(
    write: Callable[[tarfile.TarFile, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "cache_folder", lambda chosen: tmp_path / "cache")
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        write(file, "../../../../elsewhere")  # from cache/archives/.partial-.../all
    with pytest.raises(UserError, match=says(path, "not a source distribution")):
        archives.unpack(path, hashlib.sha256(path.read_bytes()).hexdigest())
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_archive_that_is_only_a_link_unpacks_to_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "cache_folder", lambda _: tmp_path / "cache")
    path, link = tmp_path / "link.tar.gz", tarfile.TarInfo("p")
    link.type, link.linkname = tarfile.SYMTYPE, "."
    with tarfile.open(path, "w:gz") as file:
        file.addfile(link)
    folder = archives.unpack(path, hashlib.sha256(path.read_bytes()).hexdigest())
    assert not folder.is_symlink() and [each.name for each in folder.iterdir()] == ["p"]


def test_an_archive_with_an_endless_time_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "cache_folder", lambda _: tmp_path / "cache")
    path, member = tmp_path / "late.tar.gz", tarfile.TarInfo("p/a")
    member.pax_headers = {"mtime": "1e400"}
    with tarfile.open(path, "w:gz") as file:
        file.addfile(member)
    with pytest.raises(UserError, match=says("late.tar.gz", "give a .tar.gz")):
        archives.unpack(path, hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.mark.parametrize("names", [["p/a", "p/a/b"], ["/"], [""], ["."], ["p/" + "x" * 300]])
def test_a_member_that_cannot_be_written_is_named(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "cache_folder", lambda _: tmp_path / "cache")
    path = tmp_path / "odd.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        for name in names:
            add(file, name, tarfile.REGTYPE)
    with pytest.raises(UserError, match=says("odd.tar.gz", "not a source distribution", "give a .tar.gz")) as told:
        archives.unpack(path, hashlib.sha256(path.read_bytes()).hexdigest())
    assert "member " in str(told.value) and "cache" not in str(told.value)


def test_links_within_an_archive_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "cache_folder", lambda chosen: tmp_path / "cache")
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        add(file, "a/b", tarfile.REGTYPE)
        add(file, "a/c", tarfile.SYMTYPE, "b")
        add(file, "a/d", tarfile.LNKTYPE, "a/b")
    folder = archives.unpack(path, hashlib.sha256(path.read_bytes()).hexdigest())
    assert sorted(path.name for path in folder.iterdir()) == ["b", "c", "d"]


def test_an_archive_of_a_terabyte_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "project-1.0.tar.gz"
    path.touch()
    os.truncate(path, 1 << 40)
    began = time.process_time()
    with pytest.raises(UserError, match="is not a regular file"):  # a hole
        archives.unpack(path, "0" * 64)
    assert time.process_time() - began < 1


HOSTILE = {
    "signs": "-" * 100_000 + "1",
    "a sum": "+".join(["1"] * 900),
    "negations": "not " * 900 + "1",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_source_that_is_nested_too_deeply_stops_no_other(name: str, tmp_path: Path) -> None:
    for file, value in {"a.py": HOSTILE[name], "b.py": "x < 2"}.items():
        (tmp_path / file).write_text(f"def f(x):\n    return {value}\n")
    mutants = list(Project("p", Base(str(tmp_path))).shuffle(Stream(0)))
    assert len([mutant for mutant in mutants if mutant.path == "b.py"]) >= 2


def test_mutants_of_calls_in_calls_do_not_fill_the_memory(tmp_path: Path) -> None:
    """Each edit's text holds those of the calls in it."""
    text = "f(" * 90 + "1, 2" + f", '{'x' * 5000}')" * 90
    for i in range(3):
        (tmp_path / f"{i}.py").write_text(f"def g(x):\n    return {text}\n")
    tracemalloc.start()
    assert next(Project("p", Base(str(tmp_path))).shuffle(Stream(0)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 24


def test_a_very_long_source_gives_no_mutants(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"def f(x):\n    return x < 2  # {'x' * (1 << 20)}\n")
    assert list(Project("p", Base(str(tmp_path))).shuffle(Stream(0))) == []
