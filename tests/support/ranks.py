"""Training processes of which a test file is the program."""

import os
import subprocess
import sys

from halfway.trainers.distributed.ports import free_port


def run_ranks(program: str, **environment: str) -> list[subprocess.CompletedProcess[str]]:
    """Run a program in two processes that can meet, and wait for both. Output and errors are in `stdout`.

    Args:
        environment: variables beside those of torch's launcher.
    """
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, program],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | place | environment | {"RANK": str(rank)},
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in started]
    return [subprocess.CompletedProcess(p.args, p.returncode, o) for p, o in zip(started, outputs, strict=True)]
