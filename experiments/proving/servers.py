"""Servers get the learner's weights, refuse strangers, come back when killed, and leave nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from halfway.curriculum import UserError
from halfway.experiments.proving.checks import Check, judge, skip

PART = "servers"
LENGTH, TOLERANCE_CPU, TOLERANCE_GPU = 256, 1e-3, 0.6
GONE_SECONDS = 30.0


class Trial:
    """A random policy and an engine of one server, on this host."""

    def __init__(self, folder: Path, planted: Sequence[str]):
        import torch

        from halfway.experiments.proving.learner import build_model
        from halfway.trainers.engines.contract import EngineSetup
        from halfway.trainers.engines.vllm_servers.part import VllmServers
        from halfway.trainers.learner.learner import PolicyGradientLearner
        from halfway.trainers.learner.learner_options import LearnerOptions

        self.gpu, self.planted = torch.cuda.is_available(), planted
        self.model = build_model()
        if self.gpu:
            self.model = self.model.to("cuda", torch.bfloat16)
        self.model.save_pretrained(folder / "model")
        self.learner = PolicyGradientLearner(self.model, LearnerOptions(), 0)
        setup = EngineSetup(self.learner.policy, str(folder / "model"), [1], 0, max_sequences=16)
        part = VllmServers(max_length=LENGTH, kv_cache_gib=4.0 if self.gpu else 0.05, folder=str(folder), seconds=60.0)
        engine: Any = part.build(setup)
        self.engine, self.part, self.setup, self.version = engine, part, setup, 0

    @property
    def server(self) -> Any:
        return self.engine.servers[0]

    def gap(self, engine: Any) -> float:
        """Mean distance in nats between the engine's log-probabilities and the learner's, however large."""
        from halfway.trainers.engines.sync_check import SyncCheck

        return SyncCheck(engine, self.learner, self.model.config.vocab_size, LENGTH, tolerance=1e9)()

    def perturb(self) -> None:
        """Change the policy as many updates would."""
        import torch

        torch.manual_seed(self.version + 1)
        with torch.no_grad():
            for parameter in self.learner.policy.parameters():
                parameter.add_(torch.randn_like(parameter) * parameter.abs().mean())

    def sync(self, engine: Any) -> float:
        """Send the weights. Returns the seconds."""
        self.version += 1
        if "stale-weights" in self.planted:
            engine.transfer.send = lambda weights, servers, version: _pretend(servers, version)
        begun = time.monotonic()
        engine.sync(self.learner.policy, self.version)
        return time.monotonic() - begun


def _pretend(servers: Any, version: str) -> None:
    """A planted fault: servers get a version but no weights."""
    for server in servers:
        server.begin_update(version, 60.0, changes=False)
        server.end_update(version, 60.0, changes=False)


def _leak(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    """A planted fault: a process with a server's command that nothing ends."""
    return subprocess.Popen((sys.executable, "-c", "import time; time.sleep(1000)", *command))


def servers_checks(folder: Path, _: int, planted: Sequence[str]) -> Iterator[Check]:
    """Start a server, and check all its guarantees."""
    if not find_spec("vllm"):
        yield skip(PART, "all", "vLLM is not installed")
        return
    begun = time.monotonic()
    trial = Trial(folder, planted)
    yield Check(PART, "start", "ok", f"{time.monotonic() - begun:.0f} s")
    leaked = _leak(trial.server.command) if "leaked-server" in planted else None
    try:
        yield from _weights(trial, trial.engine, "files")
        os.environ["HALFWAY_SERVER_TOKEN"] = trial.server.token
        yield from _broadcast(trial)
        yield _stranger(trial)
        yield from _kill_server(trial)
    finally:
        trial.engine.close()
    yield _left_behind(folder)
    if leaked is not None:
        leaked.kill()


def _weights(trial: Trial, engine: Any, how: str) -> Iterator[Check]:
    """Check that a stale server is noticed, and that a sync corrects it."""
    limit = TOLERANCE_GPU if trial.gpu else TOLERANCE_CPU
    trial.perturb()
    stale = trial.gap(engine)
    yield judge(PART, f"{how}: stale weights are noticed", stale > limit, f"{stale:.2g} nats", "the check is too weak")
    seconds = trial.sync(engine)
    gap, size = trial.gap(engine), sum(weight.nbytes for weight in trial.model.parameters())
    found = f"{gap:.1e} nats after a sync of {size / 1e9:.3g} GB in {seconds:.2f} s"
    remedy = "the server still has older weights: look for the update in its log, and restart it"
    yield judge(PART, f"{how}: a sync brings the learner's weights", gap <= limit, found, remedy)


def _broadcast(trial: Trial) -> Iterator[Check]:
    """Check that the same server, given by address, receives weights from device to device."""
    if trial.gpu:
        import torch

        if torch.cuda.device_count() < 2:
            yield skip(PART, "broadcast", "NCCL needs separate GPUs for the learner and the server")
            return
    part = replace(trial.part, addresses=(trial.server.address,), transfer="broadcast")
    other: Any = part.build(trial.setup)
    try:
        yield from _weights(trial, other, "broadcast")
    finally:
        other.close()


def _stranger(trial: Trial) -> Check:
    """Check that requests without a token are refused."""
    from halfway.trainers.engines.vllm_servers.server.protocol import OtherTokenError, ServerError
    from halfway.trainers.engines.vllm_servers.server.server import Server

    stranger = Server(trial.server.address, token="not_the_token_of_the_run")
    paths = [("GET", "/health"), ("POST", "/pause?mode=wait"), ("POST", "/update_weights"), ("GET", "/metrics")]
    refused = 0
    for method, path in paths:
        try:
            stranger.call(method, path, {})
        except ServerError as error:
            refused += isinstance(error, OtherTokenError)
    return judge(PART, "a stranger is refused", refused == len(paths), f"on {refused} of {len(paths)} routes", "")


def _kill_server(trial: Trial) -> Iterator[Check]:
    """Check that a killed server is restarted with the current weights."""
    import numpy as np

    trial.sync(trial.engine)  # the broadcast was another engine's
    name, begun = "a killed server comes back", time.monotonic()
    os.killpg(trial.server.process.pid, signal.SIGKILL)
    if "no-restart" in trial.planted:
        trial.server.command, trial.engine.options = ("false",), replace(trial.part, start_seconds=1.0)
    try:
        trial.engine.generate([np.asarray([5, 6, 7], np.int32)], [4], [0])
    except UserError as error:
        yield Check(PART, name, "FAIL", str(error)[:200], "see its log above")
        return
    limit = TOLERANCE_GPU if trial.gpu else TOLERANCE_CPU
    gap, seconds = trial.gap(trial.engine), time.monotonic() - begun
    yield judge(
        PART, name, gap <= limit, f"after {seconds:.0f} s, with {gap:.1e} nats", "it came back with old weights"
    )


def _left_behind(folder: Path) -> Check:
    """Check after the end for processes with the model in their command, and for files beside it."""
    deadline, left = time.monotonic() + GONE_SECONDS, [""]
    while left and time.monotonic() < deadline:
        left = [pid for pid in os.listdir("/proc") if pid.isdecimal() and _names(pid, str(folder / "model"))]
        time.sleep(0.2)
    files = [path.name for path in folder.iterdir() if path.name.startswith("halfway-")]
    found = f"processes {left}, files {files}" if left or files else "nothing"
    return judge(PART, "what is left behind", not left and not files, found, f"kill {' '.join(left)}")


def _names(pid: str, text: str) -> bool:
    try:
        return int(pid) != os.getpid() and f"--model={text}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
