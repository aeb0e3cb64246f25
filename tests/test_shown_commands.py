"""The commands of `halfway` in README and docs run, page by page, in a folder that has what the page speaks of.

Training is made short, and comparisons train one arm. `shown.py` says what is not run here.
"""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import REPOSITORY
from shown import FENCED, PAGES, commands, lines, reason
from typer.testing import CliRunner

from halfway.experiments.cli import app
from halfway.experiments.comparing import compare
from halfway.experiments.report import report_page as report

LAB = REPOSITORY / "experiments" / "starting_models" / "sums"

SHORT = ["fill={groups: 2}", "rollouts.num_rollouts=2", "rollouts.max_response_tokens=48", "tracking.mlflow=false"]
SHORT += ["evaluation={points: 1, problems: 2, samples: 1}", "learner.minibatch_groups=0"]

# No GPU, and a model without a chat template.
HERE = ["rollouts.engine=transformers", "learner.deepspeed={zero_stage: null}", "model.dtype=float32"]
HERE += ["model.chat=messages"]


RUN = [page for page in PAGES if any(not reason(line) for line in commands(page))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder: the checkout's recipes, data, a model and a log, under the names that the pages give them."""
    monkeypatch.chdir(tmp_path)
    for name in ("experiments", "notebooks"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    rows = [{"prompt": f"{i}+{i}=", "answer": str(2 * i)} for i in range(300)]
    rows.append(json.loads(next(line for line in lines(PAGES["docs/tutorials/own_data.md"]) if line.startswith("{"))))
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:300]))
    shutil.copytree(LAB, tmp_path / "path" / "to" / "model")
    config = json.loads((LAB / "config.json").read_text())
    (tmp_path / "path/to/model/config.json").write_text(json.dumps(config | {"max_position_embeddings": 8192}))
    log = [{"prompt_id": f"p{i % 9}", "step": i // 9, "rewards": [i % 2, (i // 2) % 2, 1, 0]} for i in range(90)]
    for name in ("path/to/rollouts", "path/to/rollout/dump", "run_a", "run_b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log))
    # One process for all runs of a comparison, and one figure for a report.
    monkeypatch.setattr(compare, "Runner", compare.InThisProcess)
    monkeypatch.setattr(report, "PICTURES", report.PICTURES[:1])
    yield tmp_path


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_run(page: str, folder: Path) -> None:
    yaml = [block for language, block in FENCED.findall(PAGES[page]) if language == "yaml"]
    for name, text in zip(re.findall(r"Save this as `(.+?)`", PAGES[page]), yaml, strict=False):
        (folder / name).write_text(text)
    for line in commands(page):
        if reason(line):
            continue
        words = shlex.split(line)[1:]
        if words[0] in ("run", "compare"):
            words += [*SHORT, "budget={steps: 1}", *["--arms", "grpo"] * (words[0] == "compare")]
            words += HERE * ("init" in " ".join(commands(page)))
        elif words[:2] == ["validate", "own.yaml"]:
            words += HERE[-1:]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{line}\n{done.output}"
        assert done.stdout.strip() or words[0] == "init"


def test_the_audit_of_the_front_page_prints_what_it_shows(folder: Path) -> None:
    [line] = [line for line in commands("README.md") if line.startswith("halfway audit notebooks")]
    done = CliRunner().invoke(app, shlex.split(line)[1:])
    shown = " ".join(PAGES["README.md"].split(line)[1].split("## ")[0].split())
    assert len(shown) > 200 and shown in " ".join(done.stdout.split())


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/audit_your_log.md"])
def test_an_audit_prints_what_a_page_shows(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    command, shown = re.findall(r"halfway (audit notebooks/[^\n]+)\n(.+?)\n\n?(?:```|## )", PAGES[page], re.DOTALL)[0]
    printed = CliRunner().invoke(app, shlex.split(command)).stdout
    assert " ".join(shown.split()) in " ".join(printed.split())
