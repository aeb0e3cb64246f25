"""The processes of our servers, with others in their place: they end with the run, whatever way it ends."""

import os
import subprocess
import sys
import time
from pathlib import Path

RUN = """
import atexit, sys
from pathlib import Path
from trainers.engines.vllm_server import Server
from trainers.engines.vllm_servers import VllmServersEngine
from trainers.options import RolloutOptions

folder = Path(sys.argv[1])
servers = [Server("127.0.0.1:1", ("sleep", "600"), folder / f"{number}.log") for number in range(2)]
engine = VllmServersEngine(servers, [], RolloutOptions(), folder / "weights")
atexit.register(engine.close)
for server in servers:
    server.start()
    print(server.process.pid)
"""


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_servers_end_with_the_interpreter(tmp_path: Path) -> None:
    begun = time.monotonic()
    run = subprocess.run([sys.executable, "-c", RUN, str(tmp_path)], capture_output=True, text=True, check=True)
    pids = [int(line) for line in run.stdout.split()]
    assert len(pids) == 2 and not any(map(lives, pids))
    assert not run.stderr and time.monotonic() - begun < 60.0  # at most the time granted for tidying up
