"""Runs DuckDB on arrays, and on Parquet files at or below one path, without any other access."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
from numpy.typing import NDArray

from halfway.curriculum.support.database import connect, name_in_sql, size_in_sql, sum_in_sql

ROWS = 128
"""Rows to convert to Python values at a time."""

LONGEST_CELL, LONGEST_NESTED = 1 << 20, 64 << 20
"""Maximum number of bytes of a text, and approximately of a list or mapping in Python; longer ones are read as null."""

UNREADABLE = (duckdb.Error, RuntimeError, UnicodeError)
"""DuckDB's exceptions for a damaged file; the last two for a name or a text that is not UTF-8."""

DAMAGED = "file that is not Parquet, or is damaged"

MOST_VALUES = 4_000_000
"""Maximum commas, and maximum brackets, in a line: each may become an object of many bytes."""

UNPACKED, DENSEST = 64 << 20, 100
"""Bytes to which every packed file may unpack; a larger one may unpack to this many times its size."""

TOO_DENSE = f"file that unpacks to more than {DENSEST} times its size, read in part; if you trust it, unpack it"

connected = lru_cache(maxsize=8)(connect)


class TooDenseError(OSError):
    """A packed file unpacks to far more than its size."""


def require_moderate(unpacked: int, packed: int) -> None:
    """Raise TooDenseError if a file of `packed` bytes unpacks to suspiciously many."""
    if unpacked > most(packed):
        raise TooDenseError


def most(packed: int) -> int:
    """Maximum number of bytes to which a file of `packed` bytes may unpack."""
    return max(UNPACKED, DENSEST * packed)


def is_moderate(line: bytes) -> bool:
    """True if a line has few enough values to decode."""
    return len(line) <= MOST_VALUES or (
        line.count(b",") <= MOST_VALUES and line.count(b"[") + line.count(b"{") <= MOST_VALUES
    )


class Tables:
    """Arrays as tables, and SQL over them: `with Tables(name={column: array, ...}) as tables:`."""

    def __init__(self, **tables: Mapping[str, NDArray[Any]]):
        self._cursor = connected().cursor()
        for name, columns in tables.items():
            self._cursor.register(name, dict(columns))

    def __enter__(self) -> "Tables":
        return self

    def __exit__(self, *error: object) -> None:
        self._cursor.close()

    def define(self, name: str, query: str, *values: object) -> None:
        """Keep the rows of a query as a table."""
        self._cursor.execute(f"CREATE TEMP TABLE {name} AS {query}", values)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a query; returns its rows. Each `?` in it takes the next of the values."""
        return self._cursor.execute(query, values).fetchall()

    def columns(self, query: str, *values: object) -> dict[str, Any]:
        """Run a query; returns its rows as arrays by column."""
        return dict(self._cursor.execute(query, values).fetchnumpy())


def column_names(path: Path, root: Path) -> list[str]:
    """Read the column names of a Parquet file at or below `root`; empty if it is not Parquet."""
    try:
        with closing(connected(root).cursor()) as cursor:
            cursor.execute(f"SELECT * FROM {PARQUET} LIMIT 0", [str(path.resolve())])
            return [column[0] for column in cursor.description or ()]
    except UNREADABLE:
        return []


PARQUET = "read_parquet(?, hive_partitioning = false)"


def batches(
    path: Path, root: Path, names: Sequence[str], drop: Callable[[str], None]
) -> Iterator[dict[str, Sequence[Any]]]:
    """Yield these columns of a Parquet file at or below `root`, in pieces of up to `ROWS` rows, as Python values.

    Args:
        drop: called with the reason if the file is damaged.
    """
    quoted, place = [name_in_sql(name) for name in names], str(path.resolve())
    try:
        with closing(connected(root).cursor()) as cursor:
            kinds = cursor.execute(f"SELECT {', '.join(quoted)} FROM {PARQUET} LIMIT 0", [place]).description or ()
            sizes = [size_in_sql(cell, kind[1]) for cell, kind in zip(quoted, kinds, strict=True)]
            for i, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
                if not size.isdecimal():
                    longest = LONGEST_CELL if str(kind[1]) in ("VARCHAR", "BLOB") else LONGEST_NESTED
                    quoted[i] = f"CASE WHEN {size} <= {longest} THEN {quoted[i]} END"
                    sizes[i] = f"CASE WHEN {size} <= {longest} THEN {size} ELSE 0 END"
            # DuckDB copies a chunk of 2048 rows before we see the first, so too long values must be null in it.
            so_far = f"(sum({sum_in_sql(sizes)}) OVER (ROWS UNBOUNDED PRECEDING))::BIGINT AS so_far"
            named = ", ".join(f"{cell} AS c{i}" for i, cell in enumerate(quoted))
            limit = most(path.stat().st_size)
            cells = ", ".join(f"CASE WHEN so_far <= {limit} THEN c{i} END" for i in range(len(quoted)))
            query = f"SELECT {cells}, so_far FROM (SELECT {named}, {so_far} FROM {PARQUET})"
            cursor.execute(query, [place])
            while rows := cursor.fetchmany(ROWS):
                whole = rows if rows[-1][-1] <= limit else [row for row in rows if row[-1] <= limit]
                if whole:
                    *columns, _ = zip(*whole, strict=True)
                    yield dict(zip(names, columns, strict=True))
                require_moderate(rows[-1][-1], path.stat().st_size)
    except (*UNREADABLE, TooDenseError) as error:
        drop(TOO_DENSE if isinstance(error, TooDenseError) else DAMAGED)
