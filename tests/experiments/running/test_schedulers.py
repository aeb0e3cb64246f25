"""Slurm and Ray on this host: runs that they start again half-way end like undisturbed runs."""

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from installed_package import install
from paths import IMPORTABLE, REPOSITORY, count_lines
from preloaded import Preloaded
from typer.testing import CliRunner

from halfway.experiments.cli import app
from halfway.trainers.distributed.ports import free_port

SUMS = REPOSITORY / "experiments" / "recipes" / "lab" / "sums.yaml"
TWO_POOLS = REPOSITORY / "experiments" / "recipes" / "cluster" / "two_pools.yaml"
SETTINGS = (
    *("fill.groups=4", "problems.train=16", "budget={steps: 12}", "checkpoint.every=1", "tracking.mlflow=false"),
    *("evaluation={points: 1, samples: 1, problems: 8}", "rollouts.max_response_tokens=32"),
)
CONFIGURATION = """
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller}
SlurmdPort={daemon}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def test_the_script_asks_for_the_hosts_of_the_run_and_for_requeuing() -> None:
    done = CliRunner().invoke(app, ["launch", str(TWO_POOLS), "seed=3", "--on", "slurm", "--dry-run"])
    assert done.exit_code == 0, done.output
    *_, command = lines = done.output.strip().splitlines()
    for option in ("--nodes=4", "--ntasks-per-node=1", "--gpus-per-node=8", "--exclusive", "--requeue"):
        assert f"#SBATCH {option}" in lines
    assert command.startswith(f"exec {sys.executable} -m halfway.experiments.cli launch {TWO_POOLS} seed=3 --th")
    assert command.endswith('--nodes "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)"')


def test_no_slurm_and_a_refused_job_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(app, ["launch", str(SUMS), "--on", "slurm"])
    assert done.exit_code == 2 and "'slurm' needs sbatch" in done.stderr
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: invalid partition' >&2\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    done = CliRunner().invoke(app, ["launch", str(SUMS), "--on", "slurm"])
    assert done.exit_code == 2 and "sbatch: error: invalid partition" in done.stderr
    assert CliRunner().invoke(app, ["launch", str(SUMS), "--on", "pbs"]).exit_code == 2


@pytest.fixture(scope="module")
def slurm() -> Iterator[None]:
    """Our own controller, daemon and munge, on free ports of this host."""
    missing = [name for name in ("munged", "slurmctld", "slurmd") if shutil.which(name) is None]
    if missing or os.geteuid():
        pytest.skip("needs root, and Debian's packages slurmctld, slurmd and munge")
    folder = Path("/run") / f"halfway-slurm-{os.getpid()}"  # munge wants folders that nobody else can write to
    for name in ("", "state", "spool"):
        (folder / name).mkdir(mode=0o755)
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o400)
    ports = {"controller": free_port(), "daemon": free_port()}
    names = {"host": socket.gethostname().partition(".")[0], "folder": folder, "cores": os.cpu_count(), **ports}
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**names))
    own = [f"--{what}-file={folder}/{what}" for what in ("key", "pid", "log", "seed")]
    daemons = [["munged", "-F", *own, f"--socket={folder}/munge.sock"], ["slurmctld", "-D", "-i"], ["slurmd", "-D"]]
    patch = pytest.MonkeyPatch()
    patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    with (folder / "output").open("wb") as output:
        running = [subprocess.Popen(words, stdout=output, stderr=output) for words in daemons]
    try:
        wait_until(lambda: "idle" in said("sinfo", "--noheader"), 60)
        yield
    finally:
        patch.undo()
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(30)
        shutil.rmtree(folder)


def said(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def wait_until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def steps_of(run: Path) -> int:
    """The steps that a run has recorded."""
    return count_lines(run / "steps.jsonl")


def digests(folder: Path) -> list[str]:
    """Of the decisions and the last weights of a run."""
    files = [folder / "decisions.jsonl", sorted(folder.rglob("*.safetensors"))[-1]]
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


def test_a_requeued_job_ends_with_the_bits_of_an_undisturbed_run(
    slurm: None, preloaded: Preloaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", IMPORTABLE)
    straight = ("run", SUMS, "name=straight", f"output={tmp_path}", *SETTINGS)
    preloaded(tmp_path, tmp_path / "straight.txt", *straight)
    job = said(*submitting("requeued", tmp_path)).split()[-1]
    run = tmp_path / "requeued"
    wait_until(lambda: steps_of(run) >= 2, 200)
    subprocess.run(["scontrol", "requeue", job], check=True)
    wait_until(lambda: " PD " in said("squeue", "--job", job), 60)
    assert steps_of(run) < 12, "it was requeued in the middle"
    subprocess.run(["scontrol", "update", f"jobid={job}", "starttime=now"], check=True)  # it would wait two minutes
    wait_until(lambda: job not in said("squeue", "--noheader"), 300)
    log = (tmp_path / f"requeued-{job}.log").read_text()
    assert digests(run) == digests(tmp_path / "straight"), log[-2000:]


PATIENT = """
import time
from dataclasses import dataclass
from pathlib import Path
from halfway.curriculum import PassRateController

@dataclass(frozen=True)
class Steps:
    number: int = 0

@dataclass(frozen=True)
class Patient(PassRateController[Steps]):
    "Changes nothing; holds a run back after two steps until a file exists."

    def init(self, problems):
        return Steps()

    def propose(self, plan, state, stream):
        while state.number >= 2 and not Path({gate!r}).exists():
            time.sleep(0.1)
        return plan, state

    def observe(self, state, groups, step):
        return Steps(state.number + 1)
