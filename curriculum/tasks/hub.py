"""Problems of a data set on the Hugging Face hub, or in its local cache. Never runs code of a data set."""

import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from halfway.curriculum import UserError, require
from halfway.curriculum.support import yaml_bases
from halfway.curriculum.support.atomic import reading
from halfway.curriculum.support.extras import blaming, load_extra, one_line
from halfway.curriculum.tasks.data_files import ABOUT, KINDS, SPLITS, in_order, kind_of, require_all
from halfway.curriculum.tasks.files import Rows
from halfway.curriculum.tasks.sources import Source

CONVERTED = "refs/convert/parquet"
"""The revision in which the hub keeps data sets as Parquet, even those made by a script."""
MOST_README, LONGEST_NAME = 1 << 20, 1 << 14
"""Bytes of a README to read, for its head, and of a file that holds a commit or a token."""
MOST_STARS = 3
"""Most ** in a pattern: each multiplies the time of the search by the number of folders."""


class UnreachableError(UserError):
    """A data set that is neither in the local cache nor reachable on the hub."""


@dataclass(frozen=True)
class Hub(Rows):
    """Rows of a data set on the Hugging Face hub; files in its local cache need no network.

    Attributes:
        name: owner/name.
        split: the split to train on.
        config: a configuration from the data set's README, such as GSM8K's "main"; empty = its default or first.
        revision: a branch, a tag or a commit; with a commit, later runs read the same rows.
        heldout_split: the split of the held-out problems; empty = they are taken from `split`.
    """

    name: str
    split: str = "train"
    config: str = ""
    revision: str = "main"
    heldout_split: str = ""

    def __post_init__(self) -> None:
        require(self.name.count("/") == 1, "hub.name", self.name, "give owner/name, as on the hub")
        super().__post_init__()

    def heldout(self) -> Source | None:
        return replace(self, split=self.heldout_split, heldout_split="") if self.heldout_split else None

    @property
    def label(self) -> str:
        return self.name.partition("/")[2]

    def files(self) -> list[Path]:
        script = f"{self.label}.py"
        about = self._fetch(["README.md", script])
        readme = about / "README.md"
        patterns, said = _patterns(readme, self)
        # The hub's client uses fnmatch, which needs a folder for **/
        folder = self._fetch([*patterns, *(pattern.replace("**/", "") for pattern in patterns)])
        found = _data_files(folder, patterns)
        if not found and not said and self.split == "train":  # no file is named by a split: all are for training
            folder = self._fetch([f"*{ending}*" for ending in KINDS])
            found = _data_files(folder, ["**/*"])
            if any(SPLITS.search(str(path.relative_to(folder)).lower()) for path in found):
                found = []
        sets = {str(path.parent.relative_to(folder)).removesuffix(self.split).strip("/.") or "." for path in found}
        if len(sets) > 1 and not said and not self.config and (self.revision == CONVERTED or not readme.exists()):
            raise UserError(
                f"hub.config: {self.name} has the configurations {', '.join(sorted(sets))}; name one of them"
            )
        if gone := next((path for path in found if not path.exists()), None):
            raise UserError(f"hub: {self.name}: {gone.name} is not in the cache; load it once with a network")
        require_all(f"hub: {self.name} at {self.revision}", found)
        if not found and (about / script).exists():
            raise UserError(
                f"hub: {self.name} is made by a script, which is not run; try revision: {CONVERTED}, or give "
                "its rows as a Parquet file"
            )
        if not found:
            where = f" in config {self.config!r}" if self.config else ""
            raise UserError(
                f"hub: {self.name} at {self.revision} has no data files of split {self.split!r}{where} here; correct "
                "split, config or revision, or load it once with a network"
            )
        return in_order(found)

    def _fetch(self, patterns: list[str]) -> Path:
        """Download the matching files; returns the local folder. Without a network, the folder has the cached files."""
        names = ("huggingface_hub", "huggingface_hub.errors")  # it imports none by itself
        hub, errors = (load_extra(name, f"the data set {self.name}") for name in names)
        options: dict[str, Any] = {"repo_type": "dataset", "revision": self.revision, "allow_patterns": patterns}
        check_cache("datasets", self.name, self.revision)
        try:
            return Path(hub.snapshot_download(self.name, **options))
        except errors.LocalEntryNotFoundError:
            raise UnreachableError(
                f"hub: {self.name} is not in the local cache, and the hub does not answer; check the network and "
                "HF_HUB_OFFLINE"
            ) from None
        except errors.GatedRepoError:
            why = "needs access; accept its terms on its page, then `hf auth login`"
        except errors.RevisionNotFoundError:
            why = f"has no revision {self.revision!r}; correct hub.revision"
        except errors.RepositoryNotFoundError:
            why = "is not on the hub, or private; correct hub.name, or `hf auth login`"
        except (OSError, ValueError, RuntimeError) as error:
            why = f"could not be fetched ({one_line(error)}); check hub.name and the network"
        raise UserError(f"hub: {self.name} {why}")


