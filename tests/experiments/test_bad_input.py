"""What goes wrong in practice, tried through the command line: one line each, and nothing saved is lost."""

import errno
import json
import os
import re
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from controller_harness import coin
from paths import REPOSITORY
from typer.testing import CliRunner, Result

from halfway.curriculum import Problem, UserError
from halfway.curriculum.boxes import sandbox
from halfway.curriculum.tasks.verifiers.verify import VERIFIERS
from halfway.experiments.cli import app
from halfway.experiments.config.paths import find_model
from halfway.experiments.running import build
from halfway.trainers.engines.transformers.engine import TransformersEngine
from halfway.trainers.learner import passes
from halfway.trainers.learner.learner import PolicyGradientLearner
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.loop.checkpoint import Checkpoints
from halfway.trainers.loop.loop_options import CheckpointOptions
from halfway.trainers.policy import ModelOptions, load_policy

RUN = """
problems: {source: {file: {path: problems.jsonl, verifier: coin}}}
model: {path: experiments/starting_models/sums}
controllers: [uniform]
fill: {groups: 3}
rollouts: {num_rollouts: 4, temperature: 1.5, max_response_tokens: 24}
learner: {lr: 1e-3}
budget: {steps: 4}
evaluation: {points: 0, problems: 0}
checkpoint: {every: 1, keep: 9}
tracking: {mlflow: false}
threads: 1
"""
SUMS = ("^1/1a2b3c1d4=", "^4/1a1b2c3d3=", "^2/0a2b1c1d5=", "^7/2a1b1c5d2=")
"""Sheets short enough to be answered in a few tokens; the coin of `controller_harness` makes their groups worth
training on."""


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    """A run makes torch deterministic for the whole process."""
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return start(tmp_path, monkeypatch)


