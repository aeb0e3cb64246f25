"""Reads YAML files and merges each over its `base`; the results are plain, unchecked mappings.

Only reading a file needs PyYAML. A file may come from a stranger, so its bytes, its depth and its values are limited;
values behind an alias count at each use.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.support.registry import unknown

REPOSITORY = Path(__file__).resolve().parents[2]
"""The checkout or the installed package, with recipes and starting models."""

MOST_BYTES, MOST_VALUES, DEEPEST, MOST_BASES, MOST_DIGITS = 1 << 18, 50_000, 50, 20, 100
TEXT = "tag:yaml.org,2002:str"
TAGS = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map"))
"""The kinds of values that a file may hold."""

TABLES = (".jsonl", ".csv", ".tsv", ".parquet")
"""Endings of files of problems."""
Prepare = Callable[[Mapping[str, Any], Path], dict[str, Any]]
"""Changes the content of each file before the merge, given the file's folder."""

# Mappings with one alternative: another one replaces the lower layer's choice instead of adding to it. Those with two
# words do so in every part of a study too, such as `solver.rollouts.engine`.
ALTERNATIVES = frozenset(
    {
        *(("budget",), ("costs",), ("domain",), ("environment",)),
        *(("problems", "source"), ("problems", "also"), ("problems", "generated"), ("rollouts", "engine")),
        *(("solver", "environment"), ("repository", "box"), ("repository_archives", "box")),
    }
)


def candidates(path: Path, folder: Path) -> tuple[Path, ...]:
    """List the places that a path in a file of `folder` may mean, in order of preference."""
    return (folder / path, Path.cwd() / path, REPOSITORY / path)


def read(path: Path, prepare: Prepare | None = None) -> dict[str, Any]:
    """Read the mapping in a YAML file, merged over its `base`.

    A relative `base` is searched next to the file, then in the current folder, then in the repository.

    Raises:
        UserError: if the file is missing, is not a YAML mapping, or names itself as base.
    """
    return _read(path.expanduser(), prepare, ())


def complete(raw: Mapping[str, Any], prepare: Prepare | None = None) -> dict[str, Any]:
    """Like `read`, for a mapping from Python instead of a file in the current folder."""
    return _with_base(prepare(raw, Path()) if prepare else raw, Path(), prepare, ())


def _read(path: Path, prepare: Prepare | None, above: tuple[Path, ...]) -> dict[str, Any]:
    resolved = Path(os.path.realpath(path))  # `resolve` raises on a link to itself
    if resolved in above:
        raise UserError(f"base: {str(path)!r} names itself as base, through {above[-1].name}; remove one `base:`")
    if len(above) > MOST_BASES:
        raise UserError(f"base: {str(path)!r} is the base of more than {MOST_BASES} files in a row; merge some of them")
    content = parse(path)
    raw = prepare(content, path.parent) if prepare else content
    return _with_base(raw, path.parent, prepare, (*above, resolved))


def _with_base(
    raw: Mapping[str, Any], folder: Path, prepare: Prepare | None, above: tuple[Path, ...]
) -> dict[str, Any]:
    """Merge a run over its `base`, or a comparison over another comparison.

    Otherwise a comparison (which has `arms`) keeps `base`, the run that its arms share, fully read.
    """
    upper = {k: v for k, v in raw.items() if k != "base"}
    match raw.get("base"):
        case None:
            return upper
        case str(name):
            lower = _read(base_file(name, folder), prepare, above)
            if "arms" in lower:
                return merge(lower, upper)
        case Mapping() as inline if "arms" in raw:
            lower = _with_base(inline, folder, prepare, above)
        case other:
            raise UserError(f"base: {other!r} is not acceptable; give the path of a YAML file")
    return upper | {"base": lower} if "arms" in raw else merge(lower, upper)


def base_file(name: str, folder: Path) -> Path:
    """Find the file of a `base`. Raises UserError if it is not found."""
    path = Path(name).expanduser()
    for candidate in candidates(path, folder):
        if candidate.exists():
            return candidate
    places = " nor in ".join(dict.fromkeys(str(place.resolve()) for place in (folder, Path.cwd(), REPOSITORY)))
    raise UserError(f"base: {name!r} is not a file{'' if path.is_absolute() else f' in {places}'}; correct the path")


def parse(path: Path) -> dict[str, Any]:
    """Parse the mapping in one YAML file. "3e-4" is a number here, unlike in plain YAML 1.1."""
    import yaml

    if path.suffix.lower() in TABLES:
        raise UserError(
            f"{path}: is not a recipe; if it holds problems, `halfway init own.yaml --data {path}` writes a recipe"
        )
    try:
        content = load(_text(path))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise UserError(f"{path}: is not readable as YAML: {line}{error.problem}") from None
    except (yaml.YAMLError, ValueError, LookupError, OSError) as error:  # PyYAML's constructors raise the second, third
        reason = str(error) if isinstance(error, UserError) else f"is not readable as YAML: {one_line(error)}"
        raise UserError(f"{path}: {reason}") from None
    if not isinstance(content, dict) or not content:
        raise UserError(f"{path}: holds a list or nothing; give a mapping of fields")
    return {str(k): v for k, v in content.items()}


