"""Reads Parquet files with pyarrow, which the extra `tasks` installs."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from halfway.curriculum.support.extras import load_extra

ROWS = 4096
DAMAGED = "file that is no Parquet, or damaged"


def names(path: Path) -> list[str] | None:
    """The column names of a file; None if it is not Parquet."""
    parquet = load_extra("pyarrow.parquet", "halfway audit of Parquet files")
    try:
        return list(parquet.read_schema(path).names)
    except (OSError, ValueError, KeyError):  # pyarrow's errors are ValueErrors
        return None


def batches(path: Path, columns: Sequence[str] | None, drop: Callable[[str], None]) -> Iterator[dict[str, list[Any]]]:
    """Yield a file in pieces of up to `ROWS` rows, as lists of Python values by column.

    Args:
        columns: the columns to read; None = all.
        drop: called with the reason if the file is damaged.
    """
    parquet = load_extra("pyarrow.parquet", "halfway audit of Parquet files")
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS, columns=columns):
                yield {name: batch.column(i).to_pylist() for i, name in enumerate(batch.schema.names)}
    except (OSError, ValueError, KeyError):
        drop(DAMAGED)


def tables(path: Path, drop: Callable[[str], None]) -> dict[str, list[Any]] | None:
    """A whole file as lists by column; None if it is empty or damaged. Suits the small files written at every step."""
    found: dict[str, list[Any]] = {}
    for batch in batches(path, None, drop):
        for name, values in batch.items():
            found.setdefault(name, []).extend(values)
    return found or None