def check_cache(kind: Literal["datasets", "models"], name: str, revision: str = "main") -> None:
    """Check the cache's version of a data set or a model, and the token: the client reads both whole, even pipes."""
    from huggingface_hub import constants

    version = Path(constants.HF_HUB_CACHE, f"{kind}--{name.replace('/', '--')}", "refs", revision)
    for path in (version, Path(constants.HF_TOKEN_PATH)):
        with reading(path, "remove it"):
            if path.exists() and path.stat().st_size > LONGEST_NAME:
                raise ValueError("is no hash of a commit, and no token")


def _data_files(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """List the matching data files of the folder, including links to files that are not downloaded."""
    for pattern in patterns:
        inside = not Path(pattern).is_absolute() and ".." not in Path(pattern).parts
        require(inside, "hub: data_files of its README", pattern, "only files of the data set are read")
        few = pattern.count("**") <= MOST_STARS
        require(few, "hub: data_files of its README", pattern, f"give a pattern with ** at most {MOST_STARS} times")
    names = {name for pattern in patterns for name in glob.glob(pattern, root_dir=folder, recursive=True)}
    files = [folder / name for name in names]
    return [path for path in files if kind_of(path)[0] and path.name not in ABOUT and not path.is_dir()]


def _patterns(readme: Path, wanted: Hub) -> tuple[list[str], bool]:
    """Patterns of a split's files, and whether the README gives them; otherwise file or folder names show the split."""
    configs = _configs(readme)
    names = [str(each.get("config_name", "")) for each in configs]
    if wanted.config or configs:
        first = next((each for each in configs if each.get("default")), configs[0] if configs else {})
        chosen = next((each for each in configs if each.get("config_name") == wanted.config), None)
        if wanted.config and configs and chosen is None:
            raise UserError(f"hub.config: {wanted.config!r} is not one of {wanted.name}: {', '.join(names)}")
        config = chosen or ({} if wanted.config else first)
        if said := _read_patterns(config, wanted.split):
            return said, True
        if folder := str(config.get("data_dir") or "").removeprefix("./").strip("/"):
            return [f"{folder}/{pattern}" for pattern in _usual(wanted.split)], True
    inside = f"{wanted.config}/" if wanted.config else ""
    return [f"{inside}{pattern}" for pattern in _usual(wanted.split)], False


NAMES = {"validation": ("validation", "valid", "val", "dev"), "test": ("test", "eval"), "train": ("train", "training")}
"""Words for a split in names of files."""


def _usual(split: str) -> list[str]:
    names = NAMES.get(split, (split,))
    return [f"**/{part}" for name in names for part in (f"{name}[-_.]*", f"*[-_.]{name}[-_.]*", f"{name}/*")]


def _read_patterns(config: Mapping[str, Any], split: str) -> list[str]:
    """Read the patterns of a split from a README's configuration; none if it names no files."""
    stated = config.get("data_files")
    if not stated:
        return []
    parts: Iterable[Any] = stated if isinstance(stated, list) else [stated]
    by_split: dict[str, list[str]] = {}
    for part in parts:
        entry = part if isinstance(part, Mapping) else {"path": part}
        paths = entry.get("path")
        listed = paths if isinstance(paths, list) else [paths]
        by_split.setdefault(str(entry.get("split", "train")), []).extend(str(path) for path in listed)
    if split not in by_split:
        raise UserError(f"hub.split: {split!r} is not one of {', '.join(sorted(by_split))}; correct it")
    folder = str(config.get("data_dir") or "").removeprefix("./").strip("/")
    return [f"{folder}/{path}" if folder else path for path in (each.removeprefix("./") for each in by_split[split])]


def _configs(readme: Path) -> list[Mapping[str, Any]]:
    """Read the configurations in a README's head."""
    with reading(readme, "load the data set again"):
        text = b""
        if readme.exists():
            with readme.open("rb") as file:
                text = file.read(MOST_README)
    head = text.decode("utf-8-sig", "replace").split("\n---", 1)[0]
    if not head.startswith("---"):
        return []
    yaml = load_extra("yaml", "a data set's README")
    remedy = "give the data as files"
    with blaming(f"{readme}: its head is not YAML", remedy, yaml.YAMLError, ValueError, LookupError, RecursionError):
        found = yaml_bases.load(head.removeprefix("---").encode())
    configs = found.get("configs") if isinstance(found, dict) else None
    return [each for each in configs if isinstance(each, Mapping)] if isinstance(configs, list) else []
