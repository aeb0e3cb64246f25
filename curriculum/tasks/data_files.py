"""Reads rows of data files: JSON Lines, JSON, CSV or Parquet, packed or not, one file or many shards.

DuckDB reads tables and unpacks Zstandard. msgspec decodes JSON, since DuckDB reformats numbers: 1.50 would become 1.5.
A number with a fraction or an exponent is a `Decimal`, which keeps its digits.
"""

import csv
import glob
import gzip
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from decimal import Decimal
from itertools import chain, islice, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from halfway.curriculum import UserError, unknown
from halfway.curriculum.support.atomic import has_more_values
from halfway.curriculum.support.database import VALUE_BYTES, connect, name_in_sql, size_in_sql, sum_in_sql, text_in_sql
from halfway.curriculum.support.extras import blaming, one_line
from halfway.curriculum.support.parquet_hash import require_sealed

KINDS = {
    **dict.fromkeys((".jsonl", ".ndjson"), "lines"),
    ".json": "json",
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    ".parquet": "parquet",
}
PACKED = {".gz": "gzip", ".zst": "zstd"}
MOST_ENTRIES = 100_000
"""Maximum number of files and folders to search for the data files of a folder or a pattern."""
FORMATS = "a .jsonl, .json, .csv or .parquet file, packed as .gz or .zst or not, or a folder or pattern of such files"
ABOUT = frozenset({"dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json"})
"""Files about a data set that `datasets` writes beside the rows."""
SPLITS = re.compile(r"(?<![a-z])(train|test|eval|val|dev)(?:ing|idation|id|uation)?(?:set|data|s)?(?![a-z])")
SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?!\d)")

UNPACKED, DENSEST = 64 << 20, 100
"""Bytes to which every packed file may unpack; a larger one may unpack to this many times its size."""
DENSE = f"unpacks to more than {DENSEST} times its size; give it as JSON Lines"
BLOCK = 1 << 20
"""Bytes of JSON Lines, and of a table's texts, to decode at a time."""
LONGEST_LINE = 32 << 20
"""Maximum number of bytes of a line: a file without line ends must not fill the memory."""
MOST_VALUES, MOST_COLUMNS = 4_000_000, 10_000
"""Values of a line, each of which may become an object of many bytes, and columns of a table in CSV."""
MOST_ROWS, LONGEST = 2048, f"max_line_size = {LONGEST_LINE}, buffer_size = {2 * LONGEST_LINE}"
FEW = 16
LARGEST_JSON = 1 << 30
"""Maximum number of bytes of a JSON file, which is read whole."""
LISTS = ("data", "rows", "examples", "instances", "problems", "questions", "train")
"""Names under which an object in a JSON file may hold all rows."""
BEGINNINGS = {
    b"version https://git-lfs": "is a pointer of Git LFS; fetch the file itself, with `git lfs pull`",
    b"\xff\xfe": "is encoded as UTF-16; save it as UTF-8",
    b"\xfe\xff": "is encoded as UTF-16; save it as UTF-8",
    b"PK\x03\x04": "is a ZIP archive, as workbooks are; unpack it, or export CSV",
}
PACKED_BEGINNINGS = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
"""First bytes of files that are something else, and of packed files."""
SPEAKERS = {"role", "from"}
"""Fields of a message that name its author, the second one in ShareGPT's."""
DELIMITERS = ",;\t|"
EXCEL_DELIMITER = re.compile(rf"sep=([{DELIMITERS}])", re.IGNORECASE)
"""The line before the column names that tells Excel the delimiter."""
DECODER = msgspec.json.Decoder(float_hook=Decimal)
ADVICE = re.compile(r"\s*Possible (?:fixes|solution):", re.IGNORECASE)
"""The beginning of DuckDB's advice about its own options."""
UNREADABLE = (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError)
"""Exceptions of decoding JSON, also for text that is not UTF-8."""
EXPONENT = re.compile(r"[+-]?(?:\d++\.?\d*+|\.\d++)[eE][+-]?\d+|nan", re.IGNORECASE)


