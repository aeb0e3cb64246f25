"""SECURITY.md: each row of what may come from a stranger names tests that exist and test something."""

import re

from paths import REPOSITORY

KINDS = (
    *("recipe", "data", "pool", "log", "folder of a run", "checkpoint", "model", "adapter", "archive", "repository"),
    *("response", "server"),
)


def rows() -> dict[str, list[str]]:
    """What may come from a stranger -> the test files of its row."""
    page = (REPOSITORY / "SECURITY.md").read_text()
    _, _, *lines = re.findall(r"^\|.*\|$", page[page.index("| what may come from a stranger") :], re.MULTILINE)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert all(len(row) == 3 and row[1] for row in cells)
    return {row[0]: re.findall(r"`([^`]+)`", row[2]) for row in cells}


def test_every_row_names_tests_that_exist() -> None:
    named = rows()
    assert [kind for kind in KINDS if not any(kind in row for row in named)] == []
    assert [row for row, files in named.items() if not files] == []
    for file in {file for files in named.values() for file in files}:
        assert re.search(r"^def test_", (REPOSITORY / "tests" / file).read_text(), re.MULTILINE), file
