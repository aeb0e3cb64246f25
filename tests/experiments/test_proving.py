"""`halfway doctor` and `halfway prove`: a sound machine passes, and planted faults are found and named."""

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from paths import IMPORTABLE, REPOSITORY
from typer.testing import CliRunner

from halfway.curriculum import UserError
from halfway.experiments.cli import app
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.run import RunConfig
from halfway.experiments.proving import agreement, host, learner, prove, whole_run
from halfway.experiments.proving.checks import Check
from halfway.trainers.learner import batch
from halfway.trainers.learner.shards import UNIVERSAL

SUMS = REPOSITORY / "experiments" / "recipes" / "lab" / "sums.yaml"


def config(*overrides: str) -> RunConfig:
    return load_run_config(SUMS, overrides)


def failed(*overrides: str) -> dict[str, str]:
    """What the doctor says has failed, by name."""
    return {check.name: str(check) for check in host.host_checks(config(*overrides)) if check.verdict == "FAIL"}


def test_a_sound_machine_lacks_nothing_for_the_labs_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert failed("cluster.port=47000") == {}
    done = CliRunner().invoke(app, ["doctor", str(SUMS), "cluster.port=47000"])
    assert done.exit_code == 0 and "ok   host: cores: 2 of" in done.output, done.output


def test_one_core_of_many_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert "1 of 64 for this process; Slurm binds a step to one core: srun --cpu-bind=none" in failed()["cores"]


def test_small_shared_memory_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(2**26, 0, 2**26))
    servers = [
        "rollouts.engine=vllm_servers",
        "model.dtype=bfloat16",
        "model.path=org/large",
        "learner.deepspeed.zero_stage=2",
    ]
    shape = "hidden_size: 1536, num_hidden_layers: 28, intermediate_size: 8960, num_attention_heads: 12"
    sizes = f"cluster.model={{{shape}, num_key_value_heads: 2, vocab_size: 151936}}"
    found = failed(*servers, sizes)
    assert "0.06 GiB free in /dev/shm" in found["weights' folder"] and "--shm-size" in found["weights' folder"]
    assert "for 3 checkpoints" in found["output"]


def test_a_port_that_is_taken_and_a_server_that_was_left_are_named_with_their_process(tmp_path: Path) -> None:
    stays = (
        "import socket, sys, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
    )
    words = [sys.executable, "-c", stays + "time.sleep(100)", host.SERVER]
    orphan = f"import subprocess, sys; subprocess.Popen({words!r})"
    with subprocess.Popen([sys.executable, "-c", orphan], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        parent.wait()
    pid = host.holder_of(port)
    assert pid is not None and pid.startswith("process ")
    number = int(pid.split()[1])
    try:
        found = failed(f"cluster.port={port}") if port <= 65000 else {}
        assert f"{port} by process {number}" in found[f"ports {port} to {port}"]
        leaked = dict(host.leaked_servers())
        if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1] == "1":
            assert host.SERVER in leaked[number] and f"kill {number}" in found["leaked server"]
    finally:
        os.kill(number, 9)


WALLS = ("bwrap", "--dev-bind", "/", "/", "--size", str(2**26), "--tmpfs", "/dev/shm", "taskset", "-c", "0")


@pytest.mark.skipif(not shutil.which("bwrap") or os.cpu_count() == 1, reason="bwrap and two cores are needed")
def test_the_doctor_finds_shared_memory_of_64_mb_and_a_process_with_one_core() -> None:
    recipe = REPOSITORY / "experiments" / "recipes" / "cluster" / "one_node.yaml"
    words = (*WALLS, sys.executable, "-m", "halfway.experiments.cli", "doctor", str(recipe))
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 1, done.stderr
    assert "FAIL host: weights' folder: 0.06 GiB free in /dev/shm, 28.37 wanted for two versions" in done.stdout
    assert f"FAIL host: cores: 1 of {os.cpu_count()} for this process; Slurm binds a step to one core" in done.stdout


def test_an_interface_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=ib7")
    assert "NCCL_SOCKET_IFNAME: ib7; name one of" in failed()["NCCL_SOCKET_IFNAME"]
    monkeypatch.setattr(socket, "gethostbyname", lambda _: "127.0.1.1")
    assert "is 127.0.1.1; give --nodes addresses" in failed("cluster.train_nodes=2")["own name"]


def test_a_recipe_for_gpus_lacks_them_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    found = failed("cluster.device_gib=80", "cluster.devices_per_node=8")
    assert found["devices"].endswith("devices: 0 of 8; check nvidia-smi, CUDA_VISIBLE_DEVICES")


def parts(monkeypatch: pytest.MonkeyPatch, program: str) -> Iterator[Check]:
    """The checks of a part that is this program."""
    file = Path("part.py")
    file.write_text(program)
    monkeypatch.setattr(prove, "__name__", "part")
    monkeypatch.setenv("PYTHONPATH", f"{Path.cwd()}:{os.environ.get('PYTHONPATH', '')}")
    return prove.prove(["learner"], 2)


