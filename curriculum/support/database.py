"""Opens DuckDB with access to given files only, and without extensions."""

from pathlib import Path
from typing import TYPE_CHECKING

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


def connect(root: Path | None = None) -> "duckdb.DuckDBPyConnection":
    """Open an empty database that may read files at or below `root`; None = no files."""
    import duckdb

    connection = duckdb.connect(":memory:", config=SETTINGS)
    if root is not None:
        option = "allowed_directories" if root.is_dir() else "allowed_paths"
        path = str(root.resolve()).replace("'", "''")
        connection.execute(f"SET {option} = ['{path}']")
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection
