"""An engine from another package; engines whose packages are missing."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from installed_package import installed_part
from messages import says
from paths import REPOSITORY
from typer.testing import CliRunner, Result

from halfway.curriculum import UserError
from halfway.curriculum.support.components import plain
from halfway.experiments.cli import app
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.proving.prove import WAITS
from halfway.experiments.running.runs import CONFIG, prepare
from halfway.trainers.engines import ENGINES
from halfway.trainers.engines.contract import EngineSetup
from halfway.trainers.learner.deepspeed import build_accelerator
from halfway.trainers.learner.learner_options import DeepSpeedOptions, LearnerOptions

MODULE = '''
from dataclasses import dataclass
from typing import ClassVar

from halfway.curriculum.support.errors import require
from halfway.trainers.engines.contract import Engine
from halfway.trainers.engines.part import GIB, EngineMemory, EnginePart, Service

class Noted(Engine):
    """Another engine, with a note of every sync."""

    def __init__(self, engine, note):
        self.engine, self.note = engine, note

    def generate(self, *call):
        return self.engine.generate(*call)

    def sync(self, policy, version):
        self.engine.sync(policy, version)
        with open(self.note, "a") as file:
            file.write(f"{version} ")

@dataclass(frozen=True)
class Noting(EnginePart):
    """Writes down every weight sync.

    Attributes:
        note: file for it.
        table_gib: memory for a table of its own, GiB.
        at: where its servers answer.
        max_length: most tokens of prompt and response together.
    """

    placement: ClassVar = ("note", "at")
    address_option: ClassVar = "at"

    note: str = "note.txt"
    table_gib: float = 1.5
    at: tuple[str, ...] = ()
    max_length: int = 64

    def __post_init__(self):
        require(self.table_gib > 0, "noting.table_gib", self.table_gib, "give a positive number")

    def build(self, setup):
        from halfway.trainers.engines.transformers.engine import TransformersEngine

        return Noted(TransformersEngine(setup), self.note)

    def check(self, run):
        super().check(run)
        require(run.dtype == "float32", "model.dtype", run.dtype, "noting has float32 only")

    def memory(self, run, shape):
        table = {"table": self.table_gib * GIB}
        weights = {"copy of the weights": 4.0 * shape.weights}
        return EngineMemory(weights | table, table, {"notes": GIB}, "rollouts.engine.noting.table_gib")

    def services(self, run, host):
        return [Service(("noted", "--model", run.model_path), run.cluster.port + 7, {"TABLE": f"{self.table_gib:g}"})]
'''
NOTING = "rollouts.engine.noting"
RUN = """
problems: {source: running_sums, train: 40}
controllers: [uniform]
fill: {groups: 8}
rollouts: {num_rollouts: 4, max_response_tokens: 32, sync_tolerance: 1e-4, engine: {noting: {note: mine.txt}}}
learner: {lr: 1e-3}
budget: {steps: 2}
evaluation: {points: 0, problems: 0}
tracking: {mlflow: false}
threads: 1
"""
MODEL = (
    "{hidden_size: 1024, num_hidden_layers: 16, intermediate_size: 4096, num_attention_heads: 8, "
    "num_key_value_heads: 8, vocab_size: 65536}"
)
BIG = f"cluster={{device_gib: 80, host_gib: 64, devices_per_node: 2, model: {MODEL}}}"
WEIGHTS = 16 * (2 * 1024 * 128 * 16 + 3 * 1024 * 4096) + 2 * 65536 * 1024


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with installed_part(tmp_path, monkeypatch, ENGINES, MODULE, "noting", "Noting") as folder:
        (folder / "mine.yaml").write_text(RUN)
        yield folder


def halfway(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_it_runs_from_yaml_and_gets_the_versions(installed: Path) -> None:
    done = halfway("run", "mine.yaml")
    assert done.exit_code == 0, done.output
    decisions = [json.loads(line) for line in (installed / "runs/mine/decisions.jsonl").read_text().splitlines()]
    assert [record["policy_version"] for record in decisions] == [0] * 8 + [1] * 8
    assert (installed / "mine.txt").read_text() == "1 2 "
    kept = load_run_config(installed / "runs/mine" / CONFIG)
    options = {"note": "mine.txt", "table_gib": 1.5, "at": (), "max_length": 64}
    assert plain(kept.rollouts.engine) == {"noting": options}


def test_it_is_listed_with_its_options(installed: Path) -> None:
    listed = halfway("list", "engines").stdout
    assert "noting: Writes down every weight sync." in listed
    assert "table_gib=1.5: memory for a table of its own, GiB." in halfway("list", "noting").stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (f"{NOTING}.table=2", f"{NOTING}.table: unknown name 'table'; did you mean 'table_gib'"),
        (f"{NOTING}.table_gib=much", f"{NOTING}.table_gib: must be a number, not 'much'"),
        (f"{NOTING}.table_gib=-1", f"{NOTING}.table_gib: must be"),
        (f"{NOTING}.max_length=32", "rollouts.max_response_tokens: cannot be 32; the engine's max_length=32"),
        ("model={dtype: bfloat16, lora: {rank: 2}}", "model.dtype: cannot be 'bfloat16'; noting has float32"),
        ("rollouts.engine=nothing", "rollouts.engine: unknown name 'nothing'; did you mean 'noting'?"),
    ],
)
def test_its_options_and_its_own_demands_are_checked(installed: Path, change: str, message: str) -> None:
    refused = halfway("validate", "mine.yaml", change)
    assert refused.exit_code == 2 and len(refused.stderr.splitlines()) == 1
    assert message in refused.stderr


def test_its_memory_is_estimated_as_it_says(installed: Path) -> None:
    fits = halfway("validate", "mine.yaml", BIG).stdout
    weights = 4 * WEIGHTS / 2**30
    assert f"copy of the weights {weights:.1f} + table 1.5" in fits.splitlines()[2]
    update, rollouts, host = fits.splitlines()[1:4]
    assert "in the update" in update and "table 1.5" in update and "copy of the weights" not in update
    assert "in the rollouts" in rollouts and "cache" not in rollouts  # as any engine of vLLM has
    assert "notes 2.0" in host  # one for each of two devices
    refused = halfway("validate", "mine.yaml", BIG, "rollouts.engine.noting.table_gib=90")
    assert refused.exit_code == 2 and "table 90.0" in refused.stderr
    assert refused.stderr.strip().endswith("or lower learner.max_microbatch_tokens or rollouts.engine.noting.table_gib")


def test_its_servers_are_launched_and_their_addresses_change_no_run(installed: Path) -> None:
    pools = ["cluster.rollout_nodes=2", "cluster.port=4000"]
    lines = halfway("launch", "mine.yaml", *pools, "--nodes", "a,b,c", "--dry-run").stdout.splitlines()
    model = load_run_config(installed / "mine.yaml").model.path
    server, ranks = lines
    assert server == f"2 x server on b,c: PYTHONSAFEPATH=1 TABLE=1.5 noted --model {model}"
    assert ranks.startswith("1 x training host on a: ")
    assert ranks.endswith("'rollouts.engine.noting.at=[b:4007,c:4007]'")
    first, second = (
        load_run_config(installed / "mine.yaml", [f"rollouts.engine.noting.at=[{host}:1]"]) for host in "xy"
    )
    prepare(first, first.folder)
    prepare(second, second.folder)
    engine: Any = load_run_config(second.folder / CONFIG).rollouts.engine.part
    assert engine.at == ("y:1",)


def test_without_the_package_the_name_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(RUN)
    refused = halfway("validate", str(tmp_path / "mine.yaml"))
    assert refused.exit_code == 2 and "rollouts.engine: unknown name 'noting'" in refused.stderr


def test_a_part_that_is_not_an_engine_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES._added, "function", lambda setup: None)
    refused = halfway("validate", str(REPOSITORY / "experiments/recipes/lab/sums.yaml"), "rollouts.engine=function")
    assert refused.exit_code == 2 and "rollouts.engine: 'function' is not a dataclass of options" in refused.stderr


@pytest.mark.parametrize(("name", "options"), [("vllm", []), ("vllm_servers", ["folder"])])
def test_a_missing_vllm_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, name: str, options: list[str], tmp_path: Any
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    policy: Any = SimpleNamespace(dtype=torch.float32)
    with pytest.raises(UserError) as raised:
        ENGINES.get(name)(**dict.fromkeys(options, str(tmp_path))).build(EngineSetup(policy, "model", [1], 0))
    assert re.search(says("rollouts.engine", repr(name), "vllm", "pip install 'halfway[vllm]'"), str(raised.value))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_deepspeed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("deepspeed", "ninja"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "DS_ACCELERATOR", "PATH"):
        monkeypatch.setenv(name, "0")  # so that what the call sets is undone
    with pytest.raises(UserError, match=says("learner.deepspeed", "ninja", "pip install 'halfway[deepspeed]")):
        build_accelerator(LearnerOptions(deepspeed=DeepSpeedOptions(2)), bfloat16=False)


def test_a_lock_that_a_killed_compiler_left_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from halfway.trainers.learner.deepspeed import report_locks

    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    report_locks()
    assert capsys.readouterr().err == ""
    lock = tmp_path / "py311_cpu" / "deepspeed_shm_comm" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    report_locks()
    said = capsys.readouterr().err
    assert said.startswith(WAITS) and said.endswith(f"remove {lock}\n")


def test_a_plain_learner_and_engine_import_neither() -> None:
    program = (
        "import sys, halfway.experiments.running.build, halfway.experiments.cli\n"
        "import halfway.trainers.distributed.workers, halfway.trainers.learner.learner\n"
        "import halfway.trainers.engines.transformers.engine\n"
        "print([name for name in ('vllm', 'deepspeed', 'mlflow', 'ray') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
