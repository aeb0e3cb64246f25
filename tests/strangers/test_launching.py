"""Launching with hostile values: each word arrives as it was given, and nothing in it is run or read as an option."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from paths import REPOSITORY
from strangers.mutations import CANARY, ODD
from typer.testing import CliRunner

from halfway.curriculum import UserError
from halfway.experiments.cli import app
from halfway.experiments.comparing.scheduler_jobs import submit_to_slurm
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.running import launch

TWO_POOLS = REPOSITORY / "experiments" / "recipes" / "cluster" / "two_pools.yaml"
SUMS = REPOSITORY / "experiments" / "recipes" / "lab" / "sums.yaml"


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the programs that a script starts write down their words."""
    folder = tmp_path / "programs"
    folder.mkdir()
    found = 'for word in "$@"; do printf "%s\\0" "$word"; done > "$FOUND"'
    python = str(program(folder / "py thon", found))
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.setattr(launch, "PYTHON", (python, "-m"))
    program(folder / "scontrol", "echo a; echo b")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FOUND", str(tmp_path / "found"))
    monkeypatch.chdir(tmp_path)
    return folder


def words_of(tmp_path: Path) -> list[str]:
    return (tmp_path / "found").read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]


@pytest.mark.parametrize("odd", ODD, ids=ascii)
def test_a_job_of_slurm_gets_the_words_that_were_given(odd: str, stubs: Path, tmp_path: Path) -> None:
    config, file, override = load_run_config(SUMS), tmp_path / odd / "run.yaml", f"model.system={odd}"
    script = launch.batch_script(config, file, [override])
    settings = [line for line in script.splitlines() if line.startswith("#SBATCH")]
    first = script[: script.index("exec ")].splitlines()
    assert settings[: len(first) - 1] == first[1:] and len(first) == 8  # sbatch reads none after a command
    subprocess.run(["bash"], input=script.encode("utf-8", "surrogateescape"), check=True)
    assert words_of(tmp_path)[:6] == ["-m", "halfway.experiments.cli", "launch", str(file), override, "--through"]
    assert words_of(tmp_path)[6:] == ["srun", "--nodes", "a,b"] and not list(tmp_path.rglob(CANARY))


@pytest.mark.parametrize("odd", [odd for odd in ODD if odd != "\udcff"], ids=ascii)
def test_the_commands_of_a_dry_run_start_the_given_program(odd: str, stubs: Path, tmp_path: Path) -> None:
    config, override = load_run_config(TWO_POOLS), f"model.system={odd}"
    found = launch.commands(
        config, tmp_path / odd, ["a", "b", "c", "d"], [override], lambda hosts: {h: h for h in hosts}
    )
    for line in (command.line for command in found):
        subprocess.run(["bash"], input=line.encode("utf-8", "surrogateescape"), check=True)
        assert shlex.split(line)[-len(words_of(tmp_path)) :] == words_of(tmp_path)
    assert {override, str(tmp_path / odd)} <= set(words_of(tmp_path)) and not list(tmp_path.rglob(CANARY))


@pytest.mark.parametrize("odd", [odd for odd in ODD if odd not in ("é\u202e",)], ids=ascii)
def test_hosts_and_names_are_no_shell_words_options_or_paths(odd: str) -> None:
    config = load_run_config(SUMS)
    with pytest.raises(UserError, match="--nodes"):
        launch.commands(config, SUMS, [odd])
    if odd not in ("--wrap", "-x"):
        with pytest.raises(UserError, match="name"):
            load_run_config(SUMS, [f"name={json.dumps(odd)}"])


@pytest.mark.parametrize("odd", ODD, ids=ascii)
def test_sbatch_gets_any_script_or_the_user_one_line(odd: str, stubs: Path, tmp_path: Path) -> None:
    program(stubs / "sbatch", 'cat > "$FOUND"; echo Submitted')
    recipe = tmp_path / odd / "run.yaml"
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text(f"base: {SUMS}\n")
    for words in (["launch", str(recipe), "--on", "slurm"], ["launch", str(recipe), "--on", "slurm", "--dry-run"]):
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, SystemExit | None), done.exception
        assert done.exit_code in (0, 2) and not list(tmp_path.rglob(CANARY))
        assert done.exit_code == 0 or done.stderr.count("\n") == 1


@pytest.mark.parametrize("odd", ODD, ids=ascii)
def test_a_job_of_a_comparison_runs_no_line_of_its_folders_path(odd: str, stubs: Path, tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed (extra slurm)")
    program(stubs / "sbatch", 'cp "$1" "$SCRIPT"; echo Submitted batch job 7')
    program(stubs / "srun", 'for word in "$@"; do printf "%s\\0" "$word"; done > "$FOUND"')
    folder, script = tmp_path / odd / "run", tmp_path / "script"
    try:
        folder.mkdir(parents=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SCRIPT", str(script))
            submit_to_slurm(load_run_config(SUMS), folder, 1)
    except UserError as error:
        assert "output" in str(error) and not odd.isprintable()
    else:
        subprocess.run(["bash", script], check=True)
        assert str(folder) in " ".join(words_of(tmp_path))
    assert not list(tmp_path.rglob(CANARY))


def test_a_command_for_ssh_is_the_same_whatever_a_recipe_says(stubs: Path, tmp_path: Path) -> None:
    """All that comes from a recipe goes through standard input, as JSON."""
    own = [sys.executable, launch.on_host.__file__]
    program(stubs / "ssh", 'for word in "$@"; do printf "%s\\0" "$word"; done > "$FOUND"; cat > "$FOUND.order"')
    for odd in ODD:
        command = launch.Command("elsewhere", ("x", odd), {"A": odd})
        process = launch.start(command, "ssh", {})
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0
        assert words_of(tmp_path) == ["-T", "elsewhere", f"env PYTHONSAFEPATH=1 {shlex.join(own)}"]
        order = json.loads((tmp_path / "found.order").read_text())
        assert order["words"] == ["x", odd] and order["environment"]["A"] == odd
    assert not list(tmp_path.rglob(CANARY))


@pytest.mark.parametrize("name", ["sums\nname: ours", "sums}", "../sums", "", "$(id)", "a/b/c"])
def test_the_name_of_a_task_set_writes_no_line_into_a_recipe(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["init", str(tmp_path / "own.yaml"), "--data", f"taskset:{name}"])
    assert done.exit_code == 2 and "--data taskset" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "own.yaml").exists()
    done = CliRunner().invoke(app, ["init", str(tmp_path / "own.yaml"), "--data", "taskset:owner/tiny-sums"])
    assert done.exit_code == 0 and 'name: "owner/tiny-sums"' in (tmp_path / "own.yaml").read_text()
