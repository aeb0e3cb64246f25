"""Writes a run as objects of Kubernetes: an Indexed Job whose pods find each other by a headless Service.

Only core kinds are used. Pods with the first indices train and the others serve; the Job has succeeded when those that
train have. A pod that is preempted is replaced, and the ranks that lose it fail and are replaced too; together they go
on from the newest checkpoint. Kubernetes 1.33 has all fields that are used.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from halfway.curriculum.support.errors import UserError, require
from halfway.curriculum.support.extras import one_line
from halfway.experiments.config.loading import as_yaml
from halfway.experiments.config.run import RunConfig
from halfway.experiments.running.launch import PYTHON, Command, commands
from halfway.trainers.engines.vllm_servers import auth

MOUNTED = Path("/etc/halfway/run.yaml")
LONGEST_NAME = 50
"""Of a Job, so that the names of its pods are no longer than the 63 letters of a host's."""
LOSSES = 10
"""How often a training pod may fail, in the mean, for another reason than a preemption."""
NAMED, PLACED = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"), re.compile(r"/[^:]*")


class _Blocks(yaml.SafeDumper):  # type: ignore[misc]
    """Writes texts of several lines as such."""


_Blocks.add_representer(
    str, lambda to, text: to.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
)


def manifest(config: RunConfig, image: str, claim: str) -> str:
    """The objects of a run, which `kubectl apply -f -` takes.

    Args:
        image: the containers' image, whose `python3` has Halfway.
        claim: "NAME:PATH", a PersistentVolumeClaim that all pods can write to, and where they see it. The run's
            relative paths begin there.
    """
    volume, _, place = claim.partition(":")
    require(bool(image), "--image", image, "give the image of the containers, whose python3 has halfway")
    remedy = "give NAME:PATH, a PersistentVolumeClaim that all pods can write to, and where they see it"
    require(bool(NAMED.fullmatch(volume) and PLACED.fullmatch(place)), "--claim", claim, remedy)
    kept = PurePosixPath(place, config.output).is_relative_to(place) and ".." not in Path(config.output).parts
    require(kept, "output", config.output, f"give a folder below {place}, where a pod that comes back finds the run")
    objects = [dict(_object(kind, config, content)) for kind, content in _contents(config, image, volume, place)]
    text: str = yaml.dump_all(objects, Dumper=_Blocks, sort_keys=False, width=10**6)
    return text


def name_of(config: RunConfig) -> str:
    """The run's name as Kubernetes allows it."""
    return f"halfway-{re.sub('[^a-z0-9]+', '-', config.name.lower())}"[:LONGEST_NAME].strip("-")


def _object(kind: str, config: RunConfig, content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "apiVersion", "batch/v1" if kind == "Job" else "v1"
    yield "kind", kind
    yield "metadata", {"name": name_of(config), "labels": {"app.kubernetes.io/instance": name_of(config)}}
    yield from content.items()


def _contents(config: RunConfig, image: str, volume: str, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    name, cluster = name_of(config), config.cluster
    yield "Secret", {"immutable": True, "stringData": {auth.VARIABLE: auth.given_token() or auth.new_token()}}
    yield "ConfigMap", {"immutable": True, "data": {MOUNTED.name: as_yaml(config)}}
    finds = {"clusterIP": "None", "selector": {"batch.kubernetes.io/job-name": name}, "publishNotReadyAddresses": True}
    yield "Service", {"spec": finds}
    pods = cluster.train_nodes + cluster.rollout_nodes
    trained = {"succeededIndexes": f"0-{cluster.train_nodes - 1}"}
    preempted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    job = {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "backoffLimit": LOSSES * cluster.train_nodes,
        "podFailurePolicy": {"rules": [preempted]},
        "successPolicy": {"rules": [trained]},
        "template": {"spec": _pod(config, image, volume, place)},
    }
    yield "Job", {"spec": job}


def _pod(config: RunConfig, image: str, volume: str, place: str) -> dict[str, Any]:
    name, cluster = name_of(config), config.cluster
    mounts = {"disk": place, "recipe": str(MOUNTED.parent), "memory": "/dev/shm"}
    token = {"secretKeyRef": {"name": name, "key": auth.VARIABLE}}
    container = {
        "name": "halfway",
        "image": image,
        "command": ["sh", "-c", script(config)],
        "workingDir": place,
        "env": [
            {"name": auth.VARIABLE, "valueFrom": token},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        **({"resources": {"limits": {"nvidia.com/gpu": cluster.devices_per_node}}} if cluster.gpus else {}),
        "volumeMounts": [{"name": each, "mountPath": path} for each, path in mounts.items()],
    }
    return {
        "restartPolicy": "Never",  # the Job replaces a pod, on another node if need be
        "subdomain": name,
        "shareProcessNamespace": True,  # as process 1, a program would be deaf to SIGTERM
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [
            {"name": "disk", "persistentVolumeClaim": {"claimName": volume}},
            {"name": "recipe", "configMap": {"name": name}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
        ],
    }


def script(config: RunConfig) -> str:
    """What every pod executes: by its index, the ranks of a training host, or the servers of a rollout host."""
    name, cluster = name_of(config), config.cluster
    hosts = [f"{name}-{index}.{name}" for index in range(cluster.train_nodes + cluster.rollout_nodes)]
    ranks = [one for one in commands(config, MOUNTED, hosts, found=_by_name) if not one.serves]
    cases = [f"{index}) exec env {_line(_rejoining(rank))} ;;" for index, rank in enumerate(ranks)]
    if cluster.rollout_nodes:
        servers = Command("", (*PYTHON, "halfway.experiments.cli", "serve", str(MOUNTED), "--address"))
        cases.append(f'*) exec env {_line(servers)} "$POD_IP" ;;')
    return "\n".join(['case "$JOB_COMPLETION_INDEX" in', *cases, "esac", ""])


def _rejoining(command: Command) -> Command:
    """Ranks that meet anew, numbered by name, when a pod comes back; fixed ones would wait for the lost pod's rank."""
    python, module, program, *rest = command.words
    words = (python, module, program, "--rdzv_backend", "c10d", *rest)
    return replace(command, words=words, environment={**command.environment, "PET_LOCAL_ADDR": command.host})


def _by_name(hosts: Sequence[str]) -> Mapping[str, str]:
    """Pods keep their names, and get other addresses when they come back."""
    return {host: host for host in hosts}


def _line(command: Command) -> str:
    """The command for the image's Python instead of this one."""
    return replace(command, words=("python3", *command.words[1:])).line


def apply(objects: str) -> str:
    """Hand the objects to kubectl. Returns what that says.

    Raises:
        UserError: if there is no kubectl, or it refuses them.
    """
    try:
        done = subprocess.run(
            ["kubectl", "apply", "-f", "-"], input=objects, capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        raise UserError("--on: 'kubernetes' needs kubectl, which this machine has not; use --dry-run") from None
    except subprocess.CalledProcessError as error:
        raise UserError(f"--on: kubectl refuses the run ({one_line(error.stderr.strip())}); see --dry-run") from error
    return done.stdout.strip()