def nodes(path: Path) -> Any:
    """Parse a file into nodes with line numbers. `parse` must be able to read it."""
    loader = _loader()(_text(path))
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _text(path: Path) -> bytes:
    """Read the bytes of a regular file. Raises UserError for anything else, such as a pipe, and for long files."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise UserError(f"is {'a folder' if stat.S_ISDIR(mode) else 'not a regular file'}; give a YAML file")
    with path.open("rb") as file:
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise UserError(f"has more than {MOST_BYTES >> 10} KiB; move data to separate files")
    return text


def load(text: bytes) -> Any:
    """Load YAML text. Raises UserError if it is too large, too deep or refers to itself."""
    loader = _loader()(text)
    try:
        node = loader.get_single_node()
        _require_small(node)
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _require_moderate(count: int, depth: int) -> None:
    if count > MOST_VALUES:
        raise UserError(f"has more than {MOST_VALUES:,} values, counted at each use of an alias; write fewer")
    if depth > DEEPEST:  # if the file itself is flatter, an alias refers to a node that contains it
        raise UserError(f"is nested more than {DEEPEST} levels deep, or refers to itself; remove the nesting")


def _require_small(root: Any) -> None:
    """Check number and depth of the values; those behind an alias count at each use."""
    waiting, count = [(root, 1)], 0
    while waiting:
        node, depth = waiting.pop()
        count += 1
        _require_moderate(count, depth)
        if node is not None and not isinstance(node.value, str):
            parts = node.value if node.id == "sequence" else [part for pair in node.value for part in pair]
            waiting += [(part, depth + 1) for part in parts]


NUMBER = re.compile(
    r"""^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?(?:[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)
    |[-+]?\.[0-9_]+(?:[eE][-+]?[0-9]+)?
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
"""A number with a fraction or an exponent, as YAML 1.2 writes it."""


@cache
def _loader() -> type[Any]:
    """Make PyYAML's safe loader with YAML 1.2's numbers, no dates, and an error for a duplicate key."""
    import yaml

    base: Any = yaml.SafeLoader

    def refuse(problem: str, node: Any) -> yaml.constructor.ConstructorError:
        return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)

    class Loader(base):  # type: ignore[misc]
        depth = count = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            self.count += 1
            _require_moderate(self.count, self.depth)
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys: set[Any] = set()
            for key_node, _ in node.value:
                if key_node.tag == "tag:yaml.org,2002:merge":
                    continue
                if key_node.id != "scalar":
                    raise refuse("found a list or a mapping as a key", key_node)
                key = key_node.value
                if key in keys:
                    raise refuse(f"found duplicate key {key}", key_node)
                keys.add(key)
            self.flatten_mapping(node)
            # A name is always text; YAML 1.1 reads `off` as false and `010` as 8.
            node.value = [(yaml.ScalarNode(TEXT, key.value, key.start_mark), value) for key, value in node.value]
            mapping: dict[Any, Any] = super().construct_mapping(node, deep)
            return mapping

        def construct_yaml_int(self, node: Any) -> int:
            if len(node.value) > MOST_DIGITS:
                raise refuse(f"found an integer of more than {MOST_DIGITS} digits", node)
            return int(super().construct_yaml_int(node))

    Loader.yaml_constructors = {
        **{tag: base.yaml_constructors[tag] for tag in TAGS},
        None: base.yaml_constructors[None],
        "tag:yaml.org,2002:int": Loader.construct_yaml_int,
    }
    replaced = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:float")
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in replaced]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", NUMBER, list("-+0123456789."))
    return Loader


def merge(lower: Mapping[str, Any], upper: Mapping[str, Any], at: tuple[str, ...] = ()) -> dict[str, Any]:
    """`upper` laid over `lower`: mappings are merged key by key, everything else is replaced.

    Example:
        >>> merge({"learner": {"lr": 1, "eps": 2}, "budget": {"steps": 3}},
        ...       {"learner": {"lr": 4}, "budget": {"rollouts": 5}})
        {'learner': {'lr': 4, 'eps': 2}, 'budget': {'rollouts': 5}}
    """
    alternative = at in ALTERNATIVES or at[-2:] in ALTERNATIVES
    if alternative and not set(upper) <= set(lower):
        return dict(upper)
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        if key == "controllers" and isinstance(below, list) and isinstance(value, Mapping):
            merged[key] = merge_entries(below, value)
        elif isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(below, value, (*at, key))
        else:
            merged[key] = value
    return merged


def merge_entries(entries: Sequence[Any], changes: Mapping[str, Any]) -> list[Any]:
    """Change options of listed members by label; no member can be added this way, so the list stays in order."""
    labels = [label_of(entry) for entry in entries]
    others = sorted(set(map(str, changes)) - set(labels))
    if others:
        raise unknown(f"controllers.{others[0]}", others[0], labels)
    return [_merge_entry(entry, label, changes.get(label)) for entry, label in zip(entries, labels, strict=True)]


def _merge_entry(entry: Any, label: str, change: Any) -> Any:
    if change is None:
        return entry
    options = entry[label] if isinstance(entry, Mapping) else {}
    return {label: merge(options or {}, change) if isinstance(change, Mapping) else change}


def label_of(entry: Any) -> str:
    """The label of a list entry that is a name or `{label: options}`."""
    return str(next(iter(entry), "")) if isinstance(entry, Mapping) else str(entry)
