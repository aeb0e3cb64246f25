"""The processes of our servers, with stand-ins: they end with the run, however it ends."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from halfway.trainers.engines.vllm_servers.server import Server

RUN = """
import atexit, sys
from pathlib import Path
from halfway.trainers.engines.vllm_servers.server import Server
from halfway.trainers.engines.vllm_servers.engine import VllmServersEngine
from halfway.trainers.engines.base import EngineSetup
from halfway.trainers.engines.vllm_servers.part import VllmServers

folder = Path(sys.argv[1]) / "of the run"
folder.mkdir()
(folder / "weights").touch()
servers = [Server("127.0.0.1:1", ("sleep", "600"), folder / f"{number}.log") for number in range(2)]
engine = VllmServersEngine(servers, VllmServers(), EngineSetup(None, "model", [], 0), folder)
atexit.register(engine.close)
for server in servers:
    server.start()
    print(server.process.pid, flush=True)
sys.stdin.read()
"""


def lives(pid: int) -> bool:
    """Whether it runs; a process that has ended but was not waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def start(folder: Path) -> "tuple[subprocess.Popen[str], list[int]]":
    """A run, and the servers it has started."""
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return run, [int(run.stdout.readline()) for _ in range(2)]


def test_servers_end_with_the_interpreter(tmp_path: Path) -> None:
    begun = time.monotonic()
    run, pids = start(tmp_path)
    _, errors = run.communicate("")
    assert run.returncode == 0 and not errors
    assert not any(map(lives, pids)) and not list(tmp_path.iterdir())
    assert time.monotonic() - begun < 60.0  # at most the time granted for tidying up


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_servers_and_weights_end_with_a_run_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    run, pids = start(tmp_path)
    while not all(map(children, pids)):
        time.sleep(0.05)
    everyone = [*pids, *(child for pid in pids for child in children(pid))]
    assert len(everyone) == 4
    run.send_signal(number)
    run.communicate()
    deadline = time.monotonic() + 10
    while any(map(lives, everyone)) or list(tmp_path.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_server_executes_nothing_of_the_folder_in_which_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timeit.py").write_text("open('executed', 'w').close()")
    monkeypatch.chdir(tmp_path)
    server = Server("127.0.0.1:1", (sys.executable, "-m", "timeit", "-n1", "-r1"), tmp_path / "log")
    server.start()
    assert server.process is not None
    server.process.wait(60)
    assert "1 loop" in (tmp_path / "log").read_text() and not (tmp_path / "executed").exists()
