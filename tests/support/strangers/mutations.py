"""Changes of a file's content at random: of its bytes, and of the values, names and tables that it holds."""

import gzip
import io
import json
import os
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

Change = Callable[[bytes, random.Random], bytes]

CANARY = "canary-of-a-stranger"
"""A file of this name in the working folder, if code of a stranger has run."""
TEXTS = (
    *("", "x", "nan", "\x00", "\ud800", "\x1b[2J", "\u202e\u0663\u00bd", "e\u0301" * 50, "\ufeff", "a\nb\r\n", "-" * 9),
    *("<script>alert(1)</script>", "[bold]x[/]", "${oc.env:HOME}", "{{ 7 * 7 }}", "{0.__class__}", "%s%n", "'; --"),
    *("../../../../etc/passwd", "/etc/passwd", "~root", "file:///etc/passwd", "http://127.0.0.1:1/", "NaN", "1e999"),
    *(f"$(touch {CANARY})", f"`touch {CANARY}`", f"__import__('os').system('touch {CANARY}')"),
    *("9^9^9^9", "9**9**9**9", "(" * 3000, "x" * 100_000, "\\frac{1}{" * 500),
)
ODD = (
    *("a b", "a\nb", "a\n#SBATCH --wrap=x\n", f"a\ntouch {CANARY} #", f"$(touch {CANARY})", f"`touch {CANARY}`"),
    *(f"; touch {CANARY};", "&", "|x", "'", '"', "''\"\"", "\\", "*", "~", "--wrap", "-x", "%j", "$HOME", "{a,b}"),
    *("!!", "\x1b[2J", "é\u202e", "\udcff", "#"),
)
"""Values that would break out of a shell's word, an option or a line."""
NUMBERS = (
    *(-1, 0, 1, 2**31, 2**32 + 1, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, 1.5, -0.5, 1e308, -1e308, 5e-324),
    *(float("nan"), float("inf"), float("-inf"), True, None),
)
DEEP = ("[" * 5000, "[" * 5000 + "]" * 5000, '{"a":' * 3000, '{"a":' * 3000 + "1" + "}" * 3000)
YAML = (
    f"!!python/object/apply:os.system ['touch {CANARY}']",
    *("*a", "&a [*a]", "&a [&b [*a, *b]]", "<<: {a: 1}", "!!binary x", "? [1]: 2", "1:30:00", "0o17", "|\n  x", "@x"),
)


def _endless(path: Path) -> None:
    """A file of a terabyte that takes no room, without a line end."""
    path.touch()
    os.truncate(path, 1 << 40)


HEAVY: Mapping[type, tuple[Callable[[], str], ...]] = {
    str: (lambda: '"' + "x" * (24 << 20) + '"',),
    dict: (
        lambda: "{" + ",".join(f'"f{i}":{i}' for i in range(200_000)) + "}",
        lambda: '{"a":' * 300_000 + "1" + "}" * 300_000,
    ),
    list: (
        lambda: "[" + "0," * 6_000_000 + "0]",
        lambda: "[" + "{}," * 6_000_000 + "{}]",
        lambda: "[" + '"",' * 6_000_000 + '""]',
        lambda: "[" + '["a","b"],' * 1_900_000 + '["a","b"]]',
        lambda: "[" * 300_000 + "]" * 300_000,
    ),
    int: (lambda: "9" * 2_000_000, lambda: "1e999999999", lambda: "1e14"),
}
"""Values in JSON that are large, by their type."""
ENOUGH = 16 << 20
"""Bytes of a log of many lines."""


SPECIAL: Mapping[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a file without end": _endless,
}
"""What may stand where a file belongs."""


def mutated(name: str, content: bytes, chance: random.Random) -> bytes:
    """The content of a file of this name with one to three changes, most of them such as its kind can have."""
    for _ in range(chance.randint(1, 3)):
        if chance.random() < 0.6:
            try:
                content = change_of(name)(content, chance)
                continue
            except Exception:  # an earlier change has left nothing that the libraries read
                pass
        content = chance.choice(BYTES)(content, chance)
    return content


