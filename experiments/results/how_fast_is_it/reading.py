"""Measures what reading problems costs, beside DuckDB's plain scan of the same files.

    python experiments/results/how_fast_is_it/reading.py [--rows 1000000]

Processor time and the memory at its highest, each in a process of its own, without the checks of answers. Exits with 1
if a row of JSON Lines takes more than 5 us.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from halfway.experiments.scripts import script, script_parser

LIMIT = 5.0
NAMES = ("train.jsonl", "train.jsonl.gz", "train.csv", "train.parquet")


def write(folder: Path, rows: int) -> None:
    """The same rows of a prompt and an answer in each format."""
    import duckdb

    lines = (
        json.dumps({"prompt": f"What is {i} + {7 * i}? Think step by step about that sum.", "answer": str(8 * i)})
        for i in range(rows)
    )
    (folder / NAMES[0]).write_text("".join(f"{line}\n" for line in lines))
    for name, options in zip(NAMES[1:], ("json, COMPRESSION gzip", "csv", "parquet"), strict=True):
        duckdb.sql(f"COPY (FROM read_json('{folder / NAMES[0]}')) TO '{folder / name}' (FORMAT {options})")


def read(path: Path, by: str) -> None:
    """Read a file, and print the processor seconds and the MiB that it took."""
    import duckdb

    from halfway.curriculum import Stream
    from halfway.curriculum.tasks.files import File

    begin = time.process_time()
    if by == "halfway":
        File(str(path), check_answers=False).load(None, Stream(0))
    else:
        connection = duckdb.connect(config={"threads": 1})
        connection.execute(f"SELECT max(len(prompt)), max(len(answer::VARCHAR)) FROM '{path}'").fetchall()
    print(time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)


@script
def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--read", nargs=2, metavar=("FILE", "BY"), help="read one file, and print its time and memory")
    options = parser.parse_args()
    if options.read:
        read(Path(options.read[0]), options.read[1])
        return 0
    table = Table("file", "us a row", "MiB", "DuckDB's scan, us a row", "MiB", title=f"{options.rows:,} rows")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.rows)
        for name in NAMES:
            cells = []
            for by in ("halfway", "duckdb"):
                line = [sys.executable, __file__, "--read", str(Path(folder, name)), by]
                seconds, mib = subprocess.run(line, check=True, capture_output=True, text=True).stdout.split()
                found[name, by] = 1e6 * float(seconds) / options.rows
                cells += [f"{found[name, by]:.2f}", mib]
            table.add_row(name, *cells)
    Console().print(table)
    return int(found[NAMES[0], "halfway"] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
