"""Tests that a page names exist."""

import re

from paths import REPOSITORY

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
PAGE = REPOSITORY / "experiments" / "results" / "review.md"


def test_every_test_that_the_page_names_exists() -> None:
    named = NAMED.findall(PAGE.read_text())
    assert len(named) > 40
    gone = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (REPOSITORY / path).read_text()]
    assert not gone
