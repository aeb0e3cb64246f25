"""The committed pages say what the committed numbers say."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from paths import REPOSITORY
from typer.testing import CliRunner

from halfway.curriculum.support.errors import UserError
from halfway.experiments.cli import app
from halfway.experiments.pages.marks import BEGIN, END, filled, write_pages

PAYING = REPOSITORY / "experiments" / "results" / "when_does_it_pay"


def test_the_committed_pages_are_not_stale() -> None:
    assert CliRunner().invoke(app, ["pages", "--check"]).exit_code == 0, "run `halfway pages`"


def test_what_a_page_links_to_exists() -> None:
    for page in (REPOSITORY / "README.md", *(REPOSITORY / "experiments/results").glob("*/README.md")):
        targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
        assert [path for path in targets if not (page.parent / path).exists()] == [], page


def test_only_what_stands_between_the_marks_changes() -> None:
    begin, end = BEGIN.format("a"), END.format("a")
    text = f"Before.\n\n{begin}\nold\n{end}\n\nAfter \\1.\n"
    assert filled(text, {"a": "new \\1"}) == f"Before.\n\n{begin}\n\nnew \\1\n\n{end}\n\nAfter \\1.\n"
    assert filled(filled(text, {"a": "new"}), {"a": "new"}) == filled(text, {"a": "new"})
    for broken in ("nothing", f"{text}{begin}\n", f"{end}\n{begin}\n"):
        with pytest.raises(UserError, match="once each"):
            filled(broken, {"a": "new"})


def test_a_stale_page_is_refused_by_a_check_and_mended_without(tmp_path: Path) -> None:
    shutil.copytree(PAYING, tmp_path / "experiments/results/when_does_it_pay")
    shutil.copy(REPOSITORY / "README.md", tmp_path)
    page, numbers = (tmp_path / "experiments/results/when_does_it_pay" / name for name in ("README.md", "verdict.json"))
    numbers.write_text(numbers.read_text().replace('"start": 0.0', '"start": 0.9'))
    with pytest.raises(UserError, match=r"^experiments/results/when_does_it_pay/README\.md: .* run `halfway"):
        write_pages(tmp_path, check=True)
    assert write_pages(tmp_path) == [page]
    assert "0.98" in page.read_text() and write_pages(tmp_path, check=True) == []


def test_without_the_numbers_the_command_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"verdict\.json"):
        write_pages(tmp_path)


def arms(contest: str, regime: str) -> Any:
    return json.loads((PAYING / "contests" / f"{contest}.json").read_text())["regimes"][regime]["arms"]


def said(page: str) -> str:
    """A page's text, in one line."""
    return " ".join((PAYING / page).read_text().split())


def quoted(number: list[float], digits: int) -> str:
    """A number as a sentence writes it: .56 [.49, .62]."""
    value, *ends = (f"{each:.{digits}f}".replace("0.", ".", 1) for each in number[:3])
    return f"{value} [{', '.join(ends)}]"


@pytest.mark.parametrize(
    ("contest", "name", "arm", "target", "measure"),
    [
        ("contest", "hard", "replay_frontier", "0.4", "tokens"),
        ("contest_easier", "middle", "replay_frontier_easier", "end", "tokens"),
        ("contest_easier", "hard", "replay_frontier_easier", "end", "tokens"),
        ("contest_easier", "middle", "frontier_easier", "end", "cost_1"),
        ("contest_easier", "hard", "frontier_easier", "end", "cost_1"),
        ("contest_probe", "middle", "probe_easier_sheets", "end", "rollouts"),
        ("contest_probe", "hard", "probe_easier_sheets", "end", "rollouts"),
        ("contest_variants", "easy", "prefix_sampling_chained", "0.6", "tokens"),
        ("contest_ledger", "ledger", "replay", "0.4", "rollouts"),
        ("zoo", "easy", "servo_adarft", "end", "rollouts"),
        ("zoo", "hard", "hints_shared", "end", "tokens"),
    ],
)
def test_ratios_in_sentences_are_those_of_the_numbers(
    contest: str, name: str, arm: str, target: str, measure: str
) -> None:
    assert quoted(arms(contest, name)[arm]["spent"][target][measure], 2) in said("first_contests.md")


@pytest.mark.parametrize(
    ("contest", "names", "arm", "words"),
    [
        ("contest", ("easy", "middle", "hard"), "pros", "by .129, .126 and .203"),
        ("contest", ("easy", "middle", "hard"), "greso", "+.040, -.060 and -.069"),
        ("contest_variants", ("easy", "middle", "hard"), "pros_no_reuse", ".065, .110 and .160 below"),
        ("contest_variants", ("easy", "middle", "hard"), "prefix_sampling_chained", ".032, .041 and .052 below"),
        ("contest_variants", ("easy", "middle", "hard"), "dynamic_sampling_adaptive", ".030, .042 and .025 below"),
        ("contest_probe", ("easy", "middle", "hard"), "easier_sheets", "+.019 (easy), +.059 (middle) and +.032 (hard)"),
    ],
)
def test_differences_in_sentences_are_those_of_the_numbers(
    contest: str, names: tuple[str, ...], arm: str, words: str
) -> None:
    assert words in said("README.md") + said("first_contests.md")
    found = [arms(contest, name)[arm]["gains"]["rollouts"][0] for name in names]
    numbers = [float(number) for number in re.findall(r"[+-]?\.\d+", words)]
    assert [abs(each) for each in numbers] == pytest.approx([abs(each) for each in found], abs=5.1e-4)


def test_the_steps_that_the_page_gives_are_those_of_the_numbers() -> None:
    regimes = [arms("contest", name) for name in ("easy", "middle", "hard")]
    ranges = {
        name: (round(min(each[name]["steps"] for each in regimes)), round(max(each[name]["steps"] for each in regimes)))
        for name in ("grpo", "frontier", "replay_frontier", "dynamic_sampling", "greso")
    }
    assert ranges["grpo"] == (120, 120) and ranges["frontier"] == (240, 240) and ranges["replay_frontier"] == (239, 239)
    assert ranges["dynamic_sampling"] == (61, 77) and ranges["greso"] == (83, 106)