def flipped(content: bytes, chance: random.Random) -> bytes:
    """The content with one bit changed."""
    at = chance.randrange(8 * len(content))
    changed = bytearray(content)
    changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def is_text(name: str) -> bool:
    """True if a file of this name can hold a heavy value."""
    return name.removesuffix(".gz").endswith((".jsonl", ".json", ".yaml", ".csv", ".toml", ".md"))


def weighted(name: str, content: bytes, chance: random.Random) -> bytes:
    """The content with a heavy value in one place, most often of the type that belongs there, or with many lines."""
    if name.endswith(".gz"):
        return gzip.compress(weighted(name.removesuffix(".gz"), gzip.decompress(content), chance), 1)
    lines = content.splitlines(keepends=True) if name.endswith((".jsonl", ".csv")) else [content]
    at = chance.randrange(len(lines))
    if len(lines) > 1 and chance.random() < 0.1:
        return b"".join([*lines[:at], lines[at] * (ENOUGH // len(lines[at])), *lines[at:]])
    with suppress(ValueError):
        value = json.loads(lines[at])
        places = [(holder, key) for holder, key in _places(value) if not isinstance(holder[key], bool | None)]
        mark = "\ue000here"
        if isinstance(value, dict) and (not places or chance.random() < 0.1):
            places = [(value, "further")]
        if places:
            holder, key = chance.choice(places)
            kind = type(holder[key]) if key in holder or isinstance(holder, list) else list
            holder[key] = mark
            lines[at] = json.dumps(value).replace(json.dumps(mark), _heavy(kind, chance)).encode() + b"\n"
            return b"".join(lines)
    marks = [i for i, byte in enumerate(content) if byte in b":,=\n"] or [0]
    place = chance.choice(marks) + 1
    return content[:place] + b" " + _heavy(chance.choice([*HEAVY]), chance).encode() + b"\n" + content[place:]


def _heavy(kind: type, chance: random.Random) -> str:
    kind = int if kind is float else kind if chance.random() < 0.8 else chance.choice([*HEAVY])
    return chance.choice(HEAVY[kind])()


def change_of(name: str) -> Change:
    """The change of values for a file of this name."""
    for ending, change in (
        *((".tar.gz", _member), (".gz", _unpacked), (".jsonl", _line), (".ndjson", _line), (".json", _document)),
        *((".csv", _cell), (".parquet", _table), (".safetensors", _tensors), (".npz", _zipped), (".pt", _zipped)),
        *((".yaml", _yaml), (".toml", _value), (".txt", _value), (".md", _value)),
    ):
        if name.endswith(ending):
            return change
    return _several


# ---------------------------------------------------------------- bytes


def _several(content: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 8, 64))):
        content = flipped(content, chance) if content else content
    return content


def _place(content: bytes, chance: random.Random) -> int:
    return chance.randrange(len(content) + 1)


def _cut(content: bytes, chance: random.Random) -> bytes:
    first, last = sorted((_place(content, chance), _place(content, chance)))
    return chance.choice((content[:first], content[first:], content[:first] + content[last:]))


def _repeated(content: bytes, chance: random.Random) -> bytes:
    first = _place(content, chance)
    piece = content[first : first + chance.choice((1, 20, 400))]
    return content[:first] + piece * chance.choice((2, 50)) + content[first:]


def _inserted(content: bytes, chance: random.Random) -> bytes:
    at = _place(content, chance)
    return content[:at] + _odd(chance).encode("utf-8", "surrogatepass") + content[at:]


def _swapped(content: bytes, chance: random.Random) -> bytes:
    a, b, c, d = sorted(_place(content, chance) for _ in range(4))
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


BYTES: tuple[Change, ...] = (_several, _several, _cut, _repeated, _inserted, _swapped)


# ---------------------------------------------------------------- values


def _odd(chance: random.Random) -> str:
    """A value that nobody expects, as JSON, some of it broken."""
    kind = chance.randrange(8)
    if kind == 0:
        return chance.choice(DEEP)
    value = chance.choice(TEXTS) if kind < 4 else chance.choice(NUMBERS)
    return json.dumps(value if kind < 6 else [value] if kind == 6 else {"a": value})


def _document(content: bytes, chance: random.Random) -> bytes:
    """JSON in which one value, or one name, is another."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return _value(content, chance)
    places = list(_places(value))
    holder, key = chance.choice(places) if places else ([value], 0)
    kind = chance.randrange(7)
    mark = "\ue000here"
    if kind == 0 and isinstance(holder, dict):
        return json.dumps(_renamed(value, holder, key, chance.choice(TEXTS))).encode()
    if kind == 1:
        holder.pop(key)
    elif kind == 2 and isinstance(holder, list):
        holder[:] = holder * chance.choice((2, 100))
    elif kind == 3 and isinstance(holder, dict):  # a name that occurs twice
        holder[mark] = 0
        return json.dumps(value).encode().replace(json.dumps(mark).encode(), json.dumps(key).encode())
    else:
        holder[key] = mark
        text = json.dumps(value if places else mark)
        return text.replace(json.dumps(mark), _odd(chance)).encode("utf-8", "surrogatepass")
    return json.dumps(value).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every holder of a value, with the value's key."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from _places(inner)


def _renamed(value: Any, holder: Any, key: Any, name: str) -> Any:
    if value is holder:
        return {name if k == key else k: v for k, v in value.items()}
    if isinstance(value, dict):
        return {k: _renamed(v, holder, key, name) for k, v in value.items()}
    return [_renamed(v, holder, key, name) for v in value] if isinstance(value, list) else value


def _line(content: bytes, chance: random.Random) -> bytes:
    lines = content.split(b"\n")
    at, kind = chance.randrange(max(1, len(lines) - 1)), chance.randrange(9)
    if kind == 0:
        lines.insert(at, lines[chance.randrange(len(lines))])
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        chance.shuffle(lines)
    elif kind == 3:  # a name on all lines
        try:
            name = json.dumps(chance.choice(list(json.loads(lines[at])))).encode()
            return content.replace(name, json.dumps(chance.choice(TEXTS)).encode())
        except (ValueError, TypeError, IndexError):
            return _cut(content, chance)
    else:
        lines[at] = _document(lines[at], chance).replace(b"\n", b" ")
    return b"\n".join(lines)


def _value(content: bytes, chance: random.Random) -> bytes:
    """Text in which what stands between two marks is another value."""
    marks = [i for i, byte in enumerate(content) if byte in b":,=\n"]
    if not marks:
        return _inserted(content, chance)
    first = chance.choice(marks) + 1
    ends = (i for i in range(first, len(content)) if content[i] in b",}]\n")
    return content[:first] + b" " + _odd(chance).encode("utf-8", "surrogatepass") + content[next(ends, len(content)) :]


def _yaml(content: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.7:
        return _value(content, chance)
    lines = content.split(b"\n")
    at = chance.randrange(len(lines))
    name, colon, _ = lines[at].partition(b":")
    odd = chance.choice(YAML).encode()
    lines[at] = name + colon + b" " + odd if colon and chance.random() < 0.8 else odd
    return b"\n".join(lines)


def _cell(content: bytes, chance: random.Random) -> bytes:
    rows = content.split(b"\n")
    at = chance.choice((0, chance.randrange(len(rows))))
    cells = rows[at].split(b",")
    which, kind = chance.randrange(len(cells)), chance.randrange(4)
    if kind == 0:
        cells.insert(which, cells[which])
    elif kind == 1:
        del cells[which]
    else:
        text = str(chance.choice((*TEXTS, *(n for n in NUMBERS if n != 10**400)))).encode("utf-8", "surrogatepass")
        cells[which] = text if kind == 2 else b'"' + text.replace(b'"', b'""') + b'"' * chance.randrange(2)
    rows[at] = b",".join(cells)
    return b"\n".join(rows)


# ---------------------------------------------------------------- what is packed


def _unpacked(content: bytes, chance: random.Random) -> bytes:
    inner = gzip.decompress(content)
    if chance.random() < 0.1:
        inner *= 2000
    return gzip.compress(_line(inner, chance), 1)


def _zipped(content: bytes, chance: random.Random) -> bytes:
    """A zip file of which one member is changed, or has another name."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        chosen, rename = chance.choice(old.namelist()), chance.random() < 0.3
        for name in old.namelist():
            inner = old.read(name)
            if name == chosen and inner and not rename:
                inner = chance.choice(BYTES)(inner, chance)
            new.writestr(chance.choice(("../x", "", name + "x")) if name == chosen and rename else name, inner)
    return made.getvalue()


def _member(content: bytes, chance: random.Random) -> bytes:
    """A packed tar of which one member has another content, name, kind or size."""
    made, source = io.BytesIO(), io.BytesIO(content)
    with tarfile.open(fileobj=source) as old, tarfile.open(fileobj=made, mode="w:gz", compresslevel=1) as new:
        chosen = chance.choice(old.getmembers())
        for member in old.getmembers():
            file = old.extractfile(member)
            inner = file.read() if file else b""
            if member is chosen:
                inner = _of_member(member, inner, chance)
            new.addfile(member, io.BytesIO(inner) if member.isreg() else None)
    return made.getvalue()


def _of_member(member: tarfile.TarInfo, inner: bytes, chance: random.Random) -> bytes:
    kind = chance.randrange(4)
    if kind == 0:
        member.name = chance.choice((f"../{CANARY}", f"/tmp/{CANARY}", "x" * 300, "a/../b", "-rf", "\x1b[2J", "é" * 90))
    elif kind == 1:
        member.type = chance.choice((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, b"S", b"Z"))
        member.linkname, member.size, inner = chance.choice(("/etc/passwd", "..", member.name, "")), 0, b""
    elif kind == 2:
        member.mode, member.uid, member.mtime = chance.choice((0, 0o7777)), 2**20, chance.choice((0, 2**33))
    else:
        inner = chance.choice(BYTES)(inner, chance) if inner else b"x"
        member.size = len(inner)
    return inner


def _table(content: bytes, chance: random.Random) -> bytes:
    """A Parquet file with another column, name, type or value, and the metadata that it had."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(io.BytesIO(content))
    at, kind = chance.randrange(table.num_columns), chance.randrange(6)
    names, values = table.column_names, table.column(at).to_pylist()
    if kind == 0:
        names[at] = chance.choice((*names, "", "x", "a.b", '"', TEXTS[5]))
        table = table.rename_columns(names)
    elif kind == 1:
        table = table.remove_column(at)
    elif kind == 2:
        table = pyarrow.concat_tables([table] * chance.choice((2, 50)))
    else:
        if kind == 3:
            numbers = [float(n) for n in NUMBERS if n is not None and abs(n) < 2**64]
            plain = isinstance(values[0], int | float)
            values[chance.randrange(len(values))] = chance.choice(numbers if plain else (*TEXTS[:3], *TEXTS[5:], None))
        elif kind == 4:
            values = [chance.choice(({"a": value}, [value])) for value in values[:1]] * len(values)
        else:
            values = [chance.choice((b"\xff\x00", None, True, 2**60)) for _ in values[:1]] * len(values)
        table = table.set_column(at, names[at], pyarrow.array(values))
    made = io.BytesIO()
    pyarrow.parquet.write_table(table, made)
    return made.getvalue()


def _tensors(content: bytes, chance: random.Random) -> bytes:
    """A safetensors file with another header, or weights that are no numbers."""
    length = struct.unpack("<Q", content[:8])[0] if len(content) > 8 else len(content)
    if length > len(content) - 8:
        return _several(content, chance)
    header, body = content[8 : 8 + length], content[8 + length :]
    if chance.random() < 0.2:
        return content[: 8 + length] + chance.choice((b"\xff", b"\x00", b"\x7f")) * len(body)
    header = _document(header, chance)
    size = len(header) if chance.random() < 0.8 else chance.choice((0, 2**63, 9 * 10**7, len(header) + 1))
    return struct.pack("<Q", size) + header + body
