"""Checks of the fields common to all kinds of files: names and seeds."""

import re
from collections.abc import Sequence
from pathlib import Path

from halfway.curriculum import require

CHARACTERS = "use letters, digits, '.', '_' and '-'"


def require_name(name: str) -> None:
    """Raise UserError unless `name` is a path below the folder `output`, such as "study/arm"."""
    require(re.fullmatch(r"[\w.-]+(/[\w.-]+)*", name) is not None, "name", name, CHARACTERS)
    require(not {".", ".."} & set(name.split("/")), "name", name, "stay inside the folder `output`")


def name_of(path: Path | str) -> str:
    """The default name of a configuration: the stem of its file, with '-' for invalid characters."""
    return re.sub(r"[^\w.-]+", "-", Path(path).stem).strip("-.") or "run"


def is_label(name: str) -> bool:
    """True if this is a valid name of an arm or an oracle, which also names a folder."""
    return re.fullmatch(r"[\w.-]+", name) is not None and name not in (".", "..")


def require_seeds(seeds: Sequence[int]) -> None:
    """Raise UserError unless there is at least one seed, all differ, and none is negative."""
    unique = len(set(seeds)) == len(seeds) > 0
    require(unique and min(seeds) >= 0, "seeds", list(seeds), "give different numbers from 0 on")
