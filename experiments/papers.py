"""The papers whose methods Halfway implements: `papers.toml` has titles, names of the methods, and their YAML."""

import re
from pathlib import Path

import msgspec


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A paper and what implements its method here.

    Attributes:
        names: names of its method, the best known first.
        address: its number on arXiv, or the address of its page.
        parts: controllers and settings that implement it.
        yaml: a recipe's lines that use its method.
    """

    names: tuple[str, ...]
    title: str
    address: str
    parts: tuple[str, ...]
    yaml: str

    @property
    def url(self) -> str:
        return self.address if "://" in self.address else f"https://arxiv.org/abs/{self.address}"

    @property
    def source(self) -> str:
        """The address in the form of a citation."""
        return self.address.removeprefix("https://") if "://" in self.address else f"arXiv {self.address}"


class _File(msgspec.Struct):
    papers: tuple[Paper, ...]


PAPERS = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_File).papers


def plainly(name: str) -> str:
    """Strip case, spaces and punctuation from a name, for comparison."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find_papers(query: str) -> list[Paper]:
    """Find papers by a name of a method, a number on arXiv or words of a title.

    Example:
        >>> [paper.names[0] for paper in find_papers("arXiv:2506.02177v1")]
        ['GRESO']
    """
    number = re.search(r"\d{4}\.\d{4,5}", query)
    if number:
        return [paper for paper in PAPERS if paper.address == number[0]]
    wanted = plainly(query)
    named = [paper for paper in PAPERS if wanted in map(plainly, paper.names)]
    return named or [paper for paper in PAPERS if len(wanted) > 8 and wanted in plainly(paper.title)]


def papers_of(part: str) -> list[Paper]:
    """Find the papers that a controller, or a group of settings, implements."""
    return [paper for paper in PAPERS if part in paper.parts]
