"""A run's folder from elsewhere with a link in place of each of its files: nothing is written through it."""

import json
import os
import shutil
from pathlib import Path

import pytest
from hostile_pickles import RUN
from typer.testing import CliRunner

import halfway
from halfway.experiments.cli import app


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "run.yaml").write_text(f"{RUN}output: {folder}\n")
    return halfway.run(folder / "run.yaml", quiet=True).folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


NAMES = ["report.html", "summary.json", "summary.md", "status.json", "provenance.json", ".lock"]
NAMES += [f"{name}.jsonl" for name in ("decisions", "steps", "evaluations", "samples")]
NAMES += [f".{name}.tmp" for name in ("report.html", "summary.json", "status.json", "provenance.json")]
FOLDERS = ["figures", "checkpoints", "checkpoints/step-00000002", "checkpoints/.step-00000004.partial"]


@pytest.mark.parametrize("name", NAMES + FOLDERS)
def test_nothing_is_written_through_a_planted_link(name: str, trained: Path, tmp_path: Path) -> None:
    run, precious = tmp_path / "run", tmp_path / "precious"
    shutil.copytree(trained, run)
    state = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps({**state, "state": "running"}))
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("steps: 2", "steps: 6").replace(str(trained.parent), str(tmp_path)))
    place = run / name
    if name in FOLDERS:
        shutil.copytree(place, precious / "x") if place.exists() else (precious / "x").mkdir(parents=True)
        shutil.rmtree(place, ignore_errors=True)
    else:
        precious.mkdir()
        (precious / "x").write_bytes(place.read_bytes() if place.exists() else b"precious")
        place.unlink(missing_ok=True)
    place.symlink_to(precious / "x")
    before, ends = content(precious), []
    for command in ("report", "resume", "report"):
        done = CliRunner().invoke(app, [command, str(run)])
        assert isinstance(done.exception, SystemExit | None), done.exception
        ends.append(done.exit_code)
    assert content(precious) == before and os.listdir(precious) == ["x"], ends
