"""Builds and runs the commands that start a run on several hosts: engine servers and training ranks.

All commands use the Python of the launcher, by path, since a shell opened by ssh does not have the virtual environment
on its PATH. Every host needs the same environment at the same path.
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from halfway.curriculum import UserError, require
from halfway.curriculum.support.acceptance import VARIABLE, accepted_words
from halfway.curriculum.support.extras import one_line
from halfway.experiments.config.run import RunConfig
from halfway.experiments.running import on_host
from halfway.experiments.running.stop_signals import interrupt_on_signals
from halfway.trainers.distributed.cluster import restart_pause
from halfway.trainers.distributed.ports import HOST, addresses_of
from halfway.trainers.engines.vllm_servers import auth

POLL_SECONDS = 1.0
GRACE_SECONDS = 25.0
LOCAL = ("localhost", "127.0.0.1")
LOGIN = re.compile(rf"(\w[\w.-]*@)?({HOST.pattern})", re.ASCII)
"""A host, or user@host."""
LONE = re.compile("[\ud800-\udfff]")
"""Python's surrogates for bytes that are not UTF-8."""

PYTHON = (sys.executable, "-m")
SAFE = {"PYTHONSAFEPATH": "1"}
"""Keeps Python and its children from importing modules, such as a `torch.py`, from the current folder."""
FORWARDED = (
    "NCCL_",
    "GLOO_",
    "UCX_",
    "FI_",
    "HF_",
    "TRANSFORMERS_",
    "VLLM_",
    "TORCH_",
    "HALFWAY_",
    "MLFLOW_",
    "LD_LIBRARY_PATH",
)
"""Prefixes of environment variables to send to other hosts, since ssh does not."""
ACCELERATE, TORCH = "accelerate.commands.launch", "torch.distributed.run"