class Bad(NamedTuple):
    """Why a row is not a problem. The report counts rows by `reason`, and shows the `detail` of the first rows."""

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


Row = Mapping[str, Any] | Bad


class FileRow(NamedTuple):
    """A row and its place: "file:line" in JSON Lines, "file:row n" (from 1) elsewhere."""

    where: str
    values: Row


class Block(NamedTuple):
    """Successive rows of a file.

    Attributes:
        numbers: the line or row number of each row.
        unit: text before the number in a row's place: "row " or nothing.
    """

    path: Path
    numbers: Sequence[int]
    rows: Sequence[Row]
    unit: str

    def where(self, place: int) -> str:
        return f"{self.path}:{self.unit}{self.numbers[place]}"


def value_at(values: Mapping[str, Any], path: str) -> Any:
    """The value of a column, possibly inside another, as in "reward_model.ground_truth"; None if there is none."""
    if path in values:
        return values[path]
    found: Any = values
    for part in path.split("."):
        found = mapping_in(found).get(part)
    return found


def json_value(text: str) -> Any:
    """Decode a cell with JSON. Returns a `Bad` if it is not JSON."""
    return _json(text.encode("utf-8", "surrogatepass"))


def mapping_in(value: Any) -> Mapping[str, Any]:
    """The mapping in a cell, decoded if it is JSON; empty if there is none."""
    if isinstance(value, str) and value.startswith("{"):
        value = json_value(value)
    return value if isinstance(value, Mapping) else {}


def column_names(values: Mapping[str, Any]) -> list[str]:
    """The columns of a row, nested ones as dotted paths."""
    found: list[str] = []
    for name, value in values.items():
        inside = mapping_in(value)
        found += [name, *(f"{name}.{inner}" for inner in column_names(inside))]
    return found


# ---------------------------------------------------------------- files


def kind_of(path: Path) -> tuple[str, str]:
    """The kind and the packing of a data file, by its name; empty if the name does not show them."""
    packed = PACKED.get(path.suffix.lower(), "")
    return KINDS.get((path.with_suffix("") if packed else path).suffix.lower(), ""), packed


def stem(path: str) -> str:
    """A file's name without endings; of a pattern, the part before its first special character."""
    is_pattern = glob.has_magic(path) and not Path(path).exists()
    plain = Path(re.split(r"[*?\[]", path)[0].rstrip("-_.") if is_pattern else path)
    while plain.suffix.lower() in (*PACKED, *KINDS):
        plain = plain.with_suffix("")
    return plain.name


def path_errors(path: str) -> AbstractContextManager[None]:
    """A scope for a path that may be impossible, or one that the system cannot look up: raises UserError."""
    return blaming(f"path {one_line(path)}: cannot be looked up", "correct it", OSError, ValueError, RuntimeError)


def matches(folder: Path, pattern: str, links: bool = True) -> list[Path]:
    """Find the files that match a pattern below a folder, whose links may form circles.

    Args:
        links: whether to search folders behind links.

    Raises:
        UserError: naming the folder, if more than `MOST_ENTRIES` folders and files would be searched.
    """
    *folders, last = Path(pattern).parts or ("",)
    if last == "**":
        folders, last = [*folders, last], "*"
    found = [folder]
    for part in folders:
        found = _folders(found, part, folder / pattern, links)
    files = [each / name for each in found for name in glob.glob(last, root_dir=each)]
    _require_few(len(files) if folders else 0, folder / pattern)
    return files


def _require_few(searched: int, pattern: Path) -> None:
    if searched > MOST_ENTRIES:
        raise UserError(f"{pattern}: has more than {MOST_ENTRIES:,} files to search; name the folder of the data")


