"""The package as users install it: a built wheel, in a folder whose own modules are named like our rooms."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jedi
import pytest
from paths import REPOSITORY, count_lines

from halfway.controllers import CONTROLLERS

ROOMS = {room.name: room.resolve() for room in (REPOSITORY / "src" / "halfway").glob("[a-z]*/")}
# Names that research repositories have, and that ours once imported too.
SHADOWING = ("experiments/__init__.py", "experiments/config.py", "trainers/__init__.py", "tests/__init__.py")
SHADOWING += ("curriculum/__init__.py", "controllers/__init__.py", "results.py")
PATIENCE_SECONDS = 300

SOMEBODY_ELSES = '''
import time
from dataclasses import dataclass
from halfway.curriculum import PassRateController, Plan, Problem, Stream, Verdict
from halfway.trainers.engines.contract import Engine, EngineSetup
from halfway.trainers.engines.transformers.part import Transformers

@dataclass(frozen=True)
class Choosy(PassRateController[None]):
    """Refuses problems whose ids end in certain digits, and takes its time, in which a signal can arrive."""

    digits: str = "0"

    def propose(self, plan: Plan, state: None, stream: Stream) -> tuple[Plan, None]:
        time.sleep(0.1)
        return plan.decide([Verdict(r.problem.id[-1] not in self.digits, "digit") for r in plan.undecided]), state

def long_enough(problem: Problem, response: str) -> bool:
    """Whether a response has as many characters as the answer says."""
    return len(response) >= int(problem.answer)

@dataclass(frozen=True)
class Noting(Transformers):
    """Leaves a note when it starts."""

    note: str = "note.txt"

    def build(self, setup: EngineSetup) -> Engine:
        with open(self.note, "a") as file:
            file.write("started ")
        return super().build(setup)
'''
ENTRY_POINTS = """
[halfway.controllers]
choosy = somebody_elses:Choosy
[halfway.verifiers]
long_enough = somebody_elses:long_enough
[halfway.engines]
noting = somebody_elses:Noting
"""
TINY = """
base: experiments/recipes/lab/sums.yaml
problems: {train: 16}
fill: {groups: 2}
rollouts: {num_rollouts: 2, max_response_tokens: 8}
budget: {steps: 2}
evaluation: {points: 0, problems: 0}
checkpoint: {every: 1}
tracking: {mlflow: false}
"""
MINE = """
base: tiny.yaml
problems: {source: {file: {path: problems.jsonl, verifier: long_enough}}, train: null}
controllers: [uniform, {picked: {use: choosy, digits: "01234"}}]
rollouts: {engine: {noting: {note: noted.txt}}}
"""
COMPARISON = """
base: {base: tiny.yaml}
budget: {steps: 1}
seeds: [0]
arms: {grpo: {}, ours: {controllers: [uniform, choosy]}}
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the wheel."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        return Path(sysconfig.get_path("purelib", "venv", {"base": str(self.folder), "platbase": str(self.folder)}))

    def variables(self) -> dict[str, str]:
        """The variables of an activated environment, on one core and without this checkout on the path of modules."""
        path = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        cleared = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        quiet = {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
        return {**cleared, **quiet, "PATH": path}

    def start(self, folder: Path, *words: object) -> "subprocess.Popen[str]":
        """Start a program of the environment in a folder, as from a shell."""
        program = self.folder / "bin" / str(words[0])
        return subprocess.Popen(
            [str(program), *map(str, words[1:])],
            cwd=folder,
            env=self.variables(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Whoever starts the tests in the background may have had this signal ignored, which children inherit.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def finish(self, folder: Path, *words: object, code: int = 0) -> str:
        """Run such a program to its end; standard output, then standard error."""
        with self.start(folder, *words) as process:
            output, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == code, (words, process.returncode, output, errors)
        return output + errors


def pip(*words: object) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    # Without this checkout on the path of modules, where pip would find halfway installed already.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def build_wheel(source: Path, folder: Path) -> Path:
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, since a build leaves files behind that the next build would take along."""
    copy = tmp_path_factory.mktemp("source")
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    folders = {room.relative_to(REPOSITORY).parts[0] for room in ROOMS.values()} | {"src"}
    for folder in folders:
        shutil.copytree(REPOSITORY / folder, copy / folder, symlinks=True, ignore=leave)
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(REPOSITORY / name, copy)
    return copy


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(source, tmp_path_factory.mktemp("wheel"))


def borrowing(folder: Path) -> Environment:
    """An environment that borrows this one's packages, by path only: its .pth files, which lead to this
    checkout, are not read there."""
    environment = Environment(folder)
    venv.create(folder, symlinks=True)
    paths = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (environment.packages / "borrowed.pth").write_text("\n".join(sorted(paths)))
    shutil.copy(REPOSITORY / "tests" / "support" / "sitecustomize.py", environment.packages)
    return environment


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel, and somebody else's package as pip leaves it."""
    environment = borrowing(tmp_path_factory.mktemp("installed"))
    pip("--python", environment.python, "install", "--quiet", "--no-deps", wheel)
    (environment.packages / "somebody_elses.py").write_text(SOMEBODY_ELSES)
    information = environment.packages / "somebody_elses-1.0.dist-info"
    information.mkdir()
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody-elses\nVersion: 1.0\n")
    return environment


@pytest.fixture(scope="session")
def editable(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A checkout installed editable."""
    environment = borrowing(tmp_path_factory.mktemp("editable"))
    words = ("install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", source)
    pip("--python", environment.python, *words)
    return environment


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A user's folder."""
    for name in SHADOWING:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"raise RuntimeError('the user has a {name}, and we have imported it')\n")
    rows = [
        {"id": f"row-{i}", "prompt": f"^1/{i % 5 + 1}a{i // 5 + 1}b1=", "answer": str(i % 3 + 1)} for i in range(20)
    ]
    (tmp_path / "problems.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for name, text in (("tiny", TINY), ("mine", MINE), ("comparison", COMPARISON)):
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def wait_for_a_step(run: Path, process: "subprocess.Popen[str]") -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not count_lines(run / "steps.jsonl"):
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.02)


def test_the_wheel_holds_the_packages_and_their_data_once(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = archive.namelist()
    assert len(held) == len(set(held))
    code = {f"halfway/{name}/{path.relative_to(room)}" for name, room in ROOMS.items() for path in room.rglob("*.py")}
    code = {name for name in code if not name.startswith("halfway/experiments/results/")}
    assert code | {"halfway/__init__.py"} == {name for name in held if name.endswith(".py")}
    kinds = (".yaml", ".j2", ".safetensors", ".parquet")
    found = [path.relative_to(REPOSITORY) for path in (REPOSITORY / "experiments").rglob("*") if path.suffix in kinds]
    left_out = {"ledger", "operators_generator", "sums_wide"}  # `warm_start` and `widen_heads` make them
    data = {f"halfway/{path}" for path in found if not {"results", *left_out} & set(path.parts)}
    assert data | {"halfway/py.typed", "halfway/experiments/starting_models/sums/tokenizer.json"} <= set(held)
    assert wheel.stat().st_size < 6 * 2**20
    unwanted = ("/results/", "__pycache__", *(f"starting_models/{model}/" for model in left_out))
    assert not [name for name in held if name.startswith("tests/") or any(part in name for part in unwanted)]


def test_the_source_distribution_builds_an_equal_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    build = "from setuptools.build_meta import build_sdist; print(build_sdist('dist'))"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    [archive] = (source / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(build_wheel(archive, tmp_path)) as other:
        left, right = ({name: each.read(name) for name in each.namelist()} for each in (one, other))
    assert left == right


def test_a_run_with_somebody_elses_parts_stops_and_is_resumed(installed: Environment, workplace: Path) -> None:
    run = workplace / "runs" / "mine"
    with installed.start(workplace, "halfway", "run", "mine.yaml", "budget.steps=30") as process:
        wait_for_a_step(run, process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130 and "halfway resume runs/mine" in errors
    before = len(records(run / "steps.jsonl"))
    assert 0 < before < 30
    assert "report: runs/mine/report.html" in installed.finish(workplace, "halfway", "resume", "runs/mine")
    assert len(records(run / "steps.jsonl")) == 30
    assert (workplace / "noted.txt").read_text() == "started started "
    decisions = records(run / "decisions.jsonl")
    assert {one["reason"] for one in decisions if one["outcome"] == "skipped"} == {"picked: digit"}
    assert sum(one["outcome"] != "skipped" for one in decisions) == 60


def test_arms_are_compared_side_by_side(installed: Environment, workplace: Path) -> None:
    output = installed.finish(workplace, "halfway", "compare", "comparison.yaml", "--jobs", 2)
    assert "grpo seed 0 finished" in output and "ours seed 0 finished" in output
    assert (workplace / "runs" / "comparison" / "report.html").exists()


def test_a_cluster_is_launched_on_the_installed_package(installed: Environment, workplace: Path) -> None:
    words = ("launch", "experiments/recipes/cluster/two_pools.yaml", "--nodes", "a,b,c,d", "--dry-run")
    lines = installed.finish(workplace, "halfway", *words).splitlines()
    ranks = [line for line in lines if "halfway.experiments.cli run" in line]
    recipe = installed.packages / "halfway" / "experiments" / "recipes" / "cluster" / "two_pools.yaml"
    assert len(ranks) == 1 and f" {recipe} " in ranks[0] and f"{installed.python} -m" in ranks[0]
    [extension] = {line.split("--worker-extension-cls=")[1].split()[0] for line in lines if "--worker-ext" in line}
    module, _, name = extension.rpartition(".")
    code = f"from importlib.util import find_spec; print(find_spec({module!r}).origin)"
    file = Path(installed.finish(workplace, "python", "-c", code).strip())
    assert file.is_relative_to(installed.packages)
    assert name in {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)}


def test_recipes_and_policies_come_with_the_wheel(installed: Environment, workplace: Path) -> None:
    # With the user's folder first on the path of modules, as `python -m` has it.
    recipes = ("experiments/recipes/quickstart.yaml", "experiments/recipes/propel/sums.yaml", "tiny.yaml")
    said = installed.finish(workplace, "python", "-m", "halfway.experiments.cli", "validate", *recipes)
    assert f"{recipes[0]}: a comparison of" in said and f"{recipes[1]}: a study of" in said


def defined_in(environment: Environment, folder: Path) -> Path:
    """Where an editor finds one of our classes, and that it knows the names of its methods."""
    project = jedi.Project(folder, environment_path=str(environment.python))
    script = jedi.Script("from halfway.controllers.greso import Greso\nGreso().obs", project=project)
    [found] = script.goto(1, 38, follow_imports=True)
    assert "observe" in {completion.name for completion in script.complete(2, 11)}
    return Path(found.module_path).resolve()


def test_an_editor_finds_where_things_are(
    installed: Environment, editable: Environment, source: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)  # of this process, for which jedi would take its word
    greso = Path("controllers", "greso.py")
    assert defined_in(installed, workplace) == (installed.packages / "halfway" / greso).resolve()
    assert defined_in(editable, workplace) == (source / greso).resolve()
    assert "floor=" in editable.finish(workplace, "halfway", "list", "greso")


CORE_SCRIPT = """
import pkgutil, sys
from importlib import import_module
import halfway.controllers, halfway.curriculum
from halfway.controllers import CONTROLLERS
from halfway.testing.controllers import plans_are_filled, trial_of

for room in (halfway.curriculum, halfway.controllers):
    for module in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
        if not module.name.endswith(".bayes_model"):
            import_module(module.name)
for name in CONTROLLERS.names():
    plans_are_filled(trial_of(CONTROLLERS.get(name)()))
    print(name)
print({"torch", "transformers", "accelerate", "mlflow", "scipy", "matplotlib", "omegaconf"} & set(sys.modules))
"""


def test_the_core_needs_what_it_declares_and_no_more(wheel: Path, workplace: Path) -> None:
    core = Environment(workplace / "core")
    venv.create(core.folder, symlinks=True)
    constraints = REPOSITORY / "constraints" / "tested.txt"
    pip("--python", core.python, "install", "--quiet", "--constraint", constraints, wheel)
    heavy = {"torch", "transformers", "accelerate", "mlflow", "scipy", "matplotlib", "omegaconf", "yaml"}
    assert not heavy & {path.name for path in core.packages.iterdir()}
    (workplace / "steer.py").write_text(CORE_SCRIPT)
    assert core.finish(workplace, "python", "steer.py").split() == [*CONTROLLERS.names(), "set()"]
    assert "floor=" in core.finish(workplace, "python", "-m", "halfway.experiments.cli", "list", "greso")
    rows = [f'{{"problem": "p", "step": {i // 4}, "reward": {i % 2}}}\n' for i in range(16)]
    (workplace / "log.jsonl").write_text("".join(rows))
    assert "0.0 % of 4 groups had zero variance" in core.finish(workplace, "halfway", "audit", "log.jsonl")
    refused = core.finish(workplace, "halfway", "run", "tiny.yaml", code=2)
    assert refused == "error: halfway run: needs the package omegaconf; pip install 'halfway[train]'\n"
