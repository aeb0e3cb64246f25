"""What a release needs is in order: the version said once more, the changelog's form, and how pages say to install."""

import re

import yaml
from paths import REPOSITORY

import halfway


def test_the_citation_has_the_packages_version_and_license() -> None:
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert cited["version"] == halfway.__version__ and cited["license"] == "Apache-2.0"


def test_the_changelog_has_one_section_whose_parts_are_lists_without_gaps() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == [f"[Unreleased]: {halfway.__version__}"]
    assert re.findall(r"^### (.*)", text, re.MULTILINE) == ["Added", "Changed", "Removed"]
    assert not re.search(r"\n\n- .*(\n  .*)*\n\n- ", text), "a blank line between two entries of one list"


def test_every_page_says_to_install_a_checkout_since_there_is_no_release() -> None:
    log = REPOSITORY / "experiments" / "results" / "log"
    pages = [path for path in REPOSITORY.rglob("*.md") if not any(part.startswith(".") for part in path.parts)]
    bare = re.compile(r"pip install[^`\n]*[ '\"]halfway\b(?!/)")
    found = {str(path): bare.findall(path.read_text()) for path in pages if path.parent != log}
    assert len(found) > 20 and not any(found.values()), {path: lines for path, lines in found.items() if lines}
    assert bare.search("pip install 'trl>=1' halfway") and not bare.search("pip install PATH/TO/halfway")
