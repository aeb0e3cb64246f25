"""Sealed Parquet files: a flipped bit is refused, or changes nothing."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from paths import REPOSITORY

from halfway.curriculum import Problem, Stream, UserError
from halfway.curriculum.support.parquet_hash import BLANK, KEY, require_sealed, seal
from halfway.curriculum.tasks.files import Pool

POOLS = sorted((REPOSITORY / "experiments" / "recipes" / "pools").glob("*.parquet"))


def problems(path: Path) -> tuple[Problem, ...]:
    return Pool(str(path), check_answers=False).load(None, Stream(0)).problems


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool.stem)
def test_a_flipped_bit_in_a_pool_gives_no_other_problems(pool: Path, tmp_path: Path) -> None:
    content, draw, refused = pool.read_bytes(), random.Random(pool.stem), 0
    known, damaged = problems(pool), tmp_path / pool.name
    mark = content.rindex(b"blake2b:")
    for place in [mark, mark + 7, *(draw.randrange(len(content)) for _ in range(192))]:
        flipped = bytearray(content)
        flipped[place] ^= 1 << draw.randrange(8)
        damaged.write_bytes(flipped)
        try:
            require_sealed(damaged)
        except UserError as error:
            refused += 1
            assert pool.name in str(error) and "\n" not in str(error)
        else:  # the mark itself
            assert problems(damaged) == known
    assert refused >= 192


def test_the_reader_asks_for_the_seal(tmp_path: Path) -> None:
    content = bytearray(POOLS[0].read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "pool.parquet").write_bytes(content)
    with pytest.raises(UserError, match=r"pool\.parquet: is damaged"):
        problems(tmp_path / "pool.parquet")


def test_sealed_files_read_as_before_and_files_without_a_seal_pass(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2]})
    pq.write_table(table, tmp_path / "plain.parquet")
    require_sealed(tmp_path / "plain.parquet")
    pq.write_table(table.replace_schema_metadata({KEY: BLANK}), tmp_path / "sealed.parquet")
    seal(tmp_path / "sealed.parquet")
    require_sealed(tmp_path / "sealed.parquet")
    assert pq.read_table(tmp_path / "sealed.parquet").equals(table)
    with pytest.raises(AssertionError, match="one blank"):
        seal(tmp_path / "plain.parquet")
