"""The pages of reproduced results, from the rows of the papers and their measurements."""

from collections import Counter
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from halfway.curriculum.support.atomic import write_text
from halfway.experiments.report.text_tables import TextTable
from halfway.experiments.reproduction.judging import ENOUGH, STATUSES, decided_claims, read_measured
from halfway.experiments.reproduction.paper_pages import picture, table
from halfway.experiments.reproduction.paper_rows import papers

FOLDER = Path(__file__).parent
CLAIMS = "decided claims"


def pages() -> dict[str, str]:
    """Make the first page, and a page of rows per paper, as Markdown, by file name."""
    templates = Environment(
        loader=FileSystemLoader(FOLDER),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    drawn = pictures()
    listed = [(paper, f"{paper.name}.svg" in drawn) for paper in papers()]
    first = templates.get_template("README.md.j2").render(enough=ENOUGH, overview=overview(), papers=listed)
    own = templates.get_template("paper.md.j2")
    return {
        "README.md": first.rstrip("\n") + "\n",
        **{f"{paper.name}.md": own.render(paper=paper, table=table(paper, read_measured(paper))) for paper in papers()},
    }


def pictures() -> dict[str, str]:
    """Draw the picture of each paper with measured multiples, as SVG, by file name."""
    return {f"{paper.name}.svg": svg for paper in papers() if (svg := picture(paper, read_measured(paper)))}


def write_pages() -> list[Path]:
    """Write the pages and their pictures; returns the changed files."""
    files = {FOLDER / name: text for name, text in {**pages(), **pictures()}.items()}
    changed = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in changed:
        write_text(path, files[path])
    return changed


def overview() -> str:
    """Count each paper's rows by status, and the claims that its runs decided."""
    counts = {}
    for paper in papers():
        found = read_measured(paper)
        counts[paper.name] = Counter(one.status for one in found.values())
        counts[paper.name][CLAIMS] = len(decided_claims(paper, found))
    counts["all"] = sum(counts.values(), Counter[str]())
    columns = (*STATUSES, CLAIMS)
    rows = [(name, *(str(number[column]) for column in columns)) for name, number in counts.items()]
    return TextTable("", ("paper", *columns), tuple(rows)).markdown()
