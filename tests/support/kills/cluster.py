"""A Ray cluster of two nodes that outlives the runs; its actors and its second node are killed beside them."""

import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from halfway.trainers.distributed.ports import free_port
from halfway.trainers.engines.vllm_servers.auth import new_token
from kills.launches import in_sessions, proc_file

START_SECONDS = 300.0
STORE_BYTES = 80 << 20
PORTS = ("--min-worker-port=0", "--max-worker-port=0")
"""Any, since the range that Ray prefers may hold the port of its head."""
VERIFIERS = """\
[halfway.verifiers]
coin = controller_harness:coin
judged_coin = kills.judging:judged_coin
"""
"""What an installed package would offer to the actors, which import nothing of this process."""


class Node:
    """One node, with all processes in a session of its own."""

    def __init__(self, *words: str, log: Path):
        size = ("--num-cpus=2", f"--object-store-memory={STORE_BYTES}", "--disable-usage-stats", "--block", *PORTS)
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *words, *size]
        with log.open("a") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class RayCluster:
    """Nodes at the address that RAY_ADDRESS names from now on."""

    def __init__(self) -> None:
        folder = Path(mkdtemp(prefix="kills-ray-"))
        package = folder / "kills-0.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: kills\nVersion: 0\n")
        (package / "entry_points.txt").write_text(VERIFIERS)
        port, self.log = free_port(), folder / "log"
        self.address = f"127.0.0.1:{port}"
        os.environ |= {
            "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)]),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": new_token(),
        }
        os.environ.pop("RAY_ADDRESS", None)
        here = ("--head", "--node-ip-address=127.0.0.1", f"--port={port}", "--include-dashboard=false")
        self.head = Node(*here, log=self.log)
        self._await("Ray runtime started", 1)
        self.second = self._join()
        self._await("Ray runtime started", 2)
        os.environ["RAY_ADDRESS"] = self.address

    def replace_node(self) -> None:
        """Kill the second node, and start another."""
        self.second.kill()
        self.second = self._join()

    def actors(self) -> list[int]:
        """The processes that sample."""
        leaders = [node.process.pid for node in (self.head, self.second)]
        return [pid for pid in in_sessions(leaders) if proc_file(pid, "cmdline").startswith(b"ray::Actor")]

    def stop(self) -> None:
        for node in (self.second, self.head):
            node.kill()

    def _join(self) -> Node:
        return Node(f"--address={self.address}", "--node-ip-address=127.0.0.1", log=self.log)

    def _await(self, words: str, times: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while self.log.read_text().count(words) < times:
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(0.2)


@cache
def the_cluster() -> RayCluster:
    """The cluster of this process and of its forks."""
    return RayCluster()
