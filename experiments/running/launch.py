"""Makes and runs the commands that start a run on several hosts: the engine's servers, and the training ranks.

All of them use the Python that launches them, since a shell opened by ssh finds no program of a virtual environment by
name. Every host needs the same environment at the same path.
"""

import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from halfway.curriculum.support.acceptance import VARIABLE, accepted_words
from halfway.curriculum.support.errors import UserError, require
from halfway.experiments.config.run import RunConfig
from halfway.trainers.distributed.restart_pause import restart_pause

POLL_SECONDS = 1.0
GRACE_SECONDS = 20.0
LOCAL = ("localhost", "127.0.0.1")
HOST = re.compile(r"\w[\w.@:%-]*")
"""How a host looks. None can pass for an option of ssh."""

PYTHON = (sys.executable, "-m")
SAFE = {"PYTHONSAFEPATH": "1"}
"""Keeps Python, and what it starts, from importing a `torch.py` of the folder in which the user stands."""
ACCELERATE, TORCH = "accelerate.commands.launch", "torch.distributed.run"


@dataclass(frozen=True)
class Command:
    """A program to start on a host.

    Attributes:
        serves: whether it is a server, which runs until the other commands have ended.
    """

    host: str
    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    serves: bool = False

    @property
    def line(self) -> str:
        """The command as a line for a shell on that host."""
        said = {VARIABLE: ",".join(accepted_words())} if accepted_words() else {}
        environment = {**SAFE, **said, **self.environment}
        settings = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
        return " ".join([*settings, shlex.join(self.words)])


def commands(config: RunConfig, file: Path, nodes: Sequence[str], overrides: Sequence[str] = ()) -> list[Command]:
    """The commands of a run: servers first, then one command per training host.

    Args:
        nodes: the hosts, training hosts first.

    Raises:
        UserError: if there are too few hosts, or if the engine cannot be served by rollout hosts.
    """
    for host in nodes:
        require(HOST.fullmatch(host) is not None, "--nodes", host, "give names or addresses of hosts")
    cluster = config.cluster
    wanted = cluster.train_nodes + cluster.rollout_nodes
    if len(nodes) != wanted:
        raise UserError(
            f"--nodes: {len(nodes)} hosts given, cluster has {cluster.train_nodes} train_nodes and "
            f"{cluster.rollout_nodes} rollout_nodes; give {wanted}, those that train first"
        )
    name, engine = config.rollouts.engine.name, config.rollouts.engine.part
    services = engine.services(config.planned())
    assert engine.address_option or not services, f"{name} has servers and no option that takes their addresses"
    if cluster.rollout_nodes and not services:
        raise UserError(
            f"rollouts.engine: {name!r} runs beside the learner; with cluster.rollout_nodes use one that has servers, "
            "such as vllm_servers"
        )
    training, serving = list(nodes[: cluster.train_nodes]), list(nodes[cluster.train_nodes :])
    servers = [
        Command(host, service.words, service.environment, serves=True) for host in serving for service in services
    ]
    changes = list(overrides)
    if servers:
        addresses = ",".join(f"{host}:{service.port}" for host in serving for service in services)
        changes.append(f"rollouts.engine.{name}.{engine.address_option}=[{addresses}]")
    accept = {VARIABLE: ",".join([*accepted_words(), *(f"server:{host}" for host in serving)])} if servers else {}
    ranks = [train_command(config, file, training, rank, changes) for rank in range(len(training))]
    return [*servers, *(replace(rank, environment={**rank.environment, **accept}) for rank in ranks)]


def train_command(config: RunConfig, file: Path, hosts: Sequence[str], rank: int, overrides: Sequence[str]) -> Command:
    """The command for all ranks of a training host: by accelerate or, on CPUs, where that starts only one, by torch."""
    cluster = config.cluster
    run = ("halfway.experiments.cli", "run", str(file), *overrides)
    address = (hosts[0], str(cluster.port))
    if cluster.gpus:
        words = (
            *(*PYTHON, ACCELERATE, "--num_machines", str(len(hosts)), "--num_processes", str(cluster.ranks)),
            *("--machine_rank", str(rank), "--main_process_ip", address[0], "--main_process_port", address[1]),
            *("--mixed_precision", "no", "--dynamo_backend", "no"),
            *(("--multi_gpu",) if cluster.ranks > 1 else ()),
            *("--module", *run),
        )
        return Command(hosts[rank], words)
    words = (
        *(*PYTHON, TORCH, "--nnodes", str(len(hosts)), "--node-rank", str(rank)),
        *("--nproc-per-node", str(cluster.devices_per_node), "--master-addr", address[0], "--master-port", address[1]),
        *("--module", *run),
    )
    return Command(hosts[rank], words, {"OMP_NUM_THREADS": "1"})


def start(command: Command, through: str) -> "subprocess.Popen[bytes]":
    """Start a command: directly if the host is this one, otherwise through "ssh" or Slurm's "srun"."""
    if command.host in (*LOCAL, socket.gethostname()) and through != "srun":
        words = ["sh", "-c", f"exec env {command.line}"]
    elif through == "srun":
        words = ["srun", "--nodes=1", "--ntasks=1", "--overlap", f"--nodelist={command.host}"]
        words += ["sh", "-c", f"exec env {command.line}"]
    else:
        words = ["ssh", "-tt", command.host, f"cd {shlex.quote(str(Path.cwd()))} && exec env {command.line}"]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL)


class Running:
    """A command that has been started."""

    def __init__(self, command: Command, through: str):
        self.command, self.through = command, through
        self.starts = 0
        self._start()

    def _start(self) -> None:
        self.process = start(self.command, self.through)
        self.starts += 1
        self.started = time.monotonic()

    def start_again(self) -> None:
        """Start the command again if it has ended, after a pause that grows with every start."""
        if self.process.poll() is not None and time.monotonic() >= self.started + restart_pause(self.starts):
            print(f"{self.command.host}: a server has ended with status {self.process.returncode}; it is started again")
            self._start()


def run_all(commands: Sequence[Command], through: str) -> int:
    """Run all commands until the training commands have ended or one of them has failed; then end the rest.

    A server that ends too early is started again; the run uses it again once it answers.

    Returns:
        0, or the exit status of the first command that failed.
    """
    running = [Running(command, through) for command in commands]
    try:
        while True:
            states = [one.process.poll() for one in running if not one.command.serves]
            failed = [state for state in states if state]
            if failed or None not in states:
                return failed[0] if failed else 0
            for one in running:
                if one.command.serves:
                    one.start_again()
            time.sleep(POLL_SECONDS)
    finally:
        for one in running:
            if one.process.poll() is None:
                one.process.terminate()
        for one in running:
            try:
                one.process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                one.process.kill()