@dataclass(frozen=True)
class Command:
    """A program to start on a host.

    Attributes:
        serves: true for a server, which runs until the other commands have ended.
    """

    host: str
    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    serves: bool = False

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of the command."""
        said = {VARIABLE: ",".join(accepted_words())} if accepted_words() else {}
        return {**SAFE, **said, **self.environment}

    @property
    def line(self) -> str:
        """The command as a line for a shell on that host, whose environment must hold the token of the run."""
        settings = [f"{name}={shlex.quote(value)}" for name, value in self.variables.items()]
        return " ".join([*settings, shlex.join(self.words)])


def commands(
    config: RunConfig,
    file: Path,
    nodes: Sequence[str],
    overrides: Sequence[str] = (),
    found: Callable[[Sequence[str]], Mapping[str, str]] = addresses_of,
) -> list[Command]:
    """The commands of a run: servers first, then one command per training host.

    Args:
        nodes: the hosts, training hosts first.
        found: looks up the addresses of hosts.

    Raises:
        UserError: if there are too few hosts, or if the engine has no servers.
    """
    for host in nodes:
        require(LOGIN.fullmatch(host) is not None, "--nodes", host, "give names or addresses of hosts")
    for word in (str(file), *overrides):  # a script and a line on the terminal are text
        require(not LONE.search(word), "launch", word, "give a path and fields in UTF-8")
    cluster = config.cluster
    wanted = cluster.train_nodes + cluster.rollout_nodes
    if len(nodes) != wanted:
        raise UserError(
            f"--nodes: {len(nodes)} hosts given, cluster has {cluster.train_nodes} train_nodes and "
            f"{cluster.rollout_nodes} rollout_nodes; give {wanted}, training hosts first"
        )
    name, engine = config.rollouts.engine.name, config.rollouts.engine.part
    training, serving = list(nodes[: cluster.train_nodes]), list(nodes[cluster.train_nodes :])
    at = found(nodes)
    services = {host: engine.services(config.planned(), at[host]) for host in serving}
    assert engine.address_option or not any(services.values()), f"{name}: no option takes the addresses of its servers"
    if serving and not all(services.values()):
        raise UserError(
            f"rollouts.engine: {name!r} runs beside the learner; with cluster.rollout_nodes use one that has servers, "
            "such as vllm_servers"
        )
    servers = [Command(host, one.words, one.environment, serves=True) for host in serving for one in services[host]]
    changes, accept = list(overrides), {}
    if servers:
        addresses = ",".join(f"{at[host]}:{service.port}" for host in serving for service in services[host])
        changes.append(f"rollouts.engine.{name}.{engine.address_option}=[{addresses}]")
        accept = {VARIABLE: ",".join([*accepted_words(), *(f"server:{at[host]}" for host in serving)])}
    ranks = [train_command(config, file, training, rank, changes, at[training[0]]) for rank in range(len(training))]
    return [*servers, *(replace(rank, environment={**rank.environment, **accept}) for rank in ranks)]


def train_command(
    config: RunConfig, file: Path, hosts: Sequence[str], rank: int, overrides: Sequence[str], first: str
) -> Command:
    """The command for all ranks of a training host, by accelerate; on CPUs by torch, since accelerate starts only one.

    Args:
        first: the address of the first training host.
    """
    cluster = config.cluster
    run = ("halfway.experiments.cli", "run", str(file), *overrides)
    if cluster.gpus:
        words = (
            *(*PYTHON, ACCELERATE, "--num_machines", str(len(hosts)), "--num_processes", str(cluster.ranks)),
            *("--machine_rank", str(rank), "--main_process_ip", first, "--main_process_port", str(cluster.port)),
            *("--mixed_precision", "no", "--dynamo_backend", "no"),
            *(("--multi_gpu",) if cluster.ranks > 1 else ()),
            *("--module", *run),
        )
        return Command(hosts[rank], words)
    words = (
        *(*PYTHON, TORCH, "--nnodes", str(len(hosts)), "--node-rank", str(rank)),
        *("--nproc-per-node", str(cluster.devices_per_node), "--rdzv-endpoint", f"{first}:{cluster.port}"),
        *("--module", *run),
    )
    return Command(hosts[rank], words, {"OMP_NUM_THREADS": "1"})


def kinds(commands: Sequence[Command]) -> Iterator[str]:
    """One line per kind of process: number, hosts, and the command of the first."""
    for serves in (True, False):
        alike = [command for command in commands if command.serves == serves]
        if alike:
            hosts = ",".join(dict.fromkeys(command.host for command in alike))
            yield f"{len(alike)} x {'server' if serves else 'training host'} on {hosts}: {alike[0].line}"


def start(command: Command, through: str, secrets: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start a command: directly if the host is this one, otherwise through "ssh" or Slurm's "srun".

    Args:
        secrets: further environment variables, which never appear on a command line.
    """
    environment = {**command.variables, **secrets}
    if through == "ssh" and command.host not in (*LOCAL, socket.gethostname()):
        own = {name: value for name, value in os.environ.items() if name.startswith(FORWARDED)}
        order = {"environment": own | environment, "folder": str(Path.cwd()), "words": command.words}
        words = ["ssh", "-T", command.host, shlex.join(("env", "PYTHONSAFEPATH=1", sys.executable, on_host.__file__))]
        process = subprocess.Popen(words, stdin=subprocess.PIPE)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # its exit status tells why
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        return process
    # Since Slurm 22.05, a step with one task may get one core of the job's, or be bound to it.
    step = ("srun", "--nodes=1", "--ntasks=1", "--overlap", "--export=ALL", "--cpu-bind=none")
    words = [*step, f"--nodelist={command.host}"] if through == "srun" else []
    return subprocess.Popen([*words, *command.words], stdin=subprocess.DEVNULL, env=os.environ | environment)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Ask a started command to end; over ssh by closing its input, see `on_host`."""
    if process.stdin is None:
        process.terminate()
    else:
        with suppress(BrokenPipeError):
            process.stdin.close()


class Running:
    """A started command, which can be restarted when it ends."""

    def __init__(self, command: Command, through: str, secrets: Mapping[str, str]):
        self.command, self.through, self.secrets = command, through, secrets
        self.starts = 0
        self._start()

    def _start(self) -> None:
        self.process = start(self.command, self.through, self.secrets)
        self.starts += 1
        self.started = time.monotonic()

    def start_again(self) -> None:
        """Restart the command if it has ended, after a pause that grows with every start."""
        if self.process.poll() is not None and time.monotonic() >= self.started + restart_pause(self.starts):
            print(f"{self.command.host}: a server exited with status {self.process.returncode}; restarting it")
            self._start()


@contextmanager
def run_commands(commands: Sequence[Command], through: str, secrets: Mapping[str, str]) -> Iterator[list[Running]]:
    """Run commands during a `with` block, and stop those that still run at its end."""
    running = [Running(command, through, secrets) for command in commands]
    try:
        yield running
    finally:
        for one in running:
            if one.process.poll() is None:
                end(one.process)
        for one in running:
            try:
                one.process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                one.process.kill()


def run_all(commands: Sequence[Command], through: str, secrets: Mapping[str, str]) -> int:
    """Run all commands until the training commands have ended or one of them has failed; then stop the rest.

    A server that ends too early is restarted; the run uses it again when it responds.

    Args:
        secrets: environment variables for all commands that never appear on a command line, such as the token of the
            run.

    Returns:
        0, or the exit status of the first command that failed.
    """
    with interrupt_on_signals(), run_commands(commands, through, secrets) as running:
        while True:
            states = [one.process.poll() for one in running if not one.command.serves]
            failed = [state for state in states if state]
            if failed or None not in states:
                return failed[0] if failed else 0
            for one in running:
                if one.command.serves:
                    one.start_again()
            time.sleep(POLL_SECONDS)


def serving_commands(config: RunConfig, address: str) -> list[Command]:
    """The commands that start the servers of a rollout host.

    Raises:
        UserError: if the engine has no servers.
    """
    engine = config.rollouts.engine
    services = engine.part.services(config.planned(), address)
    if not services:
        raise UserError(f"rollouts.engine: {engine.name!r} has no servers; use one that has, such as vllm_servers")
    return [Command(LOCAL[0], one.words, one.environment, serves=True) for one in services]


def serve(config: RunConfig, address: str) -> None:
    """Run the servers until this process is asked to end, and restart any that end too early.

    Args:
        address: the only address of this host on which they listen.

    Raises:
        UserError: if the engine has no servers, or the environment lacks the token of the run.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    commands, token = serving_commands(config, address), auth.given_token()
    if token is None:
        raise UserError(
            f"serve: servers accept only requests with their token; set {auth.VARIABLE}, or "
            f"{auth.FILE_VARIABLE} to a file of mode 600, for them and for the run"
        )
    with run_commands(commands, "ssh", {auth.VARIABLE: token}) as running:
        while True:
            for one in running:
                one.start_again()
            time.sleep(POLL_SECONDS)