def test_a_part_that_fails_or_hangs_is_a_failure_and_keeps_what_it_has_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = json.dumps({"part": "learner", "name": "first", "verdict": "ok", "found": "1", "remedy": ""})
    says = f"import sys, time; open(sys.argv[2] + '/checks.jsonl', 'w').write({line!r} + chr(10)); "
    first, end, _ = parts(monkeypatch, says + "sys.exit(3)")
    assert first.name == "first" and str(end).startswith("FAIL learner: to the end: status 3")
    monkeypatch.setitem(prove.LIMITS, "learner", 2.0)
    first, end, _ = parts(monkeypatch, says + "time.sleep(100)")
    assert first.name == "first" and "not done in 2 s" in str(end)


class Releasing(io.StringIO):
    """Makes a file once something is written."""

    def __init__(self, file: Path):
        super().__init__()
        self.file = file

    def write(self, text: str) -> int:
        self.file.touch()
        return super().write(text)


def test_the_lock_that_a_part_waits_for_is_named_while_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line, released = f"{prove.WAITS} for another process to compile; remove /a/lock", tmp_path / "released"
    says = f"import os, sys, time\nprint({line!r}, file=sys.stderr, flush=True)\n" * 2
    checks = parts(monkeypatch, f"{says}while not os.path.exists({str(released)!r}): time.sleep(0.05)")
    monkeypatch.setitem(prove.LIMITS, "learner", 60.0)
    monkeypatch.setattr(sys, "stderr", Releasing(released))
    assert [check.name for check in checks] == ["time"]
    assert sys.stderr.getvalue() == f"{line}\n"  # type: ignore[attr-defined]


def proved(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """The status of `halfway prove`, and the checks that it wrote, by part and name."""
    done = CliRunner().invoke(app, ["prove", *words, "--proof", str(folder / "proof.json")])
    print(done.output)  # it is shown if the test fails
    written = json.loads((folder / "proof.json").read_text())
    checks = {f"{check['part']}: {check['name']}": check["verdict"] for check in written["checks"]}
    assert written["failures"] == list(checks.values()).count("FAIL")
    return done.exit_code, checks


LAUNCHER = "trap 'touch told; exit' TERM; touch up; while :; do sleep 0.05; done"
"""What ends its own processes, in other groups, if it is told to end."""


def await_file(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_part_whose_starter_is_killed_tells_its_launcher(tmp_path: Path) -> None:
    program = (
        "import subprocess, threading\nfrom halfway.experiments.proving.prove import end_with_input\n"
        f"threading.Thread(target=end_with_input, daemon=True).start()\nsubprocess.run(['sh', '-c', {LAUNCHER!r}])"
    )
    words = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": IMPORTABLE}
    with subprocess.Popen(words, stdin=subprocess.PIPE, cwd=tmp_path, env=environment, start_new_session=True) as part:
        try:
            await_file(tmp_path / "up")
            assert part.stdin is not None
            part.stdin.close()
            await_file(tmp_path / "told")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(part.pid, signal.SIGKILL)


def test_a_part_that_is_late_tells_its_launcher(tmp_path: Path) -> None:
    with subprocess.Popen(["sh", "-c", f"({LAUNCHER}) & wait"], cwd=tmp_path, start_new_session=True) as part:
        await_file(tmp_path / "up")
        prove.end_group(part)
    assert (tmp_path / "told").exists()


AGREE = {
    "temperature": "log-probabilities at",
    "other-prompt": "log-probabilities at",
    "transposed-tensor": "log-probabilities after",
    "ignored-end": "a step",
    "prefix-in-loss": "a step",
}


@pytest.mark.parametrize("plant", ["", *AGREE])
def test_faults_planted_between_engine_and_learner_are_found_with_adapters_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: str
) -> None:
    pytest.importorskip("peft", reason="peft is not installed (extra lora)")
    monkeypatch.setattr(batch, "make_sequence", batch.make_sequence)  # undoes what is planted there
    found = {check.name: check.verdict for check in agreement.agreement_checks(tmp_path, 1, [plant])}
    wrong = {name for name, verdict in found.items() if verdict == "FAIL"}
    assert "skip" not in found.values() and bool(wrong) == bool(plant), found
    assert not plant or any(AGREE[plant] in name for name in wrong)
    assert not plant or any(part in f"agreement: {name}" for name in wrong for part in prove.FAULTS[plant])
    found_by = {adapted for adapted in (False, True) for name in wrong if ("adapters: " in name) is adapted}
    expected = {"": set(), "prefix-in-loss": {False}}.get(plant, {False, True})  # the learner refuses to go on
    assert found_by == expected, wrong


def test_the_command_proves_agreement(tmp_path: Path) -> None:
    status, checks = proved(tmp_path, "--part", "agreement")
    assert status == 0 and len(checks) > 5 and "FAIL" not in checks.values(), checks


def test_the_loss_on_a_prefix_is_noticed_without_the_learners_own_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "make_sequence", batch.make_sequence)
    monkeypatch.setattr(batch, "_require_start_outside", lambda *_: None)
    monkeypatch.setattr(agreement, "find_spec", lambda _: None)
    found = {check.name: check.verdict for check in agreement.agreement_checks(tmp_path, 1, ["prefix-in-loss"])}
    assert [name for name, verdict in found.items() if verdict == "FAIL"] == ["prefixes stay out of the loss"]


