"""Trains the runs of a comparison as jobs of Slurm, through submitit, or as tasks of Ray.

A job of Slurm that is preempted or loses its host is requeued and resumes from its newest checkpoint, and so does a run
of one process at its time limit. A run of several ranks or hosts is launched in its job as by `halfway launch`.
Account, partition and the like come from sbatch's own variables, such as SBATCH_ACCOUNT and SBATCH_TIMELIMIT.

Ray's cluster is that of RAY_ADDRESS, or the one that this host belongs to; its hosts share the disk and the
environment. If a task's host dies, Ray reschedules it elsewhere, and it resumes from the newest checkpoint.
"""

import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from halfway.curriculum import UserError, require
from halfway.curriculum.support.atomic import require_no_link
from halfway.curriculum.support.extras import load_extra, one_line
from halfway.experiments.comparing import processes
from halfway.experiments.config.run import RunConfig
from halfway.trainers.rollouts.ray_pool import connect_to_ray

MINUTES = 24 * 60
ASK_SECONDS = 5.0
FILES = "slurm"
"""The folder in a run's directory with one folder of files per job."""


class Training:
    """A job that trains the run in a directory, like `halfway compare` on this machine."""

    def __call__(self, folder: str) -> int:
        return processes.train_as_job(Path(folder), hosts, "srun")

    def checkpoint(self, folder: str) -> Any:
        """The job to submit at the time limit: the same one, which resumes from the newest checkpoint."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, folder)


def hosts() -> list[str]:
    """The hosts of this job."""
    words = ["scontrol", "show", "hostnames"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


class SlurmJob:
    """A job with the interface of `processes.Process`."""

    def __init__(self, job: Any):
        self.job = job
        self.asked = time.monotonic()
        self.gone = False

    @property
    def exitcode(self) -> int | None:
        """Exit code of the training process; that of a killed process if the job ended without one."""
        if self.job.paths.result_pickle.exists():
            error = self.job.exception()
            return 1 if error else int(self.job.result())
        if self.gone:
            return -signal.SIGKILL
        if time.monotonic() >= self.asked + ASK_SECONDS:
            self.asked, self.gone = time.monotonic(), not in_queue(self.job.job_id)
        return None

    def terminate(self) -> None:
        self.job.cancel(check=False)

    def kill(self) -> None:
        """Do nothing: Slurm kills a job some time after asking it to end."""

    def join(self, timeout: float | None = None) -> None:
        deadline = time.monotonic() + (processes.PATIENCE_SECONDS if timeout is None else timeout)
        while self.exitcode is None and time.monotonic() < deadline:
            time.sleep(0.2)


def in_queue(job: str) -> bool:
    """True if a job waits or runs, or if Slurm's controller does not answer."""
    words = ["squeue", "--noheader", "--format=%T", f"--jobs={job}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return bool(done.stdout.strip()) or (done.returncode != 0 and "Invalid job id" not in done.stderr)


def submit_to_slurm(config: RunConfig, folder: Path, parallel: int) -> SlurmJob:
    """Submit the training of the run in a directory, with the hosts and devices of its `cluster`.

    Raises:
        UserError: if submitit is missing, or Slurm is missing or refuses the job; if the directory's path has line
            ends, which would become lines of the job's script.
    """
    place = str(folder.resolve())
    require(place.isprintable(), "output", place, "give a path of printable characters")
    cluster, several = config.cluster, processes.needs_launch(config)
    nodes = {"nodes": cluster.train_nodes + cluster.rollout_nodes} if several else {}
    submitit = load_extra("submitit", "--on slurm", "slurm")
    devices = "gpus_per_node" if cluster.gpus else "cpus_per_task"
    require_no_link(folder / FILES)
    (folder / FILES).mkdir(parents=True, exist_ok=True)
    # A new folder: the result is unpickled, and a foreign folder may contain one under the job's number.
    files = tempfile.mkdtemp(dir=folder / FILES)
    try:
        executor = submitit.SlurmExecutor(files)
        executor.update_parameters(
            job_name=f"halfway-{config.name.rpartition('/')[0]}-{config.seed}",
            time=MINUTES,
            **{devices: cluster.devices_per_node},
            use_srun=not several,
            srun_args=["--cpu-bind=none"],
            additional_parameters={"requeue": True, **nodes},  # so submitit still expects one result
        )
        return SlurmJob(executor.submit(Training(), place))
    except (RuntimeError, submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
        raise UserError(f"--on: Slurm rejected the job ({one_line(error)}); submit from a login node") from error


def train_task(folder: str) -> int:
    """Train a run as a Ray task; returns the exit status of the training process."""
    return processes.train_as_job(Path(folder), lambda: ["localhost"], "ssh")


class RayJob:
    """A task with the interface of `processes.Process`."""

    def __init__(self, ray: Any, task: Any):
        self.ray, self.task = ray, task

    @property
    def exitcode(self) -> int | None:
        """Exit code of the training process; that of a killed process if the task ended without one."""
        if not self.ray.wait([self.task], timeout=0)[0]:
            return None
        try:
            return int(self.ray.get(self.task))
        except self.ray.exceptions.RayError:
            return -signal.SIGKILL

    def terminate(self) -> None:
        self.ray.cancel(self.task, force=True)

    def kill(self) -> None:
        """Do nothing: `terminate` kills."""

    def join(self, timeout: float | None = None) -> None:
        self.ray.wait([self.task], timeout=processes.PATIENCE_SECONDS if timeout is None else timeout)


def submit_to_ray(config: RunConfig, folder: Path, parallel: int) -> RayJob:
    """Submit the training of the run in a directory, with the devices of its `cluster`.

    Raises:
        UserError: if Ray is missing, no cluster answers, or the run needs several hosts.
    """
    cluster = config.cluster
    if cluster.train_nodes + cluster.rollout_nodes > 1:
        raise UserError("--on: 'ray' gives a run one host, and cluster asks for several; use --on slurm")
    ray = connect_to_ray("--on ray", address="auto", logging_level="ERROR")
    devices = {"num_gpus" if cluster.gpus else "num_cpus": cluster.devices_per_node}
    task = ray.remote(**devices, max_retries=-1)(train_task)
    return RayJob(ray, task.remote(str(folder.resolve())))
