"""The page of what is reproduced is what its command writes."""

from halfway.experiments.reproduction.page import FOLDER, page, pictures
from halfway.experiments.reproduction.rows import papers


def test_the_page_and_its_pictures_are_not_stale() -> None:
    for name, text in {"README.md": page(), **pictures()}.items():
        assert (FOLDER / name).read_text() == text, f"{FOLDER / name} is stale: run `make reproduction`"
    assert {path.name for path in FOLDER.glob("*.svg")} == {*pictures()}


def test_what_differs_is_told_in_few_words() -> None:
    assert sum(len(paper.differs.split()) for paper in papers()) <= 600
