"""Problems of a data set on the Hugging Face hub, or in its local cache. No code of a data set is run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from halfway.curriculum import UserError, require
from halfway.curriculum.support.extras import load_extra, one_line
from halfway.curriculum.tasks.data_files import in_order, kind_of
from halfway.curriculum.tasks.files import Rows
from halfway.curriculum.tasks.sources import Source

CONVERTED = "refs/convert/parquet"
"""The revision in which the hub keeps data sets, also such as need a script, as Parquet."""


@dataclass(frozen=True)
class Hub(Rows):
    """Rows of a data set on the Hugging Face hub; what its local cache holds is read without a network.

    Attributes:
        name: owner/name.
        split: the split to train on.
        config: a configuration that the data set's README names, such as GSM8K's "main"; empty = its default or first.
        revision: a branch, a tag or, so that later runs read the same rows, a commit.
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
        patterns = _patterns(about / "README.md", self)
        folder = self._fetch(patterns)
        names = {path: str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        found = [path for path, name in names.items() if kind_of(path)[0] and any(_fits(name, p) for p in patterns)]
        if not found and (about / script).exists():
            raise UserError(
                f"hub: {self.name} is made by a script, which is not run; try revision: {CONVERTED}, or give "
                "its rows as a Parquet file"
            )
        if not found:
            where = f" in config {self.config!r}" if self.config else ""
            raise UserError(
                f"hub: {self.name} at {self.revision} has no data files of split {self.split!r}{where} here; correct "
                "split, config or revision, or load it once where there is a network"
            )
        return in_order(found)

    def _fetch(self, patterns: list[str]) -> Path:
        """The local folder of the data set, with the files that fit; what the cache holds if there is no network."""
        hub = load_extra("huggingface_hub", f"the data set {self.name}")
        options: dict[str, Any] = {"repo_type": "dataset", "revision": self.revision, "allow_patterns": patterns}
        try:
            return Path(hub.snapshot_download(self.name, **options))
        except hub.errors.LocalEntryNotFoundError:
            why = "is not in the local cache, and the hub does not answer; check the network and HF_HUB_OFFLINE"
        except hub.errors.GatedRepoError:
            why = "must be asked for; accept its terms on its page, then `hf auth login`"
        except hub.errors.RevisionNotFoundError:
            why = f"has no revision {self.revision!r}; correct hub.revision"
        except hub.errors.RepositoryNotFoundError:
            why = "is not on the hub, or private; correct hub.name, or `hf auth login`"
        except (OSError, ValueError, RuntimeError) as error:
            why = f"could not be fetched ({one_line(error)}); check hub.name and the network"
        raise UserError(f"hub: {self.name} {why}")


def _fits(name: str, pattern: str) -> bool:
    """Whether a file's name fits a pattern, in which ** also stands for no folder."""
    return fnmatch(name, pattern) or fnmatch(name, pattern.replace("**/", ""))


def _patterns(readme: Path, wanted: Hub) -> list[str]:
    """The files of a split: those that the README says, else those that are named or in a folder named by it."""
    configs = _configs(readme)
    names = [str(each.get("config_name", "")) for each in configs]
    if wanted.config or configs:
        first = next((each for each in configs if each.get("default")), configs[0] if configs else {})
        chosen = next((each for each in configs if each.get("config_name") == wanted.config), None)
        if wanted.config and configs and chosen is None:
            raise UserError(f"hub.config: {wanted.config!r} is not one of {wanted.name}: {', '.join(names)}")
        said = _said(chosen or ({} if wanted.config else first), wanted.split)
        if said:
            return said
    inside = f"{wanted.config}/" if wanted.config else ""
    return [f"{inside}{where}{wanted.split}{rest}" for where in ("", "*/", "*[-_.]") for rest in ("[-_.]*", "/*")]


def _said(config: Mapping[str, Any], split: str) -> list[str]:
    """The patterns of a split in a configuration of a README; none if it names no files."""
    stated = config.get("data_files")
    if not stated:
        return []
    parts: Iterable[Any] = stated if isinstance(stated, list) else [stated]
    by_split = {str(part.get("split", "train")): part.get("path") for part in parts if isinstance(part, Mapping)}
    loose = [part for part in parts if isinstance(part, str)]
    if loose:
        by_split["train"] = loose
    if split not in by_split:
        raise UserError(f"hub.split: {split!r} is not one of {', '.join(sorted(by_split))}; correct it")
    paths = by_split[split]
    folder = str(config.get("data_dir") or "").strip("/")
    listed = [str(path) for path in (paths if isinstance(paths, list) else [paths])]
    return [f"{folder}/{path}" if folder else path for path in listed]


def _configs(readme: Path) -> list[Mapping[str, Any]]:
    """The configurations that a README's head names."""
    head = readme.read_text(errors="replace").split("\n---", 1)[0] if readme.exists() else ""
    if not head.startswith("---"):
        return []
    yaml = load_extra("yaml", "a data set's README")
    try:
        found = yaml.safe_load(head.removeprefix("---"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{readme}: its head is not YAML ({one_line(error)}); give the data as files") from error
    configs = found.get("configs") if isinstance(found, dict) else None
    return [each for each in configs if isinstance(each, Mapping)] if isinstance(configs, list) else []
