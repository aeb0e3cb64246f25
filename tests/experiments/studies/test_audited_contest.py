"""The lab as ground truth for audits: a comparison's runs, audited by their logs alone, have its table's numbers."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from synthetic_runs import ARMS, write_comparison

from halfway.curriculum.support.errors import UserError
from halfway.experiments.report.records import load_comparison_records
from halfway.experiments.report.summary import summarize
from halfway.experiments.studies.audited_contest import audited


@pytest.fixture
def comparison(tmp_path: Path) -> Path:
    """Four arms with two seeds, one of which skips and one of which replays prefixes."""
    folder = write_comparison(tmp_path / "contest", ARMS, seeds=(0, 1), steps=6)
    summary = asdict(summarize(load_comparison_records(folder)))
    (folder / "summary.json").write_text(json.dumps(summary, default=str))
    return folder


def test_every_number_of_the_table_comes_out_again(comparison: Path) -> None:
    found = audited(comparison)
    assert (found.runs, found.apart) == (8, ())
    assert found.compared == 4 * (2 * 4 + 1)  # four numbers of each seed, and one of each arm
    steps = [json.loads(path.read_text().splitlines()[-1]) for path in comparison.glob("*/seed-*/steps.jsonl")]
    assert found.rollouts == sum(step["rollouts"] for step in steps)


def test_one_group_more_or_less_is_noticed(comparison: Path) -> None:
    log = comparison / "greso" / "seed-1" / "decisions.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    lost = next(i for i, record in enumerate(records) if record["outcome"] == "degenerate")
    log.write_text("".join(json.dumps(record) + "\n" for i, record in enumerate(records) if i != lost))
    apart = audited(comparison).apart
    assert [line.partition(":")[0] for line in apart] == [
        "greso, rollouts of seed 1",
        "greso, tokens of seed 1",
        "greso, wasted of seed 1",
        "greso, band_fresh of seed 1",
    ]


def test_a_comparison_without_a_table_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"make it with `halfway report"):
        audited(tmp_path)
