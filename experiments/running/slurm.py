"""Submits a run to Slurm as a job that resumes when it is requeued after a preemption or a lost node."""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from halfway.curriculum import UserError
from halfway.curriculum.support.extras import one_line
from halfway.experiments.config.run import RunConfig

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
