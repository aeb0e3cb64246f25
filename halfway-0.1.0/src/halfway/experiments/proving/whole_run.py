"""A run that is killed continues to the same end, and leaves no process behind."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from halfway.experiments.config.paths import REPOSITORY
from halfway.experiments.proving.checks import Check, judge

PART = "run"
RECIPE = REPOSITORY / "experiments" / "recipes" / "lab" / "sums.yaml"
STEPS, KILLED = 4, 2
SETTINGS = (
    *("fill.groups=4", "problems.train=16", f"budget={{steps: {STEPS}}}", "checkpoint.every=1", "threads=1"),
    *("evaluation={points: 1, samples: 1, problems: 8}", "rollouts.max_response_tokens=32", "tracking.mlflow=false"),
)
DECISIONS, RECORDS, CHECKPOINTS = "decisions.jsonl", "steps.jsonl", "checkpoints"


def whole_run_checks(folder: Path, _: int, planted: Sequence[str]) -> Iterator[Check]:
    """Train for a few steps, once without interruption and once killed and restarted."""
    begun = time.monotonic()
    status = _start(folder, "straight").wait()
    found = f"{STEPS} steps in {time.monotonic() - begun:.0f} s, with status {status}"
    yield judge(PART, "a run ends", status == 0, found, "see its message above")
    process = _start(folder, "killed")
    records = folder / "killed" / RECORDS
    while process.poll() is None and _lines(records) < KILLED:
        time.sleep(0.05)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = _lines(records)
    if "wrong-checkpoint" in planted:
        for path in (folder / "killed" / CHECKPOINTS).rglob("*.safetensors"):
            path.write_bytes(path.read_bytes()[:-4] + b"\0\0\x80?")
    status = _start(folder, "killed").wait()
    remedy = "see its message above; `halfway resume FOLDER --from STEP` goes back to a sound checkpoint"
    yield judge(PART, f"killed after {done} steps, it is continued", status == 0, f"status {status}", remedy)
    for name, one, two in (("decisions", *_hashes(folder, DECISIONS)), ("weights", *_hashes(folder, "*.safetensors"))):
        remedy = "resuming is not exact here: compare versions, threads and devices of both"
        yield judge(PART, f"{name} after resuming", one == two, "equal" if one == two else "others", remedy)


def _start(folder: Path, name: str) -> "subprocess.Popen[bytes]":
    words = (sys.executable, "-m", "halfway.experiments.cli", "run", str(RECIPE), f"name={name}", f"output={folder}")
    return subprocess.Popen([*words, *SETTINGS], start_new_session=True, stdout=subprocess.DEVNULL)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _hashes(folder: Path, pattern: str) -> list[str]:
    """Digests of the newest file of this pattern in both runs."""
    found = []
    for name in ("straight", "killed"):
        files = sorted((folder / name).rglob(pattern))
        found.append(hashlib.sha256(files[-1].read_bytes()).hexdigest() if files else f"none in {name}")
    return found
