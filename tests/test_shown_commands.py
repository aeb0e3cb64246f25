"""Every command and block of code in README and docs runs in a test, or it says here why it does not.

Commands of `halfway` run here, page by page, in a folder that has what the page speaks of; training is made short, and
comparisons train one arm. Blocks of code run here too, or in the test that is named.
"""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import REPOSITORY
from typer.testing import CliRunner

from halfway.experiments.cli import app
from halfway.experiments.comparing import compare
from halfway.experiments.report import page as report

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?<=\n\n)((?: {4}.*\n|\n(?= {4}))+)")
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path.read_text()
    for path in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
}
LAB = REPOSITORY / "experiments" / "starting_models" / "sums"

# How a line begins -> why it is not run.
NOT_RUN = {
    "pip ": "asks a registry; tests/test_packaging.py installs the wheel",
    "git clone": "asks a server",
    "make ": "what continuous integration runs",
    "source ": "the tests are in an environment already",
    "export ": "sets a variable of the shell",
    "(umask": "writes to the home folder",
    "apt-get ": "installs a package of the system",
    "debootstrap ": "makes an image, as root",
    "chroot ": "makes an image, as root",
    "tar ": "makes an image, as root",
    "python -m verl": "tests/trainers/hosts/test_verl.py",
    "halfway prove": "takes 25 minutes; tests/experiments/test_proving.py",
    "halfway doctor": "finds what this machine lacks; tests/experiments/test_proving.py",
    "halfway launch FILE": "needs hosts; tests/experiments/running/test_hardware.py",
    "SBATCH_ACCOUNT=me halfway launch FILE": "needs Slurm; tests/experiments/running/test_schedulers.py",
    "halfway compare FILE": "needs a scheduler; tests/experiments/running/test_schedulers.py",
    "halfway compare experiments/recipes/cluster/": "needs a GPU; tests/experiments/test_recipes.py",
    "halfway propel ": "takes minutes; tests/experiments/propel/test_propel_study.py",
    "halfway validate --rows": "needs archives; tests/experiments/running/test_rows.py",
    "halfway survey": "tests/experiments/test_survey.py",
}
# Page -> the test that runs its blocks that are not commands, or why none does.
CODE = {
    "README.md": "tests/trainers/hosts/test_pages.py",
    "docs/audit.md": "tests/experiments/audit/test_formats.py",
    "docs/cluster.md": "printed by `halfway prove`, the file of another launcher, and data from a hub",
    "docs/hosts/README.md": "tests/test_documentation.py",
    "docs/hosts/others.md": "tests/trainers/hosts/test_pages.py",
    "docs/hosts/prime_rl.md": "tests/trainers/hosts/test_prime_rl.py",
    "docs/hosts/tinker.md": "tests/trainers/hosts/test_pages.py",
    "docs/hosts/trinity.md": "tests/trainers/hosts/test_pages.py",
    "docs/hosts/trl.md": "tests/trainers/hosts/test_pages.py",
    "docs/repositories.md": "needs sandboxes and archives; tests/curriculum/repositories",
    "docs/training.md": "tests/test_documentation.py",
    "docs/tutorials/first_comparison.md": "tests/test_shown_commands.py",
    "docs/tutorials/own_controller.md": "tests/controllers/test_third_party.py",
    "docs/tutorials/own_data.md": "tests/test_shown_commands.py",
    "docs/tutorials/trl.md": "tests/trainers/hosts/test_pages.py",
}
COMMAND = re.compile(r"(?!ok )(?:[a-z(][\w.-]*|[A-Z_]+=\S+) (?![=:|])")
SHORT = ["fill={groups: 2}", "rollouts.num_rollouts=2", "rollouts.max_response_tokens=48", "tracking.mlflow=false"]
SHORT += ["evaluation={points: 1, problems: 2, samples: 1}", "learner.minibatch_groups=0"]

# No GPU, and a model without a chat template.
HERE = ["rollouts.engine=transformers", "learner.deepspeed={zero_stage: null}", "model.dtype=float32"]
HERE += ["model.chat=messages"]


def lines(text: str) -> list[str]:
    """The lines of the indented blocks of a page, without what follows `#`; continued ones are one."""
    blocks = "\n".join(INDENTED.findall(FENCED.sub("", text))).replace("\\\n", " ")
    return [line for each in blocks.splitlines() if (line := re.split(r"\s+# ", each[4:].rstrip())[0])]


def commands(page: str) -> list[str]:
    return [line for line in lines(PAGES[page]) if COMMAND.match(line) and "chain = " not in line]


def reason(line: str) -> str:
    """Why a line is not run; empty if it is."""
    return next((why for beginning, why in NOT_RUN.items() if f"{line} ".startswith(beginning)), "")


RUN = [page for page in PAGES if any(not reason(line) for line in commands(page))]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page: str) -> None:
    assert all(reason(line) or line.startswith("halfway ") for line in commands(page))
    others = [line for line in lines(PAGES[page]) if line not in commands(page)]
    assert bool(others or FENCED.search(PAGES[page])) == (page in CODE)


def test_the_tests_that_are_named_are_there() -> None:
    named = {test for why in [*NOT_RUN.values(), *CODE.values()] for test in re.findall(r"tests/[\w/]+(?:\.py)?", why)}
    assert len(named) > 10 and [name for name in named if not (REPOSITORY / name).exists()] == []
    for page, test in CODE.items():
        if test.startswith("tests/"):
            text, name = (REPOSITORY / test).read_text(), Path(page).name
            assert name in text or page in text or name.removesuffix(".md") in text, f"{test} does not speak of {page}"
    assert all(any(reason(line) == why for page in PAGES for line in commands(page)) for why in NOT_RUN.values())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder: the checkout's recipes, data, a model and a log, under the names that the pages give them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").symlink_to(REPOSITORY / "experiments")
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
    if name := re.search(r"Save this as `(.+?)`", PAGES[page]):
        (folder / name[1]).write_text(yaml[0])
    for line in commands(page):
        if reason(line):
            continue
        words = shlex.split(line)[1:]
        if words[0] in ("run", "compare"):
            words += [*SHORT, "budget={steps: 1}", *["--arms", "grpo"] * (words[0] == "compare")]
            words += HERE * ("init" in " ".join(commands(page)))
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{line}\n{done.output}"
        assert done.stdout.strip() or words[0] == "init"
