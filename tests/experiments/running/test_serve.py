"""Servers of a run that are started without its launcher."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from paths import IMPORTABLE, REPOSITORY
from typer.testing import CliRunner

from halfway.experiments.cli import app
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.running.launch import commands, serving_commands
from halfway.trainers.engines.vllm_servers import auth

RECIPES = REPOSITORY / "experiments" / "recipes"
TWO_POOLS, SUMS = RECIPES / "cluster" / "two_pools.yaml", RECIPES / "lab" / "sums.yaml"
STAND_IN = """
import sys
from halfway.experiments.cli import main
from halfway.trainers.engines.part import Service
from halfway.trainers.engines.vllm_servers.part import VllmServers
code = "import os, sys, time; print(os.getpid(), os.environ['HALFWAY_SERVER_TOKEN'], *sys.argv[1:], flush=True); "
VllmServers.services = lambda self, run, host: [
    Service((sys.executable, "-c", code + "time.sleep(100)", host), 1) for _ in range(2)
]
main()
"""


def test_the_servers_are_those_that_a_launch_starts_there() -> None:
    config = load_run_config(TWO_POOLS)
    launched = [one for one in commands(config, TWO_POOLS, ["a", "b", "c", "10.0.0.4"]) if one.host == "10.0.0.4"]
    served = serving_commands(config, "10.0.0.4")
    assert len(served) == 8 and [one.line for one in served] == [one.line for one in launched]


def test_nothing_listens_without_a_token_or_without_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (auth.VARIABLE, auth.FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    done = CliRunner().invoke(app, ["serve", str(TWO_POOLS)])
    assert done.exit_code == 2 and "set HALFWAY_SERVER_TOKEN, or HALFWAY_SERVER_TOKEN_FILE" in done.stderr
    done = CliRunner().invoke(app, ["serve", str(SUMS)])
    assert done.exit_code == 2 and "rollouts.engine: 'transformers' has no servers" in done.stderr


def test_servers_have_the_token_come_back_and_end_with_their_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", IMPORTABLE)
    monkeypatch.setenv(auth.VARIABLE, "a_token_of_the_run")
    words = [sys.executable, "-c", STAND_IN, "serve", str(TWO_POOLS), "--address", "10.0.0.4"]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(words, stdout=said)
    pids: list[int] = []

    def servers(count: int) -> list[int]:
        deadline = time.monotonic() + 60
        while (lines := (tmp_path / "said").read_text()).count("\n") < count:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
        return [int(line.split()[0]) for line in lines.splitlines() if line.endswith(" a_token_of_the_run 10.0.0.4")]

    pids = servers(2)
    Path(f"/proc/{pids[0]}").stat()
    subprocess.run(["kill", "-9", str(pids[0])], check=True)
    pids = servers(4)  # one line says that a server is started again
    assert len(pids) == 3
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
