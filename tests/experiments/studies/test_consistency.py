"""Known answers for the memory of degenerate groups."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_runs import decision, evaluation_record, step_record, write_records

from halfway.curriculum.decision_log import GroupRecord
from halfway.experiments.studies.consistency import Visits, consistency_table, visits


def group(problem: str, k: int | None, n: int | None = 8, origin: str = "fresh") -> GroupRecord:
    return GroupRecord(0, problem, origin, "trained", k, n, 1)


def test_visits_are_counted_in_order() -> None:
    log = [
        group("a", 8),  # first visits
        group("b", 3),
        group("c", 0),
        group("a", 0),  # degenerate before and now, whichever way
        group("b", 0),  # now only
        group("c", 1),  # before only
        group("a", None, None),  # skipped: no visit
        group("a", 8, origin="prefix"),  # another problem
        group("g", 8, origin="generated"),  # not one of the data set
        group("g", 8, origin="generated"),
        group("b", 3),  # the third visit of b: before and just before, not now
        group("c", 0),  # now, and before, at the first visit; not just before
    ]
    assert list(visits("r", log)) == [
        Visits("r", 2, 3, before=2, latest=2, now=2, both=1, latest_and_now=1),
        Visits("r", 3, 2, before=2, latest=1, now=1, both=1, latest_and_now=0),
    ]


def row(run: str, problems: int, before: int, now: int, both: int, latest: int = 0, latest_and_now: int = 0) -> Visits:
    return Visits(run, 2, problems, before, latest, now, both, latest_and_now)


def test_shares_are_means_over_runs() -> None:
    rows = [row("r", 10, 4, 5, 3, latest=4, latest_and_now=1), row("s", 10, 8, 5, 4, latest=2, latest_and_now=1)]
    _, problems, *shares = consistency_table(rows).rows[0]
    before, now, before_given_now, now_given_before, now_given_latest = shares
    assert problems == "20" and before.startswith("0.600") and now.startswith("0.500")
    assert before_given_now.startswith("0.700")  # of 3/5 and 4/5
    assert now_given_before.startswith("0.625")  # of 3/4 and 4/8
    assert now_given_latest.startswith("0.375")  # of 1/4 and 1/2


def test_a_share_of_nothing_is_shown_as_such() -> None:
    assert consistency_table([row("r", 10, 0, 0, 0)]).rows[0][4:] == ("-", "-", "-")


def test_without_memory_a_conditional_share_is_the_plain_one_of_its_own_visit() -> None:
    # 40 of 100 problems were degenerate before, 20 are now, independently of each other: 8 are both.
    cells = consistency_table([row("r", 100, 40, 20, 8)]).rows[0][2:]
    before, now, before_given_now, now_given_before = (cell.split()[0] for cell in cells[:4])
    assert before_given_now == before == "0.400" and now_given_before == now == "0.200"


@pytest.mark.parametrize("visited", [1, 2])
def test_the_command(tmp_path: Path, visited: int) -> None:
    run = tmp_path / "run"
    log = [decision(step, 8, problem="p") for step in range(visited)]
    write_records(run, log, [step_record(step) for step in range(visited)], [evaluation_record()])
    command = [
        sys.executable,
        "-m",
        "halfway.experiments.studies.consistency",
        str(run),
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if visited == 1:
        assert done.returncode == 2 and done.stderr == "error: no problem was visited twice; give longer runs\n"
    else:
        assert "visit by visit" in done.stdout
        # Wilson's interval for 1 of 1.
        assert "1.000 [0.207, 1.000]" in (tmp_path / "out" / "consistency.md").read_text()
        assert json.loads((tmp_path / "out" / "consistency.json").read_text())[0]["both"] == 1