NODES = '"$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)"'


def batch_script(config: RunConfig, file: Path, overrides: Sequence[str]) -> str:
    """Write the job script: one task per host with all of its cores and GPUs, and `halfway launch` on the first.

    Account, partition and time come from variables of sbatch, such as SBATCH_ACCOUNT.
    """
    cluster = config.cluster
    options = {
        "job-name": f"halfway-{config.name}",
        "nodes": cluster.train_nodes + cluster.rollout_nodes,
        "ntasks-per-node": 1,
        **({"gpus-per-node": cluster.devices_per_node} if cluster.gpus else {}),
        "output": f"{config.name}-%j.log",
        "open-mode": "append",
    }
    lines = [*(f"--{name}={value}" for name, value in options.items()), "--exclusive", "--requeue"]
    words = shlex.join((sys.executable, "-m", "halfway.experiments.cli", "launch", str(file), *overrides))
    command = f"exec {words} --through srun --nodes {NODES}"
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), command, ""])


def submit(script: str) -> str:
    """Submit a script through sbatch. Returns the output of sbatch.

    Raises:
        UserError: if sbatch is missing or refuses the job.
    """
    try:
        done = subprocess.run(["sbatch"], input=script, capture_output=True, text=True, errors="replace", check=True)
    except FileNotFoundError:
        raise UserError("--on: 'slurm' needs sbatch, which is not installed here; submit from a login node") from None
    except subprocess.CalledProcessError as error:
        raise UserError(f"--on: sbatch refuses the job ({one_line(error.stderr.strip())}); see `man sbatch`") from error
    return done.stdout.strip()
