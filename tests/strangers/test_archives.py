"""Damaged archives of sources cost one line."""

import hashlib
import tarfile
from pathlib import Path

import pytest
from messages import says
from strangers.files import archive_files, make_archive

from halfway.curriculum import UserError
from halfway.curriculum.repositories import archives


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
