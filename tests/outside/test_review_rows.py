"""The tables of cases name tests that exist, and all reports that the tests name."""

import re
from pathlib import Path

from paths import REPOSITORY

HERE = Path(__file__).parent
REPORT = re.compile(r"\b[\w.-]+/[\w.-]+#\d+")


def test_the_tests_of_the_rows_exist() -> None:
    named = re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?`", (HERE / "README.md").read_text().split("| row |")[1])
    files = {path.name: path.read_text() for path in (REPOSITORY / "tests").rglob("test_*.py")}
    missing = [(file, test) for file, test in named if test and f"def {test}(" not in files.get(file, "")]
    assert len(named) > 50 and not missing and all(file in files for file, _ in named)


def test_every_report_of_a_case_is_in_the_documentation() -> None:
    page = (REPOSITORY / "docs" / "reports_tried.md").read_text()
    page = re.sub(r"([\w.-]+/[\w.-]+)#(\d+)((?:, #\d+)+)", _spelled_out, page)
    told = set(REPORT.findall(page))
    used = {report for path in HERE.glob("test_*.py") for report in REPORT.findall(path.read_text())}
    assert len(used) > 20 and not used - told


def _spelled_out(found: "re.Match[str]") -> str:
    numbers = [found[2], *re.findall(r"#(\d+)", found[3])]
    return ", ".join(f"{found[1]}#{number}" for number in numbers)
