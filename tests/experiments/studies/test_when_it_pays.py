"""The page that says when a method pays, on simulated contests and on the committed one."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from contests import contest
from paths import REPOSITORY

from halfway.curriculum.support.errors import UserError
from halfway.experiments.report.summary import Summary, summarize
from halfway.experiments.studies import when_it_pays
from halfway.experiments.studies.when_it_pays import (
    MARKS,
    Beside,
    Page,
    Regime,
    cheapest,
    figure,
    first_screen,
    page_text,
    publish,
    read_page,
    with_first_screen,
    write_page,
)

PAGE = REPOSITORY / "experiments" / "results" / "contest"
PAGE_FILE = {"regimes": {"a": ["a", "words"]}, "help": {"references": ["told"]}}
SKILLS = {"grpo": 0.3, "faster": 1.2, "fastest": 2.0, "slower": -0.3, "told": 3.0}
HELP = {"references": frozenset({"told"})}


def regime(skills: dict[str, float], name: str = "some") -> Regime:
    found = contest(np.random.default_rng(3), skills, contrasts={"baseline": "grpo"})
    return Regime(name, "simulated", summarize(found))


def test_the_cheapest_is_the_cheapest_of_those_that_are_clearly_cheaper() -> None:
    simulated = regime(SKILLS)
    for measure in ("rollouts", "tokens"):
        found = cheapest(simulated, measure, ["faster", "fastest", "slower"])
        assert found is not None and found[0] == "fastest"
        assert found[1].ratio is not None and found[1].ratio.value < 1 and found[1].clear
    assert cheapest(simulated, "rollouts", ["slower"]) is None


def test_where_nothing_pays_the_baseline_is_named() -> None:
    text = page_text(Page([regime({"grpo": 0.3, "alike": 0.3})]), "")
    assert "references" not in text
    row = next(line for line in text.splitlines() if line.startswith("| some |") and line.count("|") == 6)
    assert set(re.split(r" *\| *", row.strip("| "))[1:]) == {"grpo"}


def test_references_stand_apart_and_losses_are_shown() -> None:
    text = page_text(Page([regime(SKILLS)], HELP), "Notes.")
    experience, told = (next(line for line in text.splitlines() if line.startswith(f"| some, {w}")) for w in ("e", "w"))
    assert "fastest x" in experience and "told" not in experience and "told x" in told
    slower = next(line for line in text.splitlines() if line.startswith("| slower"))
    assert "| -0." in slower and "not reached" in slower
    assert text.endswith("Notes.")


def test_arms_of_another_page_have_rows_of_their_own() -> None:
    helped = Beside("with a teacher", ("faster", "slower"), {"one": regime(SKILLS, "one"), "three": regime(SKILLS)})
    page = Page([regime(SKILLS, "one"), regime(SKILLS, "two")], HELP, [helped])
    lines = first_screen(page).splitlines()[2:7]
    assert [line.split(" | ")[0] for line in lines] == [
        "| one, experience",
        "| one, with references",
        "| one, with a teacher",
        "| two, experience",
        "| two, with references",
    ]
    assert "faster x" in lines[2] and "fastest" not in lines[2]


def test_a_page_names_the_arms_of_another(tmp_path: Path) -> None:
    for name, extra in (
        ("here", {"beside": [{"page": "../there", "words": "helped", "arms": ["told"]}]}),
        ("there", {}),
    ):
        folder = tmp_path / name
        (folder / "a").mkdir(parents=True)
        (folder / "a" / "summary.json").write_bytes(msgspec.json.encode(regime(SKILLS).summary))
        page = {"regimes": {"a": ["a", "words"]}}
        (folder / "page.json").write_text(json.dumps(page | extra))
    text = page_text(read_page(tmp_path / "here"), "")
    assert "| a, helped | told x" in text and "Rows helped: from another comparison" in text
    (tmp_path / "there" / "page.json").unlink()
    with pytest.raises(UserError, match="there"):
        read_page(tmp_path / "here")


def test_every_kind_of_help_has_rows_of_its_own() -> None:
    help = HELP | {"known difficulties": frozenset({"fastest"})}
    page = Page([regime(SKILLS, "one")], help)
    lines = first_screen(page).splitlines()[2:5]
    cells = [("experience", "faster"), ("with references", "told"), ("with known difficulties", "fastest")]
    assert all(line.startswith(f"| one, {words} | {arm} x") for line, (words, arm) in zip(lines, cells, strict=True))
    text = page_text(page, "")
    assert all(name in text for name in ("| told (references) |", "| fastest (known difficulties) |", "| faster |"))
    assert legend(page)[:3] == ["from experience alone", "with references", "with known difficulties"]


def legend(page: Page) -> list[str]:
    return [label.get_text() for label in figure(page).legends[0].get_texts()]


def test_a_kind_without_arms_has_no_row() -> None:
    page = Page([regime({"grpo": 0.3, "told": 3.0})], HELP)
    rows = [line.split(" | ")[0] for line in first_screen(page).splitlines() if line.startswith("| some")]
    assert rows == ["| some, with references"] and legend(page)[0] == "with references"


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"help": {"references": ["tald"]}}, "help references: no summary has tald; give some of fast"),
        ({"references": ["told"]}, "unknown field `references`"),
        ({"beside": [{"page": ".", "words": "x", "arms": []}, {"page": "."}]}, "missing required field"),
    ],
)
def test_a_page_that_names_what_does_not_exist_is_one_line(tmp_path: Path, extra: dict[str, Any], words: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "summary.json").write_bytes(msgspec.json.encode(regime(SKILLS).summary))
    (tmp_path / "page.json").write_text(json.dumps(PAGE_FILE | extra))
    with pytest.raises(UserError, match=words) as caught:
        read_page(tmp_path)
    assert "\n" not in str(caught.value)


def test_seeds_that_ratios_leave_out_are_named() -> None:
    simulated = regime({"grpo": 0.3, "other": 0.8}, "middle")
    assert "Ratios are over" not in page_text(Page([simulated]), "")
    goal = simulated.goal
    rows = [replace(row, spent={axis: replace(s, left_out=(2,)) for axis, s in row.spent.items()}) for row in goal.rows]
    summary = replace(simulated.summary, reach=(replace(goal, rows=tuple(rows)),))
    text = page_text(Page([replace(simulated, summary=summary)]), "")
    total = goal.rows[0].seeds
    assert text.count(f"middle: Ratios are over {total - 1} of {total} seeds: grpo's run with seed 2 had") == 2


def test_the_page_is_written_from_summaries_alone(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "summary.json").write_bytes(msgspec.json.encode(regime(SKILLS).summary))
    (tmp_path / "page.json").write_text(json.dumps(PAGE_FILE))
    text = write_page(tmp_path)
    assert (tmp_path / "README.md").read_text() == text
    assert text.replace("words", "simulated") == page_text(Page([regime(SKILLS, "a")], HELP), "")
    assert (tmp_path / "when_it_pays.png").stat().st_size > 5000


def test_a_folder_without_summaries_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"page\.json") as caught:
        read_page(tmp_path)
    assert "\n" not in str(caught.value)
    monkeypatch.setattr("sys.argv", ["when_it_pays", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        when_it_pays.main()
    assert stopped.value.code == 2


def test_a_summary_is_read_as_it_was_written() -> None:
    summary = regime(SKILLS).summary
    assert msgspec.json.decode(msgspec.json.encode(summary), type=Summary) == summary


PAGES = sorted(path.parent for path in PAGE.parent.glob("*/page.json"))


def test_there_are_pages() -> None:
    assert {PAGE, PAGE.with_name("contest_ledger")} <= set(PAGES)


@pytest.mark.parametrize("folder", PAGES, ids=lambda folder: folder.name)
def test_the_committed_pages_are_those_of_the_committed_summaries(folder: Path) -> None:
    assert (folder / "README.md").read_text() == page_text(read_page(folder), (folder / "notes.md").read_text())


def test_the_readme_s_table_is_that_of_the_committed_summaries() -> None:
    """`python -m halfway.experiments.studies.when_it_pays experiments/results/contest --readme README.md` mends it."""
    readme = (REPOSITORY / "README.md").read_text()
    assert with_first_screen(readme, first_screen(read_page(PAGE))) == readme


def test_the_first_screen_names_seeds_and_clear_losses() -> None:
    lines = first_screen(Page([regime(SKILLS, "one"), regime(SKILLS, "two")], HELP)).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:6]] == [
        "| one, experience",
        "| one, with references",
        "| two, experience",
        "| two, with references",
    ]
    assert "fastest x" in lines[2] and "told x" in lines[3]
    found = re.fullmatch(r"Seeds of each arm: 8 one, 8 two\. Clearly below grpo .*: `slower` by (.*)\.", lines[-1])
    assert found is not None and re.fullmatch(r"\.\d{3} \(one\), by \.\d{3} \(two\)", found[1])
    assert first_screen(Page([regime({"grpo": 0.3, "alike": 0.3})])).endswith("equal rollouts: none.")


def test_only_what_stands_between_the_marks_changes() -> None:
    begin, end = MARKS
    text = f"Before.\n\n{begin}\n\nold\n\n{end}\n\nAfter.\n"
    assert with_first_screen(text, "new") == text.replace("old", "new")
    for broken in ("nothing", text + begin, f"{end}\n{begin}"):
        with pytest.raises(UserError, match="once each"):
            with_first_screen(broken, "new")


def test_a_comparison_is_published_when_it_has_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, results = tmp_path / "runs", tmp_path / "results"
    (runs / "figures").mkdir(parents=True)
    (runs / "grpo" / "seed-0").mkdir(parents=True)
    results.mkdir()
    (results / "page.json").write_text(json.dumps(PAGE_FILE | {"regimes": {"a": ["here", "words"]}}))
    (tmp_path / "TEXT.md").write_text("\n".join(MARKS))
    with pytest.raises(UserError, match=r"no summary\.json here; run `halfway report"):
        publish(results, "here", runs)
    summary = regime(SKILLS).summary
    for name, content in {
        "summary.json": msgspec.json.encode(summary),
        "tuning.json": b"{}",
        "provenance.json": b"{}",
        "report.html": b"no part of it",
        "figures/learning_curves.png": b"picture",
        "figures/timing.png": b"no part of it",
    }.items():
        (runs / name).write_bytes(content)
    command = ["when_it_pays", str(results), "--publish", f"here={runs}", "--readme", str(tmp_path / "TEXT.md")]
    monkeypatch.setattr("sys.argv", command)
    assert when_it_pays.main() == 0
    names = {path.name for path in (results / "here").iterdir()}
    assert names == {"summary.json", "tuning.json", "provenance.json", "learning_curves.png"}
    assert (results / "README.md").exists() and "| a, experience | fastest x" in (tmp_path / "TEXT.md").read_text()
    late = runs / "grpo" / "seed-0" / "evaluations.jsonl"
    late.write_text("")
    os.utime(late, (2e9, 2e9))
    with pytest.raises(UserError, match="older than the runs"):
        publish(results, "here", runs)
    late.unlink()
    arms = (replace(summary.arms[0], unfinished=1), *summary.arms[1:])
    (runs / "summary.json").write_bytes(msgspec.json.encode(replace(summary, arms=arms)))
    with pytest.raises(UserError, match="runs of grpo have not finished"):
        publish(results, "here", runs)
