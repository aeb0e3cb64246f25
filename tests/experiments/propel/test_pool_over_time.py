"""How a pool wears, from decision logs written by hand."""

import json
import math
import sys
from pathlib import Path

import pytest
from synthetic_runs import decision

from halfway.experiments.propel.pool_over_time import ChosenGroup, main, parts_of
from halfway.experiments.report.records import read_jsonl


def probed(step: int, k: int, predicted: float, **other: object) -> dict[str, object]:
    chosen = [["probe", f"probed {predicted:.2f}"], ["uniform", "drawn"]]
    return decision(step, k, 8, origin="generated", **other) | {"decisions": chosen}


def write_log(folder: Path, records: list[dict[str, object]]) -> Path:
    folder.mkdir(parents=True)
    path = folder / "decisions.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def comparison(tmp_path: Path) -> Path:
    fresh = decision(0, 0) | {"decisions": [["uniform", "drawn"]]}
    carried = probed(0, 2, 0.5, outcome="carried")
    write_log(tmp_path / "probe" / "seed-0", [probed(0, 4, 0.5), probed(0, 8, 0.6), carried, fresh, probed(3, 8, 0.97)])
    write_log(tmp_path / "probe" / "seed-1", [probed(0, 2, 0.4), probed(1, 2, 0.5), decision(1, 4)])
    return tmp_path


def read(comparison: Path) -> list[list[ChosenGroup]]:
    return [read_jsonl(path, ChosenGroup)[0] for path in sorted(comparison.glob("probe/*/decisions.jsonl"))]


def test_parts_are_divided_by_each_runs_own_steps(comparison: Path) -> None:
    first, second = parts_of(read(comparison), 2)
    assert (first.steps, first.generated, second.steps, second.generated) == (2, 1.5, 4, 1.0)
    assert first.predicted == pytest.approx((0.5 + 0.6 + 0.4) / 3)
    assert first.observed == pytest.approx((4 + 8 + 2) / 24)
    assert first.mixed == pytest.approx(2 / 3) and first.mixed_others == 0
    assert second.predicted == pytest.approx((0.97 + 0.5) / 2) and second.observed == pytest.approx(10 / 16)
    assert second.mixed == 0.5 and second.mixed_others == 1


def test_a_part_without_groups_has_no_means(comparison: Path) -> None:
    middle = parts_of(read(comparison)[:1], 4)[1]
    assert middle.generated == 0 and math.isnan(middle.predicted) and math.isnan(middle.mixed_others)


def test_the_tables_are_printed_and_written(
    comparison: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = comparison / "wear.md"
    words = ["pool_over_time", str(comparison), "--arms", "probe", "--parts", "2", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    main()
    assert "| until 2 | 2 | 0.500 | 0.583 | 0.667 | 0.000 |" in out.read_text()
    assert out.read_text() in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--arms", "pros"], ["--arms", "probe", "--parts", "0"]])
def test_mistakes_are_told_in_one_line(
    comparison: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pool_over_time", str(comparison), *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2 and capsys.readouterr().err.count("\n") == 1
