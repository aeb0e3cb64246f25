"""A run as objects of Kubernetes: valid, complete, and its pods' script executed by a stand-in for a kubelet."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import IMPORTABLE, REPOSITORY
from preloaded import Preloaded
from typer.testing import CliRunner

from halfway.experiments.cli import app
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.config.run import RunConfig
from halfway.experiments.running import kubernetes
from halfway.trainers.distributed.ports import free_port
from halfway.trainers.engines.vllm_servers import auth

RECIPES = REPOSITORY / "experiments" / "recipes"
TWO_POOLS, SUMS = RECIPES / "cluster" / "two_pools.yaml", RECIPES / "lab" / "sums.yaml"
POD = ("--on", "kubernetes", "--image", "registry/halfway:1", "--claim", "disk:/shared")


def objects(*words: str) -> dict[str, Any]:
    """The objects that a dry run prints, by kind."""
    done = CliRunner().invoke(app, ["launch", *words, *POD, "--dry-run"])
    assert done.exit_code == 0, done.output
    return {each["kind"]: each for each in yaml.safe_load_all(done.output)}


@pytest.mark.parametrize("file", [TWO_POOLS, RECIPES / "cluster" / "one_gpu.yaml", SUMS], ids=lambda file: file.stem)
@pytest.mark.parametrize("version", ["1.33", "latest"])
def test_every_object_is_what_its_kind_allows(file: Path, version: str) -> None:
    known = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (extra dev)")
    found = objects(str(file))
    assert list(found) == ["Secret", "ConfigMap", "Service", "Job"]
    for each in found.values():
        known.validate(each, known.latest_version() if version == "latest" else version, strict=True)
    found["Job"]["spec"]["completionMood"] = "Indexed"
    with pytest.raises(known.ValidationError, match="completionMood"):
        known.validate(found["Job"], known.latest_version(), strict=True)


def test_pods_find_each_other_and_what_they_need() -> None:
    found = objects(str(TWO_POOLS), "seed=3")
    job, pod = found["Job"]["spec"], found["Job"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert (job["completions"], job["parallelism"], job["successPolicy"]["rules"]) == (
        *(4, 4),
        [{"succeededIndexes": "0-1"}],
    )
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    name = found["Job"]["metadata"]["name"]
    assert found["Service"]["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    assert {each["metadata"]["name"] for each in found.values()} == {name} == {pod["subdomain"]}
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    volumes = {each.pop("name"): each for each in pod["volumes"]}
    assert volumes[next(key for key, path in mounted.items() if path == "/dev/shm")] == {
        "emptyDir": {"medium": "Memory"}
    }
    assert container["workingDir"] in mounted.values()
    [_, first, second, rest, _] = container["command"][-1].splitlines()
    for rank, line in enumerate((first, second)):
        assert line.startswith(f"{rank}) ") and f"--machine_rank {rank} --main_process_ip {name}-0.{name}" in line
        assert f"addresses=[{name}-2.{name}:29501," in line
    assert rest.startswith("*) ") and rest.endswith('serve /etc/halfway/run.yaml --address "$POD_IP" ;;')


def test_the_configuration_is_complete_and_the_token_stands_in_the_secret_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(auth.VARIABLE, "a_token_of_the_run")
    found = objects(str(TWO_POOLS), "seed=3")
    assert found.pop("Secret")["stringData"] == {auth.VARIABLE: "a_token_of_the_run"}
    assert "a_token_of_the_run" not in str(found)
    (tmp_path / "run.yaml").write_text(found["ConfigMap"]["data"]["run.yaml"])
    assert load_run_config(tmp_path / "run.yaml") == load_run_config(TWO_POOLS, ["seed=3"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--claim", "disk:/shared"], "--image: '' is not acceptable"),
        (["--image", "a"], "--claim: '' is not acceptable; give NAME:PATH"),
        (["--image", "a", "--claim", "disk"], "--claim: 'disk' is not acceptable"),
        (["--image", "a", "--claim", "Disk:/shared"], "--claim: 'Disk:/shared' is not acceptable"),
        (["output=/elsewhere", "--image", "a", "--claim", "disk:/shared"], "output: '/elsewhere' is not acceptable"),
        (["output=../up", "--image", "a", "--claim", "disk:/shared"], "output: '../up' is not acceptable"),
    ],
)
def test_what_pods_could_not_find_again_is_refused(words: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["launch", str(SUMS), "--on", "kubernetes", *words])
    assert done.exit_code == 2 and message in done.stderr, done.output


def test_names_are_shortened_to_those_of_a_host() -> None:
    config = load_run_config(SUMS, ["name=A_b/c." + "d" * 60])
    assert kubernetes.name_of(config).startswith("halfway-a-b-c-ddd") and len(kubernetes.name_of(config)) == 50


def test_kubectl_gets_the_objects_and_its_refusal_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program = tmp_path / "kubectl"
    program.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/words\ncat > {tmp_path}/objects\necho job created\n')
    program.chmod(0o755)
    done = CliRunner().invoke(app, ["launch", str(SUMS), *POD])
    assert (done.exit_code, done.output) == (0, "job created\n")
    assert (tmp_path / "words").read_text() == "apply -f -\n"
    assert len(list(yaml.safe_load_all((tmp_path / "objects").read_text()))) == 4
    program.write_text("#!/bin/sh\necho 'forbidden: quota' >&2\nexit 1\n")
    done = CliRunner().invoke(app, ["launch", str(SUMS), *POD])
    assert done.exit_code == 2 and "kubectl refuses the run ('forbidden: quota')" in done.stderr
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    done = CliRunner().invoke(app, ["launch", str(SUMS), *POD])
    assert done.exit_code == 2 and "needs kubectl" in done.stderr


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    own = [int(child) for child in children.read_text().split()] if children.exists() else []
    return [*own, *(each for child in own for each in descendants(child))]


class Pods:
    """A kubelet's part: the pods' script for each index, in place of names and mounts those of this machine."""

    def __init__(self, config: RunConfig, folder: Path):
        folder.mkdir()
        objects = list(yaml.safe_load_all(kubernetes.manifest(config, "image", f"disk:{folder}")))
        (folder / "run.yaml").write_text(objects[1]["data"]["run.yaml"])
        [container] = objects[3]["spec"]["template"]["spec"]["containers"]
        *self.shell, script = container["command"]
        for index in range(2):
            script = script.replace(
                f"{objects[3]['metadata']['name']}-{index}.{objects[3]['metadata']['name']}", "localhost"
            )
        self.script = script.replace(str(kubernetes.MOUNTED), str(folder / "run.yaml"))
        self.folder, self.starts = folder, [0, 0]
        self.running = [self.start(index) for index in range(2)]

    def start(self, index: int) -> "subprocess.Popen[bytes]":
        self.starts[index] += 1
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        given = {"JOB_COMPLETION_INDEX": str(index), "PATH": path, "PYTHONPATH": IMPORTABLE}
        with (self.folder / f"{index}.log").open("ab") as log:
            return subprocess.Popen(
                [*self.shell, self.script], cwd=self.folder, env=os.environ | given, stdout=log, stderr=log
            )

    def preempt(self, index: int) -> None:
        """Kill all processes of a pod, as the end of a container does."""
        for pid in (self.running[index].pid, *descendants(self.running[index].pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def tended(self) -> bool:
        """Replace the pods that have failed. Returns whether all have succeeded."""
        for index, pod in enumerate(self.running):
            if pod.poll():
                self.running[index] = self.start(index)
        return all(pod.poll() == 0 for pod in self.running)

    def until(self, done: Any) -> None:
        deadline = time.monotonic() + 500  # ranks wait for lost peers, on two cores
        while not done():
            assert time.monotonic() < deadline, (self.folder / "0.log").read_text()[-3000:]
            time.sleep(0.2)

    def end(self) -> None:
        for index, pod in enumerate(self.running):
            if pod.poll() is None:
                self.preempt(index)
            pod.wait(30)


def digests(run: Path) -> list[str]:
    """Of the decisions and the last weights of a run."""
    files = (run / "decisions.jsonl", sorted(run.rglob("*.safetensors"))[-1])
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


def test_a_preempted_pod_comes_back_and_the_run_ends_with_the_same_bits(preloaded: Preloaded, tmp_path: Path) -> None:
    settings = (
        *("name=pods", "fill.groups=4", "problems.train=16", "budget={steps: 6}", "checkpoint.every=1"),
        *("evaluation={points: 1, samples: 1, problems: 8}", "rollouts.max_response_tokens=32"),
        *("tracking.mlflow=false", "cluster.train_nodes=2", f"cluster.port={free_port()}", "output=runs"),
    )
    (tmp_path / "straight").mkdir()
    preloaded(tmp_path / "straight", tmp_path / "straight.txt", "run", SUMS, *settings, ranks=2)
    pods, run = Pods(load_run_config(SUMS, settings), tmp_path / "preempted"), tmp_path / "preempted" / "runs" / "pods"
    steps = run / "steps.jsonl"
    try:
        pods.until(lambda: steps.exists() and steps.read_text().count("\n") >= 2)
        pods.preempt(1)
        pods.until(pods.tended)
    finally:
        pods.end()
    assert min(pods.starts) > 1
    assert digests(run) == digests(tmp_path / "straight" / "runs" / "pods")