def _folders(above: Sequence[Path], part: str, pattern: Path, links: bool) -> list[Path]:
    """The matching folders in others, each once; for "**", the others and all folders below."""
    deep, searched = part == "**", 0
    queue, seen = list(above), {os.path.realpath(each) for each in above} if deep else set()
    found = list(above) if deep else []
    for each in queue:
        names = glob.glob("*" if deep else part, root_dir=each)
        searched += 1 + len(names)
        _require_few(searched, pattern)
        for inner in (each / name for name in names):
            is_folder = os.path.isdir(inner) and (links or not inner.is_symlink())  # Path.is_dir raises at some
            if is_folder and (place := os.path.realpath(inner)) not in seen:
                seen.add(place)
                found.append(inner)
                if deep:
                    queue.append(inner)
    return found


def shards(path: str) -> list[Path]:
    """Find the data files at a path, a file, a folder or a pattern, in the natural order of their names.

    Raises:
        UserError: if there are none, or a folder has files of several kinds or splits.
    """
    if "://" in path:
        raise UserError(f"{path}: is an address; download the file, or name a data set of the hub as owner/name")
    with path_errors(path):
        given = Path(path).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError):
            given.stat()
    if given.is_dir():
        files = [file for file in matches(given, "**", links=False) if file.name not in ABOUT and kind_of(file)[0]]
        files = [file for file in files if not file.is_dir()]
        if not files:
            raise UserError(f"{path}: the folder holds no data file; give {FORMATS}")
        _require_alike(path, [file.relative_to(given) for file in files])
        require_all(path, files)
    else:
        base = next((folder for folder in given.parents if folder.is_dir()), Path("."))  # may contain brackets
        pattern = str(given.relative_to(base))
        found = [] if given.exists() else matches(base, pattern)
        files = [file for file in found if file.is_file()] or [given]
    for file in files:
        if not kind_of(file)[0]:
            ending = f"ends in {file.suffix!r}" if file.suffix else "has no ending"
            trouble = ending if file.suffix or file.exists() else "does not exist"
            raise UserError(f"source file: {str(file)!r} {trouble}; give {FORMATS}")
    return in_order(files)


def in_order(files: Sequence[Path]) -> list[Path]:
    """Sort files by the numbers in their names."""
    return sorted(files, key=lambda file: re.sub(r"\d+", lambda number: number[0].zfill(20), str(file)))


def require_all(path: str, files: Sequence[Path]) -> None:
    """Raise UserError if some of the files named ...-00000-of-00003 are missing, as after an interrupted download."""
    sets: dict[tuple[str, int], set[int]] = {}
    for file in files:
        if found := SHARD.search(str(file)):
            sets.setdefault((str(file)[: found.start()], int(found[2])), set()).add(int(found[1]))
    for (name, number), there in sets.items():
        if len(there) < number:
            raise UserError(f"{path}: has {len(there)} of the {number} files {Path(name).name}-*; get the others")


def _require_alike(path: str, files: Sequence[Path]) -> None:
    """Raise UserError if a folder's files cannot belong to one data set."""
    for what, found in (
        ("kinds", {kind_of(file)[0] for file in files}),
        ("splits", {" ".join(sorted(set(SPLITS.findall(str(file).lower())))) for file in files}),
    ):
        if len(found) > 1:
            listed = ", ".join(sorted(name or "others" for name in found))
            raise UserError(f"{path}: holds files of several {what} ({listed}); choose, as in {path}/train*")


def file_rows(path: str) -> Iterator[FileRow]:
    """Yield all rows of the files at a path, with all columns. Raises UserError like `blocks`."""
    for file in shards(path):
        for block in blocks(file):
            yield from (FileRow(block.where(place), row) for place, row in enumerate(block.rows))


