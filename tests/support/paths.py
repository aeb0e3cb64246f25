"""Paths for tests that start programs or read recipes; tiny overrides of recipes; examples on pages."""

import os
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DRIVERS = REPOSITORY / "tests" / "support" / "drivers"
# PYTHONPATH of child processes: this checkout's packages, and the modules that tests share.
IMPORTABLE = os.pathsep.join(str(REPOSITORY / folder) for folder in ("src", "tests/support"))


def count_lines(path: Path) -> int:
    """The whole lines of a log that may still be written, 0 before there is one."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def markdown_pages() -> list[Path]:
    """All pages of the repository, without those that a build has copied."""
    parts = {path: path.relative_to(REPOSITORY).parts for path in REPOSITORY.rglob("*.md")}
    return [path for path, names in parts.items() if names[0] != "build" and not any(n[0] == "." for n in names)]


TINY = [
    "problems.train=12",  # two of each of the six strata of operator sheets
    "rollouts.num_rollouts=4",
    "rollouts.max_response_tokens=48",
    "fill.groups=3",
    "fill.request_factor=1",
    "fill.request_groups=0",
    "fill.min_request=1",
    "fill.max_rounds=2",
    "evaluation.points=1",
    "evaluation.problems=2",
    "evaluation.samples=1",
    "budget.steps=2",
    "tracking.mlflow=false",
    "threads=1",
]


PAGES = REPOSITORY / "docs" / "hosts"


def example(page: str, language: str = "python", heading: str = "") -> str:
    """The only code block in a language before a page's first heading of level 2, or under the given heading."""
    text = (PAGES / page).read_text()
    under = text.split(f"\n## {heading}\n")[1].split("\n## ")[0] if heading else text.split("\n## ")[0]
    [code] = re.findall(rf"^```{language}\n(.*?)^```", under, re.DOTALL | re.MULTILINE)
    return str(code)
