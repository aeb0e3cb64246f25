"""Opens DuckDB with access to given files only, and without extensions."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": "1",  # so that equal files give equal rows in equal order
    "memory_limit": "600MB",
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "enable_external_file_cache": "false",
}

VALUE_BYTES = 64
"""Fewest bytes of a value inside a list or mapping in Python."""

MOST_TERMS = 100
"""Terms of a sum in SQL, which DuckDB nests; a list of them is slower."""


def connect(root: Path | None = None) -> "duckdb.DuckDBPyConnection":
    """Open an empty database that may read files at or below `root`; None = no files."""
    import duckdb

    connection = duckdb.connect(":memory:", config=SETTINGS)
    if root is not None:
        option = "allowed_directories" if root.is_dir() else "allowed_paths"
        connection.execute(f"SET {option} = [{text_in_sql(str(root.resolve()))}]")
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def name_in_sql(name: str) -> str:
    """Quote the name of a column."""
    return '"' + name.replace('"', '""') + '"'


def text_in_sql(value: str) -> str:
    """Quote a text as a literal of SQL."""
    return "'" + value.replace("'", "''") + "'"


def size_in_sql(cell: str, kind: Any, depth: int = 0) -> str:
    """SQL for the approximate bytes of a cell in Python; a number if all cells of its type have the same size.

    Args:
        kind: DuckDB's type of the cell.
    """
    match kind.id:
        case "varchar":
            return f"coalesce(strlen({cell}), 0)"
        case "blob":
            return f"coalesce(octet_length({cell}), 0)"
        case "struct":
            inside = (
                size_in_sql(f"struct_extract({cell}, {text_in_sql(name)})", part, depth) for name, part in kind.children
            )
            return sum_in_sql([str(VALUE_BYTES), *inside])
        case "map":
            return sum_in_sql(_size_of_list(f"map_{name}s({cell})", part, depth) for name, part in kind.children)
        case "list" | "array":
            return _size_of_list(cell, dict(kind.children)["child"], depth)
    return "8"


def _size_of_list(cell: str, kind: Any, depth: int) -> str:
    each = sum_in_sql([str(VALUE_BYTES), size_in_sql(f"x{depth}", kind, depth + 1)])
    if each.isdecimal():
        return f"coalesce(len({cell}), 0) * {each}"
    return f"coalesce(list_sum(list_transform({cell}, lambda x{depth}: {each})), 0)"


def sum_in_sql(sizes: Iterable[str]) -> str:
    """SQL for the sum of sizes."""
    listed = list(sizes)
    fixed = sum(int(size) for size in listed if size.isdecimal())
    others = [size for size in listed if not size.isdecimal()]
    if len(others) > MOST_TERMS:
        return f"list_sum([{fixed}, {', '.join(others)}])"
    return f"({' + '.join([str(fixed), *others])})" if others else str(fixed)
