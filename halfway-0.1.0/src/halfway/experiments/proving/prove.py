"""Runs the parts of the proof one after the other, each in its own process with a time limit.

    python -m halfway.experiments.proving.prove PART FOLDER RANKS FAULTS

is such a process; it writes its checks, as lines of JSON, to FOLDER/checks.jsonl.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from halfway.curriculum.support.atomic import write_json
from halfway.experiments.proving.checks import Check

LIMITS = {"agreement": 300.0, "learner": 900.0, "servers": 1200.0, "run": 600.0}
"""The parts beside the host's, and the time limit of each in seconds."""
FAULTS = {
    "temperature": ("log-probabilities at",),
    "other-prompt": ("log-probabilities at",),
    "transposed-tensor": ("log-probabilities after",),
    "ignored-end": ("agreement: a step", "end tokens"),
    "prefix-in-loss": ("agreement: a step", "prefixes"),
    "dropped-gradients": ("= plain on one",),
    "doubled-update": ("= plain on one", "on every process"),
    "wrong-checkpoint": ("loaded by one", "run: "),
    "stale-weights": ("a sync brings",),
    "no-restart": ("comes back",),
    "leaked-server": ("left behind",),
}
"""Faults to plant, and parts of the names of the checks that must find them."""
CHECKS = "checks.jsonl"
WAITS = "DeepSpeed: waits"
"""The first words of a line about a lock, see `halfway.trainers.learner.deepspeed.report_locks`."""
POLL_SECONDS = 0.5
LAUNCHER_SECONDS = 40.0
"""Seconds that torchrun may take to end what it has started; it kills them after 30 s."""
Part = Callable[[Path, int, Sequence[str]], Iterator[Check]]


def prove(parts: Sequence[str], ranks: int, planted: Sequence[str] = ()) -> Iterator[Check]:
    """Run these parts, and yield their checks as they finish.

    Args:
        ranks: processes of a distributed update.
        planted: faults of `FAULTS` to plant.
    """
    failed: list[str] = []
    for name in parts:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"prove-{name}-") as folder:
            why = _supervise(name, Path(folder), ranks, planted)
            path = Path(folder) / CHECKS
            lines = path.read_text().splitlines() if path.exists() else []
        for check in (Check(**json.loads(line)) for line in lines):
            failed += [f"{check.part}: {check.name}"] if check.verdict == "FAIL" else []
            yield check
        if why:
            yield Check(name, "to the end", "FAIL", why, "see its last lines above")
        yield Check(name, "time", "ok", f"{time.monotonic() - begun:.0f} s")
    for fault in planted:
        if not any(part in name for name in failed for part in FAULTS[fault]):
            remedy = "run the part that tries it, with all its requirements"
            yield Check("prove", f"{fault} is found", "FAIL", "no check found the planted fault", remedy)


def _supervise(name: str, folder: Path, ranks: int, planted: Sequence[str]) -> str:
    """Run a part in its own process. Returns why it failed to finish; "" if it finished."""
    words = (sys.executable, "-m", __name__, name, str(folder), str(ranks), *planted)
    log = folder / "log"
    environment = {"HF_HUB_OFFLINE": "1"} | os.environ | {"PYTHONSAFEPATH": "1"}
    with log.open("wb") as file:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=file, stderr=file, env=environment, start_new_session=True
        )
        try:
            status = _follow(process, log, LIMITS[name])
            why = f"status {status}" if status else ""
        except subprocess.TimeoutExpired:
            why = f"not done in {LIMITS[name]:g} s"
        finally:
            if process.poll() is None:
                end_group(process)
    if why:
        sys.stderr.write(log.read_text(errors="replace")[-2000:])
    return why


def _follow(process: "subprocess.Popen[bytes]", log: Path, seconds: float) -> int:
    """Wait for a part, and print the locks that it waits for. Returns its status; raises TimeoutExpired."""
    shown, deadline = set[str](), time.monotonic() + seconds
    while True:
        late = time.monotonic() >= deadline
        for line in log.read_text(errors="replace").splitlines():
            if line.startswith(WAITS) and line not in shown:
                shown.add(line)
                print(line, file=sys.stderr)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(POLL_SECONDS)
        if late:
            raise subprocess.TimeoutExpired(process.args, seconds)


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its group: first by SIGTERM, at which a launcher ends processes of other groups."""
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()
    with suppress(ProcessLookupError):
        deadline = time.monotonic() + LAUNCHER_SECONDS
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)


def write_checks(checks: Sequence[Check], file: Path) -> int:
    """Write all checks to a JSON file. Returns the number of failures."""
    failures = sum(check.verdict == "FAIL" for check in checks)
    write_json(file, {"failures": failures, "checks": [asdict(check) for check in checks]})
    return failures


def part_named(name: str) -> Part:
    """Find the function of a part."""
    from halfway.experiments.proving.agreement import agreement_checks
    from halfway.experiments.proving.learner import learner_checks
    from halfway.experiments.proving.servers import servers_checks
    from halfway.experiments.proving.whole_run import whole_run_checks

    parts = {"agreement": agreement_checks, "learner": learner_checks}
    return {**parts, "servers": servers_checks, "run": whole_run_checks}[name]


def end_with_input() -> None:
    """End this process when its parent has ended, in whatever way."""
    while os.read(0, 1024):  # not through sys.stdin, whose lock would disturb a normal exit
        pass
    os.killpg(0, signal.SIGTERM)  # a launcher ends processes of other groups


def main(name: str, folder: Path, ranks: int, planted: Sequence[str]) -> None:
    """Run a part, and write its checks as they finish."""
    threading.Thread(target=end_with_input, daemon=True).start()
    with (folder / CHECKS).open("w") as file:
        for check in part_named(name)(folder, ranks, planted):
            file.write(json.dumps(asdict(check)) + "\n")
            file.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
