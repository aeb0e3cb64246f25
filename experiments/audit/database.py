"""Runs DuckDB on arrays, and on Parquet files at or below one path, without any other access."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
from numpy.typing import NDArray

from halfway.curriculum.support.database import connect
from halfway.experiments.audit.limits import TOO_DENSE, TooDenseError, require_moderate

ROWS = 128
"""Rows to convert to Python values at a time."""

LONGEST_CELL = 1 << 20
"""Maximum characters of a text, or values of a list; longer ones are read as null."""

UNREADABLE = (duckdb.Error, RuntimeError, UnicodeError)
"""DuckDB's exceptions for a damaged file; the last two for a name or a text that is not UTF-8."""

DAMAGED = "file that is not Parquet, or is damaged"

connected = lru_cache(maxsize=8)(connect)


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
    quoted, place, unpacked = ['"' + name.replace('"', '""') + '"' for name in names], str(path.resolve()), 0
    try:
        with closing(connected(root).cursor()) as cursor:
            kinds = cursor.execute(f"SELECT {', '.join(quoted)} FROM {PARQUET} LIMIT 0", [place]).description or ()
            long = [i for i, kind in enumerate(kinds) if re.fullmatch(r"VARCHAR|BLOB|.*\[\d*\]", str(kind[1]))]
            for i in long:
                length = "octet_length" if str(kinds[i][1]) == "BLOB" else "len"
                quoted[i] = f"CASE WHEN {length}({quoted[i]}) <= {LONGEST_CELL} THEN {quoted[i]} END"
            cursor.execute(f"SELECT {', '.join(quoted)} FROM {PARQUET}", [place])
            while rows := cursor.fetchmany(ROWS):
                cells: list[Sequence[Any]] = list(zip(*rows, strict=True))
                unpacked += 8 * len(rows) * len(cells) + sum(len(v) for i in long for v in cells[i] if v)
                require_moderate(unpacked, path.stat().st_size)
                yield dict(zip(names, cells, strict=True))
    except (*UNREADABLE, TooDenseError) as error:
        drop(TOO_DENSE if isinstance(error, TooDenseError) else DAMAGED)