def test_a_planted_fault_that_no_check_sees_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["prove", "--part", "host", "--plant", "stale-weights", "--proof", "proof.json"])
    assert done.exit_code == 1 and "FAIL prove: stale-weights is found" in done.output
    with pytest.raises(StopIteration):
        next(prove.prove([], 2))


def test_a_doubled_update_on_one_process_is_found(tmp_path: Path) -> None:
    status, checks = proved(tmp_path, "--part", "learner", "--plant", "doubled-update")
    assert status == 1 and checks["learner: plain: the same weights on every process"] == "FAIL"


def test_a_checkpoint_that_cannot_be_loaded_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: object) -> None:
        raise UserError("All shards must have the same step value")

    monkeypatch.setattr(learner, "train", train)
    learner.main(tmp_path, "doubled-update", "zero-2:2")
    check = learner._compare(tmp_path, "zero-2 saved by 2, loaded by one", "zero-2-by-2-on-1", "")
    assert (check.verdict, check.found) == ("FAIL", "All shards must have the same step value")


@pytest.mark.engines
@pytest.mark.skipif(find_spec("deepspeed") is None, reason="five whole runs, beside those that need deepspeed")
def test_a_run_is_proved_and_a_wrong_checkpoint_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = whole_run._start

    def checked(*planted: str) -> dict[str, str]:
        return {check.name: check.verdict for check in prove.part_named("run")(tmp_path, 1, planted)}

    found = checked()
    assert {"decisions after resuming", "weights after resuming"} < set(found) and set(found.values()) == {"ok"}
    shutil.rmtree(tmp_path / "killed")
    done = ("true",)  # the run that nothing interrupts is there
    monkeypatch.setattr(
        whole_run, "_start", lambda at, name: start(at, name) if name == "killed" else subprocess.Popen(done)
    )
    assert "FAIL" in checked("wrong-checkpoint").values()
    assert CliRunner().invoke(app, ["prove", "--plant", "unknown"]).exit_code == 2


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the learner's proof leaves where nothing is wrong."""
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed (extra deepspeed)", exc_type=ImportError)
    folder = tmp_path_factory.mktemp("sound")
    found = list(learner.learner_checks(folder, 2, []))
    assert len(found) == 10 and {check.verdict for check in found} == {"ok"}, found
    return folder


@pytest.mark.engines
@pytest.mark.parametrize("plant", ["dropped-gradients", "doubled-update", "wrong-checkpoint"])
def test_faults_planted_in_the_learner_are_found(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: str
) -> None:
    train = learner._train

    def disturbed(folder: Path, launcher: tuple[str, ...], *rest: Any) -> None:
        """Train only what the fault changes: two processes, or one that loads what they saved."""
        if bool(launcher) is (plant != "wrong-checkpoint"):
            return train(folder, launcher, *rest)
        for saved in sound.glob("*-2") if launcher else ():
            shutil.copytree(saved, folder / saved.name, ignore=shutil.ignore_patterns(UNIVERSAL))
        for weights in sound.glob("*-on-2.*" if launcher else "*-on-1.*"):
            shutil.copy(weights, folder)

    monkeypatch.setattr(learner, "_train", disturbed)
    found = list(learner.learner_checks(tmp_path, 2, [plant]))
    wrong = {check.name for check in found if check.verdict == "FAIL"}
    ways = ("plain", "zero-2", "zero-3")
    together = {f"{way} on 2 processes = plain on one" for way in ways}
    same = {f"{way}: the same weights on every process" for way in ways}
    loaded = {f"{way} saved by 2, loaded by one" for way in ways}
    doubled = {"plain: the same weights on every process", *(together - {"plain on 2 processes = plain on one"})}
    expected = {"dropped-gradients": together, "doubled-update": doubled, "wrong-checkpoint": loaded}
    others = {"doubled-update": together | same}.get(plant, set())
    assert len(found) == 10 and expected[plant] <= wrong <= expected[plant] | others, found
    assert any(part in name for part in prove.FAULTS[plant] for name in wrong)


@pytest.mark.engines
def test_servers_are_proved(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed (extra vllm)", exc_type=ImportError)
    status, checks = proved(tmp_path, "--part", "servers")
    assert status == 0 and len(checks) == 9 and set(checks.values()) == {"ok"}, checks


@pytest.mark.engines
def test_stale_weights_a_server_that_stays_away_and_one_that_is_leaked_are_found(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed (extra vllm)", exc_type=ImportError)
    faults = ("stale-weights", "no-restart", "leaked-server")
    status, checks = proved(tmp_path, "--part", "servers", *(f"--plant={fault}" for fault in faults))
    wrong = {name for name, verdict in checks.items() if verdict == "FAIL"}
    synced = {f"servers: {how}: a sync brings the learner's weights" for how in ("files", "broadcast")}
    assert status == 1 and len(checks) == 9
    assert wrong == synced | {"servers: a killed server comes back", "servers: what is left behind"}
