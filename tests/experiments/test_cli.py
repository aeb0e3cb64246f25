"""The command line: quick and light where it has to be, one line for every mistake."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from paths import IMPORTABLE, REPOSITORY
from typer.testing import CliRunner, Result

from halfway import __version__
from halfway.controllers import CONTROLLERS
from halfway.curriculum import UserError
from halfway.experiments import cli
from halfway.experiments.cli import app, resume_command, split_seeds, stoppable
from halfway.experiments.config.loading import load_run_config

SUMS = REPOSITORY / "experiments" / "recipes" / "propel" / "sums.yaml"
LAB = SUMS.parent.parent / "lab" / "sums.yaml"
RUN = "problems: {source: running_sums, train: 8}\ncontrollers: [uniform]\nbudget: {steps: 2}\n"


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.yaml"
    path.write_text(RUN)
    return path


def halfway(*words: object) -> Result:
    return CliRunner().invoke(app, list(map(str, words)), prog_name="halfway")


def complaint(*words: object) -> str:
    """The one line that a refused command leaves on stderr."""
    result = halfway(*words)
    assert result.exit_code == 2, result.output
    [line] = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_help_needs_no_heavy_import() -> None:
    light = "import sys; from halfway.experiments.cli import app; " + (
        "[app([*words, '--help'], standalone_mode=False) for words in ([], ['run'], ['compare'])]; "
        "heavy = {'torch', 'transformers', 'mlflow', 'matplotlib', 'numpy', 'omegaconf'} & set(sys.modules); "
        "print('HEAVY', sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", light], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.count("Usage") == 3 and "HEAVY []" in done.stdout, done.stdout


def test_checks_and_lists_need_no_heavy_import(run_file: Path) -> None:
    script = (
        "import sys; from halfway.experiments.cli import app\n"
        f"app(['validate', {str(run_file)!r}], standalone_mode=False)\n"
        "app(['list'], standalone_mode=False)\n"
        "print('HEAVY', sorted({'torch', 'transformers', 'mlflow', 'matplotlib', 'reasoning_gym'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert "ok: " in done.stdout and "HEAVY []" in done.stdout, done.stdout


def test_validate_warns_of_arms_that_are_judged_on_other_problems(tmp_path: Path) -> None:
    path = tmp_path / "duel.yaml"
    path.write_text(f"base: {{base: {LAB}}}\nseeds: [0]\narms: {{a: {{}}, b: {{problems: {{seed: 7}}}}, c: {{}}}}\n")
    words = " ".join(halfway("validate", path).output.split())
    assert "arms.b: " in words and "held-out problems" in words and "arms.c" not in words


def test_validate_names_the_kind_of_each_file_and_refuses_the_bad_ones(run_file: Path) -> None:
    comparison = run_file.with_name("comparison.yaml")
    comparison.write_text("base: run.yaml\nseeds: [0, 1]\narms: {a: {}, b: {learner: {lr: 1e-3}}}\n")
    good = halfway("validate", run_file, comparison)
    assert good.exit_code == 0
    assert "a run of uniform, 2 steps" in good.stdout and "2 arms x 2 seeds = 4 runs" in good.stdout
    bad = run_file.with_name("bad.yaml")
    bad.write_text(RUN + "sed: 1\n")
    mixed = halfway("validate", bad, run_file)
    assert mixed.exit_code == 2 and "'seed'" in mixed.stderr and f"ok: {run_file}" in mixed.stdout
    absent = run_file.with_name("absent.yaml")
    assert complaint("validate", absent) == f"error: {absent}: no such file"


def test_validate_takes_changes_as_run_does(run_file: Path) -> None:
    assert "a run of uniform, 7 steps" in halfway("validate", run_file, "budget.steps=7").stdout
    assert "rollouts.num_rollouts: must be at least 2, not 1" in complaint(
        "validate", run_file, "rollouts.num_rollouts=1"
    )
    assert "give a YAML file" in complaint("validate", "seed=1")
    assert "x 1 seeds, sums" in halfway("validate", SUMS, "seeds=[0]").stdout


@pytest.mark.parametrize("command", ["run", "compare", "launch"])
def test_studies_and_runs_are_distinguished(run_file: Path, command: str) -> None:
    assert complaint(command, SUMS).endswith(f"use `halfway propel all {SUMS}`")
    assert complaint("propel", "all", run_file).endswith(
        f"not a study of task generators; use `halfway run {run_file}`"
    )
    comparison = run_file.with_name("comparison.yaml")
    comparison.write_text("base: run.yaml\nseeds: [0]\narms: {a: {}}\n")
    assert complaint("propel", "all", comparison).endswith(f"use `halfway compare {comparison}`")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["foo"], "propel: unknown name 'foo'"),
        (["train", "--arm", "nope"], "--arm: unknown name 'nope'"),
        (["all", "--arm", "base"], "is the base generator, which is not trained"),
        (["corpus", "--run", "run.yaml"], "goes with `halfway propel export` alone"),
    ],
)
def test_propel_refuses_before_it_writes(run_file: Path, words: list[str], message: str) -> None:
    stage, *options = words
    assert message in complaint("propel", stage, SUMS, f"output={run_file.parent / 'out'}", *options)
    assert not (run_file.parent / "out").exists()


def test_list_shows_names_options_and_defaults() -> None:
    everything = halfway("list").stdout
    for heading in ("controllers", "sources", "verifiers", "environments", "engines"):
        assert f"{heading}\n" in everything
    some = halfway("list", "controllers").stdout
    assert "  greso: " in some and "running_sums" not in some
    assert len(some.splitlines()) == len(CONTROLLERS.names()) + 3, "two headings, one line for each, and a hint"
    assert "target=0.25" in halfway("list", "greso").stdout
    assert "  transformers: " in halfway("list", "engines").stdout
    assert "'verifiers'" in complaint("list", "verifier")
    assert "  function_induction: Judge each response: its function must give" in everything
    assert "  learner: Options of GRPO" in everything


def test_list_finds_a_paper_that_only_an_explanation_mentions() -> None:
    found = halfway("list", "ReMind").stdout.splitlines()
    assert found[:1] == ["controllers"] and found[1].startswith("  retire: ") and len(found) == 3
    assert "in ReMind's runs (2606.03087), 21 % of the mastered problems" in found[2]
    for name in ("2609.38018", "ARCUS", "arcus"):
        assert "ARCUS (2609.38018)" in halfway("list", name).stdout
    assert found[2].endswith("had been partly forgotten.")
    assert "unknown name 'Replayed'" in complaint("list", "Replayed")


def test_list_explains_the_options_of_one() -> None:
    for name in ("problems", "budget", "model", "fill", "rollouts", "learner", "evaluation", "checkpoint", "cluster"):
        lines = halfway("list", name).stdout.splitlines()
        assert lines[:2] == ["settings", lines[1]] and lines[1].startswith(f"  {name}: ")
        assert all(": " in line for line in lines[2:]) and len(lines) > 3, lines
    learner = halfway("list", "learner").stdout
    assert "    deepspeed.offload_optimizer=false: true = keep the optimizer" in learner
    assert (
        "    schedule=constant: learning-rate" in learner
        and "betas=[0.9, 0.95], eps=1e-08, weight_decay=0.0: settings of AdamW." in learner
    )
    both = halfway("list", "running_sums").stdout
    assert "sources\n" in both and "verifiers\n" in both and "min_lines=8, max_lines=12: lines per sheet" in both
    pool = halfway("list", "pool").stdout
    assert "id_column=id: column of stable, unique ids; empty = a hash of the content." in pool


def test_list_keeps_every_option_on_a_line_and_shows_empty_defaults() -> None:
    retire = halfway("list", "retire").stdout
    assert "belief.bayes.mu=0.0, belief.bayes.tau=1.5: mean and standard deviation" in retire
    assert retire.count("mean and standard deviation of the roots") == 1
    hints = halfway("list", "hints").stdout
    assert "low=0.2, high=0.6: " in hints and 'separator="", width=0, shortest=1: ' in hints
    assert r'seed_functions=["def f(a):\n    return a"]: ' in halfway("list", "function_induction").stdout


def test_mistakes_are_one_line(run_file: Path) -> None:
    assert "'uniform'" in complaint("run", run_file, "controllers=[unifrom]")
    assert "rollouts.num_rollouts: must be at least 2, not 1" in complaint("run", run_file, "rollouts.num_rollouts=1")
    assert "'lr'" in complaint("run", run_file, "learner.lrr=3e-4")
    assert "no such file" in complaint("run", run_file.with_name("absent.yaml"))
    assert "halfway run" in complaint("compare", run_file)
    assert "no run or comparison here" in complaint("resume", run_file.parent)
    assert "no run or comparison here" in complaint("report", run_file.parent)
    assert not (run_file.parent / "runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("compare run.yaml --jobs 0", "--jobs: must be at least 1, not '0'"),
        ("resume runs --jobs -1", "--jobs: must be at least 1, not '-1'"),
        ("compare run.yaml --jobs x", "--jobs: must be a valid integer, not 'x'"),
        ("audit log --hours -1", "--hours: must be at least 0, not '-1'"),
        ("compare run.yaml --jobs", "option '--jobs' requires an argument; see `halfway --help`"),
        ("compare", "halfway compare: missing argument 'FILE'; see `halfway compare --help`"),
        ("compare run.yaml --job 2", "halfway compare: no such option: --job (Possible options: --jobs"),
        ("comapre run.yaml", "halfway: no such command 'comapre'. Did you mean 'compare'?"),
        ("run run.yaml --seed 1", "halfway run: --seed is a field, not an option; write seed=1"),
        ("run run.yaml --learner.lr=1", "halfway run: --learner.lr is a field, not an option; write learner.lr=1"),
        ("launch run.yaml --model", "halfway launch: --model is a field, not an option; write model=..."),
        ("compare run.yaml --seed 1", "halfway compare: no such option: --seed (Possible options: --seeds"),
        ("list --seed 1", "halfway list: no such option: --seed; see `halfway list --help`"),
        ("--nothing", "halfway: no such option: --nothing; see `halfway --help`"),
    ],
)
def test_words_that_cannot_be_read_are_refused_in_one_line(words: str, message: str) -> None:
    assert message in complaint(*words.split())


def test_version_and_short_help() -> None:
    assert halfway("--version").stdout == f"halfway {__version__}\n"
    assert halfway("run", "-h").stdout == halfway("run", "--help").stdout


def test_stdout_has_only_the_json_result(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("".join(f'{{"problem": "p", "step": {i // 4}, "reward": {i % 2}}}\n' for i in range(16)))
    assert json.loads(halfway("audit", log, "--json").stdout)["logs"][0]["findings"]["groups"] == 4
    short, long = halfway("audit", log).stdout, halfway("audit", log, "--full").stdout
    assert "0.0 % of 4 groups had zero variance" in short and "--full" in short and len(short.splitlines()) < 16
    assert "Zero-variance groups over time" in long and "Zero-variance groups over time" not in short
    rooms = json.loads(halfway("list", "controllers", "--json").stdout)
    assert {part["name"] for parts in rooms.values() for part in parts} == set(CONTROLLERS.names())


def test_the_command_alone_shows_its_help() -> None:
    done = halfway()
    assert "Usage: halfway" in done.stdout and not done.stderr


def test_a_model_that_is_not_there_is_refused_before_anything_heavy(run_file: Path) -> None:
    script = (
        "import sys; from halfway.experiments.cli import main\n"
        f"sys.argv = ['halfway', 'run', {str(run_file)!r}, 'model.path=./absent', 'tracking.mlflow=false']\n"
        "try: main()\n"
        "except SystemExit as stop: print('CODE', stop.code, 'torch' in sys.modules)"
    )
    environment = {"PYTHONPATH": IMPORTABLE, "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=run_file.parent, env=environment, capture_output=True, text=True, check=True
    )
    assert "CODE 2 False" in done.stdout
    [line] = done.stderr.splitlines()
    assert "model.path: './absent' is not a folder" in line


def test_a_directory_of_another_run_is_not_overwritten(run_file: Path) -> None:
    complaint("run", run_file, "model.path=./absent", "tracking.mlflow=false")
    Path("runs/run/evaluations.jsonl").write_text("{}\n")
    refused = complaint("run", run_file, "model.path=./absent", "tracking.mlflow=false", "seed=1", "learner.lr=1")
    assert "seed: runs/run was started with 0, not 1 (further differences: 1)" in refused
    assert "halfway resume runs/run" in refused and "name=" in refused


def test_a_run_that_has_recorded_nothing_takes_the_corrected_settings(run_file: Path) -> None:
    complaint("run", run_file, "model.path=./absent", "tracking.mlflow=false")
    again = complaint("run", run_file, "model.path=./elsewhere", "tracking.mlflow=false")
    assert "model.path: './elsewhere' is not a folder" in again
    assert load_run_config(Path("runs/run/config.yaml")).model.path == "./elsewhere"


def test_a_command_to_continue_can_be_pasted(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), stoppable(resume_command(Path("my runs/x"))):
        raise KeyboardInterrupt
    assert "halfway resume 'my runs/x'" in capsys.readouterr().err
    assert "# Check it:            halfway validate 'my recipe.yaml'" in halfway("init", "my recipe.yaml").stdout


def test_a_comparison_whose_data_lack_what_an_arm_needs_is_refused_before_it_trains(run_file: Path) -> None:
    duel = run_file.with_name("duel.yaml")
    duel.write_text("base: run.yaml\nseeds: [0]\narms: {plain: {}, cats: {controllers: [bandit]}}\n")
    refused = complaint("compare", duel, "tracking.mlflow=false")
    assert refused.startswith("error: arms.cats: controllers.bandit: needs 'category' of every problem"), refused
    assert not Path("runs/duel").exists()
    assert f"{duel}:3: arms.cats: controllers.bandit: needs" in complaint("validate", duel)


def test_seeds_may_be_words_or_one_list() -> None:
    assert split_seeds(["learner.lr=1", "1", "2"], "0") == (["learner.lr=1"], [0, 1, 2])
    assert split_seeds([], "0,1,1") == ([], [0, 1])
    assert split_seeds(["7"], "0-2,4") == ([], [0, 1, 2, 4, 7])
    assert split_seeds(["learner.lr=1"], "") == (["learner.lr=1"], [])
    with pytest.raises(UserError, match=r"--seeds: .*'x'"):
        split_seeds(["x"], "0")
    with pytest.raises(UserError, match=r"--seeds: .*'-1'"):
        split_seeds([], "-1")
    for endless in ("3-1", "0-5000000000"):
        with pytest.raises(UserError, match=rf"--seeds: .*'{endless}'"):
            split_seeds([], endless)


def test_an_interrupt_names_the_command_that_resumes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as left, stoppable(resume_command(Path("runs/x"))):
        raise KeyboardInterrupt
    assert left.value.exit_code == 130 and "halfway resume runs/x" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "title", "part"),
    [
        (["GRESO"], "Act Only When It Pays", "  greso: "),
        (["2506.02177"], "Act Only When It Pays", "  greso: "),
        (["arXiv:2506.02177v2"], "Act Only When It Pays", "  greso: "),
        (["dapo"], "DAPO: An Open-Source", "  fill: "),
        (["AdaRFT"], "Adaptive Curriculum Learning", "  servo: "),
        (["Prefix", "Sampling"], "Rollout Pass-Rate Control", "  prefix_sampling: "),
        (["rl-zvp"], "No Prompt Left Behind", "  signal: "),
        (["breaking the solver bottleneck"], "2606.18284", "  probe: "),
        (["PODS"], "Down-Sampling Rollouts", "  downsample: "),
        (["AdaPrefix-GRPO"], "Max Out GRPO Signal", "  hints: "),
    ],
)
def test_a_paper_is_found_by_its_methods_name_number_or_title(words: list[str], title: str, part: str) -> None:
    found = CliRunner().invoke(app, ["list", *words]).stdout
    assert found.startswith("papers\n") and title in found and part in found


def test_an_unknown_name_suggests_near_ones_whatever_their_case() -> None:
    assert "'greso'" in complaint("list", "GRESSO") and "'NGRPO'" in complaint("list", "ngrp")


@pytest.mark.parametrize(
    ("given", "spins"), [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)]
)
def test_threads_of_torch_that_wait_leave_the_processor_unless_the_user_says_otherwise(
    given: dict[str, str], spins: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the spinning took a survey five times as long."""
    found = []
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that the test's end restores it
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cli, "app", lambda prog_name: found.append(os.environ.get("GOMP_SPINCOUNT")))
    cli.main()
    assert found == [spins]