def start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder that holds the YAML file of a run and its problems."""
    monkeypatch.chdir(folder)
    monkeypatch.setitem(VERIFIERS._added, "coin", coin)
    write_rows(folder, [{"prompt": prompt, "answer": "2"} for prompt in SUMS])
    path = folder / "run.yaml"
    path.write_text(RUN)
    return path


def write_rows(folder: Path, rows: list[dict[str, str]]) -> None:
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def halfway(*words: object) -> Result:
    return CliRunner().invoke(app, list(map(str, words)))


def complaint(*words: object) -> str:
    """The one line with which a command refuses or stops."""
    result = halfway(*words)
    assert result.exit_code == 2, result.output + str(result.exception)
    [line] = [line for line in result.stderr.splitlines() if not line.startswith("step ")]
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def saved_steps(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in (folder / "checkpoints").iterdir())


def decisions(folder: Path) -> bytes:
    return (folder / "decisions.jsonl").read_bytes()


def weights(folder: Path) -> bytes:
    return (folder / "checkpoints" / "step-00000004" / "policy" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that nothing stops."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        assert halfway("run", start(folder, patch)).exit_code == 0
    assert decisions(folder / "runs/run").count(b'"outcome":"trained"') >= 4
    return folder / "runs/run"


def test_the_policy_of_a_checkpoint_loads_by_itself(undisturbed: Path) -> None:
    path = str(undisturbed / "checkpoints" / "step-00000004" / "policy")
    loaded, start = (
        load_policy(ModelOptions(path=it), it) for it in (path, find_model("experiments/starting_models/sums"))
    )
    assert loaded.tokenizer.encode("1+2=") == start.tokenizer.encode("1+2=") != []
    assert loaded.end_tokens == start.end_tokens


def assert_goes_on_as_if_nothing_had_happened(undisturbed: Path) -> None:
    """The stopped run, resumed, ends like the run that was never stopped."""
    resumed = halfway("resume", "runs/run")
    assert resumed.exit_code == 0, resumed.output
    assert decisions(Path("runs/run")) == decisions(undisturbed)
    assert weights(Path("runs/run")) == weights(undisturbed)


@pytest.mark.parametrize(
    ("override", "field", "value", "remedy"),
    [
        ("controllers=[unifrom]", "controllers", "'unifrom'", "did you mean 'uniform'?"),
        (
            "controllers=[prefix_sampling, {again: {use: prefix_sampling}}, uniform]",
            "controllers",
            "prefix_sampling and again both own the prefixes",
            "keep only one",
        ),
        (
            "controllers=[uniform, rounds, ngu, pilot]",
            "controllers",
            "rounds, ngu and pilot all own the rollouts",
            "keep only one",
        ),
        ("controllers=[uniform, greso, greso]", "controllers", "two members are called 'greso'", "{use: CONTROLLER}"),
        (
            "controllers=[{x: {use: uniform}}, {x: {use: greso}}]",
            "controllers",
            "two members are called 'x'",
            "{use: CONTROLLER}",
        ),
        ("rollouts.num_rollouts=1", "rollouts.num_rollouts", "1", "at least 2"),
        ("problems.source.file.verifier=coins", "problems.source.file.verifier", "'coins'", "did you mean 'coin'?"),
    ],
)
def test_a_configuration_that_cannot_work(run_file: Path, override: str, field: str, value: str, remedy: str) -> None:
    line = complaint("run", run_file, override)
    assert line.startswith(f"{field}: ") and value in line and remedy in line
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("rows", "where", "what", "remedy"),
    [
        ([], "problems.jsonl", "no rows", "at least one problem"),
        (
            [{"prompt": "1+1", "answer": "2"}, {"prompt": "1+2"}],
            "problems.jsonl:2",
            "no answer (the row has prompt)",
            "on_bad_row to drop",
        ),
        ([{"prompt": "1+1", "answer": " "}], "problems.jsonl:1", "empty answer", "no row is left"),
        ([{"question": "1+1"}], "problems.jsonl:1", "no answer (the row has question)", "answer_column"),
    ],
)
def test_a_problem_file_that_cannot_be_used(
    run_file: Path, rows: list[dict[str, str]], where: str, what: str, remedy: str
) -> None:
    write_rows(run_file.parent, rows)
    line = complaint("run", run_file)
    assert line.startswith(f"{run_file.parent / where}: ") and what in line and remedy in line


@pytest.mark.parametrize(
    ("changes", "field", "what"),
    [
        (["model.path=./absent"], "model.path", "'./absent' is not a folder"),
        (["model.path=."], "model.path", "holds no config.json"),
        (["problems.source.file.path=absent.jsonl"], "problem file", "'absent.jsonl' does not exist"),
        (["environment=ledger"], "environment", "'ledger' does not suit the problems of problems.source"),
        (["problems.source=ledger", "problems.train=4"], "environment", "'single_turn' does not suit"),
        (["problems.source=running_sums"], "source running_sums", "set problems.train"),
        (["controllers=[pros: {prior: probed}]"], "problems.source", "halfway propel export"),
        (["rollouts.max_response_tokens=256"], "rollouts.max_response_tokens", "256 tokens of prompt and response"),
        (["controllers=[uniform, pilot]", "rollouts.num_rollouts=4"], "pilot.initial", "below N, which is 4"),
    ],
)
def test_validate_refuses_what_a_run_would(run_file: Path, changes: list[str], field: str, what: str) -> None:
    line = complaint("validate", run_file, *changes)
    place, _, said = line.partition(f": {field}: ")
    assert re.fullmatch(rf"{run_file}(:\d+)?", place) and what in said, line


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_machine_that_cannot_run_the_environment(
    run_file: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Refused before a model is loaded, and before a comparison has a folder."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    sandbox._get_sandbox.cache_clear()  # a sandbox that earlier tests have started would do
    monkeypatch.setattr(build, "load_policy", lambda *_: pytest.fail("a model was loaded"))
    python = sys.base_prefix  # the tests' own environment may be below /tmp, which is another mistake
    run_file.write_text(f"{RUN}environment: {{repository: {{box: {{bubblewrap: {{python: {python}}}}}}}}}\n")
    if command == "compare":
        Path("compare.yaml").write_text("base: {base: run.yaml}\narms: {one: {}}\nseeds: [0]\nbudget: {steps: 4}\n")
    line = complaint(command, f"{command}.yaml")
    assert "no bwrap on the path" in line
    assert command == "run" or not Path("runs").exists()


def test_a_model_without_a_tokenizer(run_file: Path) -> None:
    """`transformers` makes an empty one, with which every prompt would be empty."""
    base = REPOSITORY / "experiments" / "starting_models" / "sums"
    Path("model").mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(base / name, Path("model", name))
    line = complaint("run", run_file, "model.path=model")
    assert line.startswith("model.path: '") and "model' holds no tokenizer; save that of the model there" in line


@pytest.mark.parametrize("command", ["validate", "run"])
def test_a_prompt_that_the_tokenizer_cannot_encode(run_file: Path, command: str) -> None:
    prompts = ("^1/1a2b3c1d4=", "^1/1 \N{SNOWMAN} =", "^2/0a2b1c1d5=")
    write_rows(run_file.parent, [{"prompt": prompt, "answer": "2"} for prompt in prompts])
    message = complaint(command, run_file)
    assert "tokenizer" in message and "\N{SNOWMAN}" in message


def test_validate_refuses_a_prompt_that_leaves_no_room_for_a_response(run_file: Path) -> None:
    write_rows(run_file.parent, [{"prompt": "1" * 5000, "answer": "2"}])
    message = complaint("validate", run_file)
    assert "rollouts.max_response_tokens: cannot be 24" in message and "has 5000 tokens" in message


def test_validate_names_the_arm_that_cannot_run(run_file: Path) -> None:
    arms = run_file.with_name("arms.yaml")
    arms.write_text("base: run.yaml\nseeds: [0]\narms: {fine: {}, wrong: {environment: ledger}}\n")
    assert complaint("validate", arms).startswith(f"{arms}:3: arms.wrong: environment: 'ledger'")


def test_validate_warns_of_what_is_on_another_machine(run_file: Path) -> None:
    hub = halfway("validate", run_file, "model.path=owner/name")
    assert hub.exit_code == 0 and "warning: model.path: 'owner/name' is taken for a name on a hub" in hub.stdout
    elsewhere = ["cluster.device_gib=80", "model.path=/nowhere/model", "problems.source.file.path=data/absent.jsonl"]
    cluster = halfway("validate", run_file, *elsewhere)
    assert cluster.exit_code == 0, cluster.output
    assert "model.path: '/nowhere/model' is not on this machine; the model was not checked" in cluster.stdout
    assert "problems.source.file.path: 'data/absent.jsonl' is not on this machine; the problems were" in cluster.stdout
    assert "warning" not in halfway("validate", run_file).output


def test_a_verifier_that_raises_stops_the_run(
    run_file: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def brittle(problem: Problem, response: str) -> bool:
        if saved_steps(Path("runs/run"))[-1:] == [2] and problem.prompt == SUMS[1]:
            raise ZeroDivisionError("a digit\nof zero")
        return coin(problem, response)

    Path("runs/run/checkpoints").mkdir(parents=True)
    monkeypatch.setitem(VERIFIERS._added, "coin", brittle)
    line = complaint("run", run_file)
    assert line.startswith("verifier coin: raised ZeroDivisionError: a digit of zero on problem 'problems-")
    assert "another verifier" in line and saved_steps(Path("runs/run")) == [1, 2]
    assert json.loads(Path("runs/run/status.json").read_text())["state"] == "failed"
    monkeypatch.setitem(VERIFIERS._added, "coin", coin)
    assert_goes_on_as_if_nothing_had_happened(undisturbed)


def test_a_loss_that_is_not_a_number_stops_the_run(
    run_file: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = passes.policy_loss

    def broken(*arguments: Any) -> Any:
        loss, sums = compute(*arguments)
        return loss * (float("nan") if saved_steps(Path("runs/run"))[-1:] == [2] else 1.0), sums

    Path("runs/run/checkpoints").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(passes, "policy_loss", broken)
        line = complaint("run", run_file)
    assert line.startswith("learner: the loss is nan at update 3; lower learner.lr")
    assert "last checkpoint" in line and saved_steps(Path("runs/run")) == [1, 2]
    assert_goes_on_as_if_nothing_had_happened(undisturbed)


def test_weights_that_have_diverged_stop_the_run(
    run_file: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate, calls = TransformersEngine.generate, []

    def broken(self: TransformersEngine, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            with torch.no_grad():
                next(self.policy.parameters()).fill_(torch.inf)
        return generate(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TransformersEngine, "generate", broken)
        line = complaint("run", run_file)
    assert line.startswith("rollouts: FloatingPointError: ") and "lower learner.lr" in line
    assert saved_steps(Path("runs/run")) == [1, 2]
    assert_goes_on_as_if_nothing_had_happened(undisturbed)


def test_a_full_disk_while_writing_a_checkpoint(
    run_file: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = PolicyGradientLearner.save

    def full(self: PolicyGradientLearner, folder: Path) -> None:
        save(self, folder)
        if "00000003" in folder.name:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(PolicyGradientLearner, "save", full)
        line = complaint("run", run_file)
    assert line == (
        "checkpoint: runs/run/checkpoints/step-00000003 cannot be written (No space left on device); "
        "the checkpoint of step 2 is intact; make room for it and resume"
    )
    assert saved_steps(Path("runs/run")) == [1, 2]  # and no half-written file beside them
    assert_goes_on_as_if_nothing_had_happened(undisturbed)


def test_a_finished_run_whose_budget_was_raised_is_trained_on(run_file: Path, undisturbed: Path) -> None:
    shutil.copytree(undisturbed, "runs/run")
    assert "already finished" in halfway("resume", "runs/run").output
    config = Path("runs/run/config.yaml")
    assert "steps: 4" in config.read_text()
    config.write_text(config.read_text().replace("steps: 4", "steps: 5"))
    done = halfway("resume", "runs/run")
    assert done.exit_code == 0, done.output
    assert len(Path("runs/run/steps.jsonl").read_text().splitlines()) == 5
    assert decisions(Path("runs/run")).startswith(decisions(undisturbed))


def removed(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    place = Random(path.name).randrange(8 * len(content))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [removed, emptied, cut, flipped])
def test_every_damage_to_a_checkpoint_names_the_file_and_the_way_back(
    run_file: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None]
) -> None:
    shutil.copytree(undisturbed, "runs/run")
    monkeypatch.setattr(PolicyGradientLearner, "load", None)  # nothing is read
    folder = Path("runs/run/checkpoints/step-00000004")
    checkpoints = Checkpoints(folder.parent, CheckpointOptions())
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
    assert {"manifest.txt", "loop.json", "optimizer.pt", "config.json", "model.safetensors"} < {p.name for p in files}
    for path in files:
        sound = path.read_bytes()
        harm(path)
        with pytest.raises(UserError) as error, checkpoints.reading(folder):
            pass
        line = str(error.value)
        assert line.startswith(f"checkpoint: {folder}: {path.relative_to(folder)} ") and "\n" not in line
        assert "`halfway resume runs/run --from 3`" in line
        path.write_bytes(sound)
    with checkpoints.reading(folder):
        pass


@pytest.mark.parametrize(
    ("file", "harm"), [("policy/config.json", removed), ("policy/model.safetensors", flipped), ("manifest.txt", cut)]
)
def test_a_run_goes_back_to_the_newest_sound_checkpoint_and_on_to_the_same_bits(
    run_file: Path, undisturbed: Path, file: str, harm: Callable[[Path], None]
) -> None:
    shutil.copytree(undisturbed, "runs/run")
    Path("runs/run/status.json").unlink()
    for step in (4, 3):
        harm(Path(f"runs/run/checkpoints/step-0000000{step}") / file)
    line = complaint("resume", "runs/run")
    assert line.startswith(f"checkpoint: runs/run/checkpoints/step-00000004: {file} ")
    assert line.endswith("resume from the checkpoint of step 2 (`halfway resume runs/run --from 2` does both)")
    assert decisions(Path("runs/run")) == decisions(undisturbed)
    assert "step-00000003: " in complaint("resume", "runs/run", "--from", 3)
    resumed = halfway("resume", "runs/run", "--from", 2)
    assert resumed.exit_code == 0, resumed.output
    assert decisions(Path("runs/run")) == decisions(undisturbed)
    assert weights(Path("runs/run")) == weights(undisturbed)
    kept = sorted(path.name for path in Path("runs/run/checkpoints").iterdir())
    assert kept == [*(f"left-0000000{n}" for n in (3, 4)), *(f"step-0000000{n}" for n in (1, 2, 3, 4))]


def test_a_run_goes_back_to_a_step_that_it_has(run_file: Path, undisturbed: Path) -> None:
    shutil.copytree(undisturbed, "runs/run")
    assert complaint("resume", "runs/run", "--from", 7) == (
        "--from: runs/run/checkpoints has no checkpoint of step 7; there are those of 1, 2, 3, 4"
    )
    assert halfway("resume", "runs/run", "--from", 0).exit_code == 0  # though it was finished
    assert decisions(Path("runs/run")) == decisions(undisturbed)


@pytest.mark.parametrize("content", ["{", "[]", "", "4", '{"state"', "[" * 5000])
@pytest.mark.parametrize("name", ["status.json", "provenance.json", "steps.jsonl"])
def test_a_damaged_file_of_a_run_is_one_line_before_any_training(
    run_file: Path, undisturbed: Path, name: str, content: str
) -> None:
    shutil.copytree(undisturbed, "runs/run")
    Path("runs/run/status.json").unlink()
    Path("runs/run", name).write_text(content + "\n" * (name == "steps.jsonl"))
    line = complaint("resume", "runs/run")
    short = f": has {len(content) + 1} bytes, but had "
    assert line.startswith(f"runs/run/{name}: ") and ("damaged" in line or short in line)
    assert decisions(Path("runs/run")) == decisions(undisturbed)


@pytest.mark.parametrize("name", ["decisions", "steps"])
def test_a_cut_log_is_one_line_before_any_training(run_file: Path, undisturbed: Path, name: str) -> None:
    shutil.copytree(undisturbed, "runs/run")
    Path("runs/run/status.json").unlink()
    log = Path(f"runs/run/{name}.jsonl")
    whole = log.read_bytes()
    log.write_bytes(whole[: whole.rindex(b"\n", 0, -1) + 1])
    sizes = f"has {log.stat().st_size} bytes, but had {len(whole)} when its checkpoint was written"
    assert complaint("resume", "runs/run").startswith(f"runs/run/{name}.jsonl: {sizes}")


@pytest.mark.parametrize("name", ["step-abc", "step-4", "step-"])
def test_a_folder_with_no_name_of_a_checkpoint_is_one_line(run_file: Path, undisturbed: Path, name: str) -> None:
    shutil.copytree(undisturbed, "runs/run")
    Path("runs/run/status.json").unlink()
    Path("runs/run/checkpoints", name).mkdir()
    line = complaint("resume", "runs/run")
    assert line == (
        f"checkpoint: runs/run/checkpoints/{name} is not the name of a checkpoint; move it elsewhere and resume"
    )


def test_weights_without_a_configuration_are_read_as_this_runs_model(undisturbed: Path, tmp_path: Path) -> None:
    """The default of the model's class has billions of weights."""
    folder = shutil.copytree(undisturbed / "checkpoints" / "step-00000004", tmp_path / "step")
    (folder / "policy" / "config.json").unlink()
    policy = load_policy(ModelOptions(), find_model("experiments/starting_models/sums"))
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + 2**31, hard))
    try:
        PolicyGradientLearner(policy.model, LearnerOptions(), policy.padding).load(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def test_a_run_directory_that_does_not_belong_to_its_configuration(run_file: Path) -> None:
    assert halfway("run", run_file, "budget.steps=2").exit_code == 0
    config = Path("runs/run/config.yaml")
    original = config.read_text().replace("steps: 2", "steps: 4")

    Path("runs/run/status.json").unlink()
    config.write_text(original.replace("- uniform: {}", "- draw: {use: uniform}"))
    line = complaint("resume", "runs/run")
    assert line.startswith("checkpoint: its controller members are ['uniform'], the configuration has ['draw']; resume")

    config.write_text(original)
    rows = [json.loads(line) for line in Path("problems.jsonl").read_text().splitlines()]
    write_rows(run_file.parent, rows[:-1])
    assert complaint("resume", "runs/run").startswith("problems: the 3 training problems differ from the saved")
    write_rows(run_file.parent, rows)
    assert halfway("resume", "runs/run").exit_code == 0


def test_errors_of_the_operating_system_are_one_line(run_file: Path) -> None:
    Path("runs").write_text("a file where a folder should be")
    line = complaint("run", run_file)
    assert "runs" in line and "check disk space, permissions and the path" in line