def blocks(path: Path, columns: Sequence[str] | None = None, few: bool = False) -> Iterator[Block]:
    """Yield the rows of a file in blocks.

    Args:
        columns: names or dotted paths that a table must have; None = all its columns. Rows of JSON have all.
        few: whether the first `FEW` rows of a table are enough.

    Raises:
        UserError: if the file cannot be read; if a table lacks a column.
    """
    kind, packed = kind_of(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe may wait forever, and a device has no end
            raise UserError(f"{path}: is not a regular file; give {FORMATS}")
        if kind == "json" and status.st_size > LARGEST_JSON:
            raise UserError(f"{path}: has more than {LARGEST_JSON >> 20} MiB; give it as JSON Lines")
        _require_named_kind(path, packed)
        if kind == "lines":
            pieces = _pieces(path, packed)
            begin = next(pieces, b"")
            if begin.lstrip()[:1] == b"[" and status.st_size <= LARGEST_JSON:  # a list that is called .jsonl
                yield from _array(path, begin + b"".join(pieces))
            else:
                yield from _lines(path, chain([begin], pieces))
        elif kind == "json":
            yield from _array(path, b"".join(_pieces(path, packed)))
        else:
            limit = f" LIMIT {FEW}" * few
            yield from _csv(path, packed, columns, limit) if kind == "csv" else _parquet(path, columns, limit)
    except FileNotFoundError:
        raise UserError(
            f"problem file: {str(path)!r} does not exist; correct the source's path (a relative one is searched "
            "beside the YAML file, in the current folder and in the repository)"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({one_line(error)}); check the source's path") from error


def _require_named_kind(path: Path, packed: str) -> None:
    """Refuse a file that begins like something else than its name says."""
    with open(path, "rb") as file:
        begin = file.read(max(map(len, BEGINNINGS)))
    for magic, what in BEGINNINGS.items():
        if begin.startswith(magic):
            raise UserError(f"{path}: {what}")
    for magic, ending in PACKED_BEGINNINGS.items():
        if begin.startswith(magic) and not packed:
            raise UserError(f"{path}: is compressed; rename it to {path.name}{ending}")


def sample(path: Path) -> list[Mapping[str, Any]]:
    """Read the first few rows of a file, with all columns."""
    first = next(blocks(path, few=True), None)
    return [row for row in first.rows[:FEW] if not isinstance(row, Bad)] if first else []


def _require_moderate(path: Path, unpacked: int) -> None:
    if unpacked > UNPACKED and unpacked > DENSEST * path.stat().st_size:
        raise UserError(f"{path}: {DENSE}")


# ---------------------------------------------------------------- JSON


def _require_few_values(where: str, text: bytes) -> None:
    """Refuse JSON with very many, very short values."""
    most = max(MOST_VALUES, len(text) // 16)
    if len(text) > MOST_VALUES and has_more_values(text, most):
        raise UserError(f"{where}: holds more than {most:,} values; give a problem in a line of its own")


def _pieces(path: Path, packed: str) -> Iterator[bytes]:
    """Yield the unpacked bytes of a file, without the byte order mark of some editors."""
    total = 0
    for piece in _unpack(path, packed):
        yield piece if total else piece.removeprefix(b"\xef\xbb\xbf")
        total += len(piece)
        if packed:
            _require_moderate(path, total)


def _unpack(path: Path, packed: str) -> Iterator[bytes]:
    if packed == "zstd":
        options = "columns = {'line': 'VARCHAR'}, delim = '', quote = '', escape = '', header = false"
        read = f"FROM read_csv(?, {options}, auto_detect = false, compression = 'zstd', {LONGEST})"
        most = max(UNPACKED, DENSEST * path.stat().st_size)  # DuckDB would hold 2048 lines before we see one
        so_far = f"SELECT line, sum(strlen(line)) OVER (ROWS UNBOUNDED PRECEDING) AS so_far {read}"
        dense = f"error({text_in_sql(DENSE)})"
        moderate = f"FROM ({so_far}) WHERE CASE WHEN so_far > {most} THEN {dense} ELSE true END"
        what = "compressed by Zstandard"
        with _asking(path, what) as ask:
            rows = _measure(ask, "strlen(line)", moderate).at_a_time
            for lines in ask(f"SELECT line {read}", rows):
                yield "".join([f"{line or ''}\n" for (line,) in lines]).encode()
        return
    with gzip.open(path) if packed else open(path, "rb") as file:
        while piece := file.read(BLOCK):
            yield piece


def _lines(path: Path, pieces: Iterator[bytes]) -> Iterator[Block]:
    rest, first = b"", 1
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if not end:
            rest += piece
            if len(rest) > LONGEST_LINE:
                longest = f"{LONGEST_LINE >> 20} MiB"
                raise UserError(f"{path}:{first}: is longer than {longest}; give {FORMATS}, one row per line")
            continue
        whole = rest + piece[:end]
        rest = piece[end:]
        yield _decode(path, whole, first)
        first += whole.count(b"\n")
    if rest:
        yield _decode(path, rest, first)


def _decode(path: Path, lines: bytes, first: int) -> Block:
    """Decode whole lines into rows."""
    _require_few_values(f"{path}:{first}", lines)
    try:
        rows = DECODER.decode_lines(lines)
        if len(rows) == lines.count(b"\n") + (lines[-1:] != b"\n") and all(type(row) is dict for row in rows):
            return Block(path, range(first, first + len(rows)), rows, "")
    except UNREADABLE:
        pass
    numbered = [(number, line) for number, line in enumerate(lines.split(b"\n"), first) if line.strip()]
    return Block(path, [number for number, _ in numbered], [_parse(line) for _, line in numbered], "")


def _json(text: bytes) -> Any:
    """Decode JSON, also with Python's NaN and lone surrogates. Returns a `Bad` if it is not JSON."""
    try:
        return DECODER.decode(text)
    except UNREADABLE:
        try:
            return json.loads(text.decode(), parse_float=Decimal, parse_constant=Decimal)
        except UNREADABLE as error:
            return Bad("not JSON", one_line(error))


def _parse(line: bytes) -> Row:
    value = _json(line)
    if isinstance(value, Bad) and line.rstrip().endswith(b","):  # from a list with one row per line
        value = _json(line.rstrip()[:-1])
    return value if isinstance(value, Bad) else _row(value)


def _row(value: Any) -> Row:
    """A row from an object, or from ORZ's list of messages, the last of which has the answer."""
    if _has_objects(value) and all(SPEAKERS & message.keys() for message in value):
        return {**value[-1], "conversations": value}
    return value if isinstance(value, dict) else Bad("not an object")


def _array(path: Path, text: bytes) -> Iterator[Block]:
    """Yield the rows of a list of objects, perhaps in {"data": [...]}, or of JSON Lines with the wrong file ending."""
    _require_few_values(str(path), text)
    values = _json(text)
    if isinstance(values, Bad):
        if text.lstrip()[:1] == b"{" or kind_of(path)[0] == "lines":
            yield _decode(path, text, 1)
            return
        raise UserError(f"{path}: {values}; correct it")
    if isinstance(values, dict):
        values = _rows_in(values, is_line=b"\n" not in text.strip())
    if not isinstance(values, list):
        holds = "an object, not one list of rows" if isinstance(values, dict) else f"a {type(values).__name__}"
        raise UserError(f'{path}: holds {holds}; give a list of objects, one per problem, or {{"data": [...]}}')
    yield Block(path, range(1, len(values) + 1), [_row(value) for value in values], "row ")


def _rows_in(values: dict[str, Any], is_line: bool) -> Any:
    """The rows that an object holds, or the object itself if it holds none.

    These are a list of rows, columns as `datasets` and pandas write them, rows by id, or the object as the only row.

    Args:
        is_line: whether the file has one line, which may be the only one of JSON Lines.
    """
    columns, table = values.get("columns"), values.get("data")
    if isinstance(columns, list) and isinstance(table, list) and all(isinstance(row, list) for row in table):
        return _dicts(columns, table)
    lists = [name for name, value in values.items() if _has_objects(value) and not SPEAKERS & value[0].keys()]
    if len(lists) == 1 and lists[0] in LISTS:
        return values[lists[0]]
    inner = list(values.values())
    if len(inner) > 1 and all(isinstance(each, list) and len(each) == len(inner[0]) > 1 for each in inner):
        if not any(map(_has_objects, inner)):  # messages
            return _dicts(list(values), zip(*inner, strict=True))
    elif len(inner) > 1 and all(isinstance(each, dict) for each in inner):
        names = inner[0].keys()
        if all(map(str.isdecimal, names)) and all(each.keys() == names for each in inner):
            return [{column: values[column][name] for column in values} for name in names]
        if set.intersection(*map(set, inner)):
            return inner
    return [values] if values and (not lists or (is_line and len(lists) < len(values))) else values


def _has_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


# ---------------------------------------------------------------- tables


def _dicts(names: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return list(map(dict, map(zip, repeat(names), rows)))  # two thirds of a comprehension's time


class Sizes(NamedTuple):
    """Bytes of a file's rows in Python: the longest one, the most of `MOST_ROWS` successive ones, and all of them."""

    longest: int
    together: int
    total: int

    @property
    def at_a_time(self) -> int:
        """Rows to have in memory at a time."""
        return MOST_ROWS if self.together <= 8 * BLOCK else max(1, BLOCK // self.longest)


Ask = Callable[..., Iterator[list[tuple[Any, ...]]]]
"""Yields the rows of a query on one file in blocks of so many."""


def _measure(ask: Ask, size: str, rows: str) -> Sizes:
    """Measure the rows of a query on one file before any of them is a Python value.

    Args:
        size: SQL of a row's size.
        rows: the query, from its FROM.
    """
    parts = f"SELECT {size} AS size, row_number() OVER () // {MOST_ROWS} AS part {rows}"
    each = f"SELECT max(size) AS longest, sum(size) AS together FROM ({parts}) GROUP BY part"
    [found] = next(ask(f"SELECT max(longest), max(together), sum(together) FROM ({each})"))
    return Sizes(*(number or 0 for number in found))


@contextmanager
def _asking(path: Path, what: str) -> Iterator[Ask]:
    """Open DuckDB for one file. To open it takes longer than most queries.

    Args:
        what: the expected format of the file, for the error.
    """
    import duckdb

    try:
        with _plainly_named(path.resolve()) as place, closing(connect(Path(place))) as connection:

            def ask(query: str, rows: int = FEW) -> Iterator[list[tuple[Any, ...]]]:
                cursor = connection.execute(query, [place])
                while found := cursor.fetchmany(rows):
                    yield found

            yield ask
    except (duckdb.Error, RuntimeError, UnicodeError) as error:
        if "not utf-8 encoded" in str(error):
            raise UserError(f"{path}: is not encoded as UTF-8; save it as UTF-8") from error
        why = one_line(duckdb.Error(ADVICE.split(str(error))[0]), 300)
        raise UserError(f"{path}: not {what} ({why}); correct it") from error


@contextmanager
def _plainly_named(path: Path) -> Iterator[str]:
    """Yield the path or, if DuckDB would read it as a pattern, the path of a link to the file."""
    if not glob.has_magic(str(path)):
        yield str(path)
        return
    with TemporaryDirectory() as folder:
        link = Path(folder) / f"data{path.suffix}"
        link.symlink_to(path)
        yield str(link)


def _csv(path: Path, packed: str, columns: Sequence[str] | None, limit: str) -> Iterator[Block]:
    names, delimiter, skipped = _heading(path, packed)
    if not names:
        raise UserError(f"{path}: does not begin with a line of column names; correct it")
    if len(names) > MOST_COLUMNS:
        raise UserError(f"{path}: has more than {MOST_COLUMNS:,} columns; leave out what no problem needs")
    for name in columns or ():
        if name not in names:
            raise unknown(f"{path}: column (as in prompt_column)", name, names)
        if names.count(name) > 1:
            raise UserError(f"{path}: has several columns {name!r}; rename all but one")
    if _mixes_line_ends(path, packed):
        yield from _csv_by_python(path, packed, names, delimiter, skipped)
        return
    types = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(names)))
    query = (
        f"FROM read_csv(?, columns = {{{types}}}, delim = {text_in_sql(delimiter)}, quote = '\"', escape = '\"', "
        f"header = true, skip = {skipped}, auto_detect = false, compression = '{packed or 'none'}', {LONGEST}){limit}"
    )
    what, first = "a table in CSV", 1
    size = sum_in_sql([str(VALUE_BYTES * len(names)), *(f"coalesce(strlen(c{i}), 0)" for i in range(len(names)))])
    with _asking(path, what) as ask:
        for found in ask(query, _measure(ask, size, query).at_a_time):
            converted = [_plain_cells(column) for column in zip(*found, strict=True)]
            rows = _dicts(names, zip(*converted, strict=True))
            yield Block(path, range(first, first + len(rows)), rows, "row ")
            first += len(rows)


def _mixes_line_ends(path: Path, packed: str) -> bool:
    """True if lines end in more than one way, or in carriage returns alone; DuckDB reads neither.

    Raises:
        UserError: if there is a line that is too long.
    """
    both = feeds = returns = length = 0
    last = b""
    for piece in _pieces(path, packed):
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        length = length + len(piece) if end < 0 else len(piece) - end
        if length > LONGEST_LINE:
            raise UserError(
                f"{path}: has a line of more than {LONGEST_LINE >> 20} MiB; give {FORMATS}, one row per line"
            )
        both += piece.count(b"\r\n") + (last == b"\r" and piece[:1] == b"\n")
        feeds, returns = feeds + piece.count(b"\n"), returns + piece.count(b"\r")
        last = piece[-1:]
    return returns > both or 0 < both < feeds


def _csv_by_python(path: Path, packed: str, names: Sequence[str], delimiter: str, skipped: int) -> Iterator[Block]:
    """The rows of a table in CSV, whatever ends its lines."""
    lines = io.TextIOWrapper(io.BytesIO(b"".join(_pieces(path, packed))), "utf-8-sig", newline="")
    filled = islice(filter(None, csv.reader(lines, delimiter=delimiter, strict=True)), 1 + skipped, None)
    first = 1
    with blaming(f"{path}: not a table in CSV", "correct it", csv.Error, UnicodeError):
        while cells := list(islice(filled, MOST_ROWS)):
            for number, found in enumerate(cells, first):
                if len(found) != len(names):
                    sizes = f"{len(found)} cells, {len(names)} columns"
                    raise UserError(f"{path}:row {number}: not a table in CSV ({sizes}); correct it")
            rows = _dicts(names, (tuple(_plain_cells(cell or None for cell in found)) for found in cells))
            yield Block(path, range(first, first + len(rows)), rows, "row ")
            first += len(rows)


def _plain_cells(cells: Iterable[str | None]) -> list[Any]:
    """Convert cells of an all-text table: a number with an exponent, and NaN, become numbers."""
    is_number = EXPONENT.fullmatch
    return [_number(cell) if cell and is_number(cell) else cell for cell in cells]


def _number(cell: str) -> Decimal | str:
    try:
        return Decimal(cell)
    except ArithmeticError:  # such as an exponent of twenty digits
        return cell


def _heading(path: Path, packed: str) -> tuple[list[str], str, int]:
    """Read the column names of a CSV table, its delimiter, and the number of lines before the names."""
    beginning = b""
    for piece in _pieces(path, packed):
        beginning += piece
        if b"\n" in piece or b"\r" in piece or len(beginning) > BLOCK:
            break
    text = beginning.decode("utf-8", "replace")
    line = re.split("[\r\n]", text, maxsplit=1)[0]
    stated = EXCEL_DELIMITER.fullmatch(line)
    delimiter = stated[1] if stated else max(DELIMITERS, key=line.count)
    with blaming(f"{path}: not a table in CSV", "correct it", csv.Error):
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        return next(islice(lines, 1, None) if stated else lines, []), delimiter, int(bool(stated))


TABLE, PARQUET = "FROM read_parquet(?, hive_partitioning = false)", "a Parquet file"


def _parquet(path: Path, columns: Sequence[str] | None, limit: str) -> Iterator[Block]:
    """Like `blocks`, for a Parquet table; floating-point numbers are read in their shortest decimal form."""
    with _asking(path, PARQUET) as ask:
        kinds = _describe(path, ask)
        chosen = dict(_column(path, name, kinds) for name in (kinds if columns is None else columns))
        types = _types(ask, ", ".join(f"{cell} AS {name_in_sql(name)}" for name, cell in chosen.items()))
        floats = [name for name, kind in types.items() if kind in ("FLOAT", "DOUBLE")]
        cells = (f"{cell}::VARCHAR" if name in floats else cell for name, cell in chosen.items())
        sizes = _moderate_sizes(path, ask, [(cell, types[name]) for name, cell in chosen.items()], limit)
        first = 1
        for found in ask(f"SELECT {', '.join(cells)} {TABLE}{limit}", sizes.at_a_time):
            rows = _dicts(list(chosen), found)
            for row in rows if floats else ():
                row |= {name: Decimal(row[name]) for name in floats if row[name] is not None}
            yield Block(path, range(first, first + len(rows)), rows, "row ")
            first += len(rows)


def require_moderate_table(path: Path) -> None:
    """Raise UserError for a Parquet file that is damaged, or whose rows would fill the memory."""
    with _asking(path, PARQUET) as ask:
        columns = [(name_in_sql(name), kind) for name, kind in _describe(path, ask).items()]
        _moderate_sizes(path, ask, columns, "")


def _describe(path: Path, ask: Ask) -> dict[str, str]:
    """Read the types of the columns of a Parquet file, if it is whole and says that it holds no more than it may."""
    require_sealed(path)
    query = "SELECT greatest(sum(total_uncompressed_size), 8 * sum(num_values)) FROM parquet_metadata(?)"
    _require_moderate(path, next(ask(query))[0][0] or 0)
    return _types(ask, "*")


def _types(ask: Ask, columns: str) -> dict[str, str]:
    """Read the types of columns of a Parquet file, by name."""
    return {row[0]: row[1] for rows in ask(f"DESCRIBE SELECT {columns} {TABLE}") for row in rows}


def _moderate_sizes(path: Path, ask: Ask, columns: Sequence[tuple[str, str]], limit: str) -> Sizes:
    """Measure a table's rows, and refuse rows that would fill the memory: a text stored once may be in every row.

    Args:
        columns: SQL of each column, and its type.
    """
    import duckdb

    size = sum_in_sql(size_in_sql(cell, duckdb.sqltype(kind)) for cell, kind in columns)
    sizes = _measure(ask, size, f"{TABLE}{limit}")
    _require_moderate(path, sizes.total)
    if sizes.longest > UNPACKED or sizes.together > max(8 * UNPACKED, 10 * path.stat().st_size):
        raise UserError(
            f"{path}: has rows of up to {sizes.longest >> 20:,} MiB, too large for Parquet; convert it to JSON Lines"
        )
    return sizes


def _column(path: Path, name: str, types: Mapping[str, str]) -> tuple[str, str]:
    """Build the SQL of a column, or of a value inside one, and its name in the rows."""
    top, _, inside = name.partition(".")
    if name in types:
        return name, name_in_sql(name)
    if top not in types or not inside:
        raise unknown(f"{path}: column (as in prompt_column)", name, types)
    if not types[top].startswith("STRUCT"):  # JSON as text, or a map
        return top, name_in_sql(top)
    cell = ".".join(map(name_in_sql, name.split(".")))
    if all(re.search(rf'[("\s]{re.escape(part)}["\s]', types[top]) for part in inside.split(".")):
        with suppress(UserError), _asking(path, PARQUET) as ask:
            _types(ask, cell)  # not from the first rows, which may have nulls
            return name, cell
    known = dict.fromkeys(inner for row in sample(path) for inner in column_names(row))
    if name not in known:
        raise unknown(f"{path}: column (as in prompt_column)", name, known)
    return top, name_in_sql(top)  # with JSON inside
