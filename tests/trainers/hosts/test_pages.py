"""The pages about hosts: their examples run as they stand, only shorter."""

import re
from pathlib import Path

import pytest
from paths import REPOSITORY

PAGES = REPOSITORY / "docs" / "hosts"


def example(page: str) -> str:
    """The one block of Python on a page."""
    [code] = re.findall(r"^```python\n(.*?)^```", (PAGES / page).read_text(), re.DOTALL | re.MULTILINE)
    return str(code)


def shortened(code: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    return code


def test_trl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trl")
    code = shortened(
        example("trl.md"),
        ('"runs/trl"', f"{str(tmp_path)!r}, use_cpu=True, bf16=False, report_to=[]"),
        ("max_steps=20", "max_steps=2"),
    )
    monkeypatch.chdir(REPOSITORY)
    exec(compile(code, "trl.md", "exec"), {})
    assert len((tmp_path / "halfway" / "steps.jsonl").read_text().splitlines()) == 2


def test_every_page_is_in_the_table() -> None:
    table = (PAGES / "README.md").read_text()
    assert all(f"({page.name})" in table for page in PAGES.glob("*.md") if page.name != "README.md")
