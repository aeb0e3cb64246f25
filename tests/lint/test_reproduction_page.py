"""The pages of what is reproduced are what their command writes."""

from halfway.experiments.reproduction.paper_rows import papers
from halfway.experiments.results.what_is_reproduced.pages import FOLDER, pages, pictures

GROUNDS = ("ground.md", "ground_greso_prefix_sampling.md", "ground_pros_propel.md")


def test_the_pages_and_their_pictures_are_not_stale() -> None:
    for name, text in {**pages(), **pictures()}.items():
        assert (FOLDER / name).read_text() == text, f"{FOLDER / name} is stale: run `make reproduction`"
    assert {path.name for path in FOLDER.glob("*.svg")} == {*pictures()}
    assert {path.name for path in FOLDER.glob("*.md")} == {*GROUNDS, *pages()}


def test_differences_are_described_in_few_words() -> None:
    assert sum(len(paper.differs.split()) for paper in papers()) <= 600
