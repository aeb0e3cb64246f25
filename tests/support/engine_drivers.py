"""Engine tests run each driver in a separate process, since vLLM holds on to threads and memory.

Also attacks on servers at a given request, so that what is lost does not depend on how busy the machine is.
"""

import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from paths import DRIVERS, IMPORTABLE


def run_engine_driver(name: str, folder: Path, dtype: str, timeout: float) -> None:
    """Run the driver `name` on `folder`; skip the test where the processor cannot run the engine's bfloat16 kernels.

    Args:
        name: of a file among the drivers.
        folder: where the driver leaves its results.
        dtype: of the engine, "float32" or "bfloat16".
        timeout: in seconds.

    Raises:
        subprocess.CalledProcessError: the driver failed.
    """
    environment = os.environ | {
        "PYTHONPATH": IMPORTABLE,
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",  # without it a second busy process on the machine costs a factor of ten
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run([sys.executable, DRIVERS / name, folder, dtype], timeout=timeout, env=environment)
    if done.returncode == -signal.SIGILL and dtype == "bfloat16":
        pytest.skip("this processor refuses an instruction of vLLM's bfloat16 kernels")
    done.check_returncode()


def attack(server: Any, how: signal.Signals, request: int) -> None:
    """Send a signal to a server's processes just before it is sent a request, counted from 1."""
    generate, requests = server.generate, count(1)

    def attacked(*call: Any) -> Any:
        if next(requests) == request:
            os.killpg(server.process.pid, how)
        return generate(*call)

    server.generate = attacked