"""


def compared(output: Path, *how: str, member: str = ", patient") -> "subprocess.Popen[str]":
    """Begin a comparison of two short runs, with a further member in both chains."""
    file = output.parent / "two.yaml"
    file.write_text(
        f"name: two\nbase:\n  base: {SUMS}\nseeds: [0]\n"
        f"arms:\n  grpo: {{controllers: [uniform{member}]}}\n  greso: {{controllers: [uniform, greso{member}]}}\n"
    )
    words = [sys.executable, "-m", "halfway.experiments.cli", "compare", str(file), f"output={output}", *SETTINGS]
    words.append("budget={steps: 4}")
    return subprocess.Popen([*words, *how], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finished(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """The exit status and the words of a comparison, which does not outlive the test."""
    try:
        return process.wait(600), process.communicate()[0]
    finally:
        process.terminate()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison that nothing disturbs, with the package of the patient member beside it, and its open gate."""
    folder = tmp_path_factory.mktemp("local")
    install(folder / "site", PATIENT.format(gate=str(folder / "gate")), "halfway.controllers", "patient", "Patient")
    (folder / "gate").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((IMPORTABLE, str(folder / "site"))))
        status, words = finished(compared(folder / "runs", "--jobs", "2"))
    assert status == 0, words
    return folder


@pytest.fixture
def gate(local: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that lets runs continue after two steps; missing at the start of a test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((IMPORTABLE, str(local / "site"))))
    (local / "gate").unlink(missing_ok=True)
    return local / "gate"


def test_a_comparison_on_slurm_with_one_job_killed_has_the_bits_of_a_local_one(
    slurm: None, local: Path, gate: Path, tmp_path: Path
) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed (extra slurm)")
    killed = compared(tmp_path / "slurm", "--jobs", "2", "--on", "slurm")
    run = tmp_path / "slurm" / "two" / "grpo" / "seed-0"
    wait_until(lambda: steps_of(run) == 2, 600)
    [job] = [line.split()[0] for line in said("squeue", "--noheader", "--format=%i %j").splitlines() if "/grpo" in line]
    subprocess.run(["scancel", "--signal=KILL", job], check=True)
    gate.touch()
    status, words = finished(killed)
    assert status == 1 and "grpo seed 0 failed: " in words, words
    assert "greso seed 0 finished" in words and steps_of(run) < 4
    status, words = finished(compared(tmp_path / "slurm", "--jobs", "2", "--on", "slurm"))
    assert status == 0 and "greso seed 0 finished" not in words, words
    for arm in ("grpo", "greso"):
        runs = [folder / "two" / arm / "seed-0" for folder in (local / "runs", tmp_path / "slurm")]
        assert digests(runs[0]) == digests(runs[1])


def test_a_comparison_on_two_nodes_of_ray_that_loses_one_has_the_bits_of_a_local_one(
    local: Path, gate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="ray is not installed (extra ray)")
    from ray.cluster_utils import Cluster

    settings = ("--jobs", "2", "--on", "ray")
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")  # without it, Ray joins any cluster of this host
    status, words = finished(compared(tmp_path / "early", *settings))
    assert status == 2 and "no Ray cluster responds" in words, words
    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    try:
        lost = cluster.add_node(**small)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        running = compared(tmp_path / "ray", *settings)
        runs = [tmp_path / "ray" / "two" / arm / "seed-0" for arm in ("grpo", "greso")]
        wait_until(lambda: all(steps_of(run) == 2 for run in runs), 600)
        cluster.remove_node(lost, allow_graceful=False)
        gate.touch()
        status, words = finished(running)
    finally:
        cluster.shutdown()
    assert status == 0, words
    for run in runs:
        assert digests(run) == digests(local / "runs" / "two" / run.parent.name / run.name)


def test_a_run_of_two_ranks_is_launched_in_its_job(
    slurm: None, preloaded: Preloaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed (extra slurm)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", IMPORTABLE)
    ranks = ("cluster.devices_per_node=2", f"cluster.port={free_port()}")
    status, words = finished(compared(tmp_path / "ranks", "--on", "slurm", "--arms", "grpo", *ranks, member=""))
    run = tmp_path / "ranks" / "two" / "grpo" / "seed-0"
    assert status == 0, words + (run / "log.txt").read_text()
    alone = ("run", run / "config.yaml", "name=alone", f"output={tmp_path}")
    preloaded(tmp_path, tmp_path / "alone.txt", *alone, ranks=2)
    assert digests(run) == digests(tmp_path / "alone")


def test_a_comparison_on_a_scheduler_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(f"base: {{base: {SUMS}}}\nseeds: [0]\narms: {{grpo: {{}}}}\n")
    settings = ["compare", "one.yaml", "tracking.mlflow=false", "--on"]
    assert "--on: must be here, slurm or ray, not 'pbs'" in CliRunner().invoke(app, [*settings, "pbs"]).stderr
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(app, [*settings, "slurm", "name=other"])
    lacks = "Slurm rejected the job" if find_spec("submitit") else "--on slurm: needs the package submitit; pip install"
    assert done.exit_code == 2 and lacks in done.stderr
    if not find_spec("ray"):
        done = CliRunner().invoke(app, [*settings, "ray", "name=third"])
        assert done.exit_code == 2 and "--on ray: needs the package ray; pip install" in done.stderr
    done = CliRunner().invoke(app, [*settings, "ray", "name=fourth", "cluster.train_nodes=2"])
    assert done.exit_code == 2 and "'ray' gives a run one host" in done.stderr


def submitting(name: str, output: Path) -> list[str]:
    words = [sys.executable, "-m", "halfway.experiments.cli", "launch", str(SUMS), f"name={name}", f"output={output}"]
    return [*words, *SETTINGS, f"cluster.port={free_port()}", "--on", "slurm"]
