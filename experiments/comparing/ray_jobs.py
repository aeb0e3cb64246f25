"""Trains the runs of a comparison as tasks of Ray, on a cluster whose hosts share the disk and the environment.

If a task's host dies, Ray reschedules it elsewhere, and it resumes from the newest checkpoint. The cluster is that of
RAY_ADDRESS, or the one that this host belongs to.
"""

import signal
from pathlib import Path
from typing import Any

from halfway.curriculum import UserError
from halfway.experiments.comparing import processes
from halfway.experiments.config.run import RunConfig
from halfway.trainers.rollouts.ray_pool import connect_to_ray


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


def submit(config: RunConfig, folder: Path, parallel: int) -> RayJob:
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
