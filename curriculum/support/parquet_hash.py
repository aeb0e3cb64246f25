"""Seals Parquet files with a hash of all their bytes, to detect damage.

The hash is in the file's metadata, and is computed with zeros in its place.
"""

import re
from hashlib import blake2b
from pathlib import Path

from halfway.curriculum.support.errors import UserError

KEY, BLANK = "halfway.seal", "blake2b:" + "0" * 40
"""The entry of a table's metadata before `seal`."""
FOOTER = 1 << 20
"""Bytes at the end of a file to search for the entry."""
_SEAL = re.compile(rb"halfway\.seal.{1,8}?blake2b:([0-9a-f]{40})", re.DOTALL)


def seal(file: Path) -> None:
    """Replace the blank in a new file by the hash of its bytes."""
    content = file.read_bytes()
    assert content.count(BLANK.encode()) == 1, f"{file} was not written with one blank"
    file.write_bytes(content.replace(BLANK.encode(), b"blake2b:" + _hash(content)))


def require_sealed(file: Path) -> None:
    """Raise UserError if a file's hash does not match its bytes; a file without a hash passes."""
    with open(file, "rb") as opened:
        start = opened.seek(max(0, file.stat().st_size - FOOTER))
        footer = opened.read()
        if not (found := _SEAL.findall(footer)):
            return
        before, _, after = footer.rpartition(b"blake2b:" + found[-1])
        opened.seek(0)
        digest = blake2b(digest_size=20)
        for place in range(0, start, FOOTER):
            digest.update(opened.read(min(FOOTER, start - place)))
    digest.update(before + BLANK.encode() + after)
    if digest.hexdigest().encode() != found[-1]:
        raise UserError(f"{file}: is damaged: its content has changed since it was written; get or make it again")


def _hash(content: bytes) -> bytes:
    return blake2b(content, digest_size=20).hexdigest().encode()
