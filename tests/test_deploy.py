"""The example for Kubernetes: valid objects, what its pods' script starts, and the recipe of its image."""

import os
import re
import subprocess
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import REPOSITORY
from strangers.mutations import CANARY, ODD

from halfway.curriculum.support.acceptance import VARIABLE
from halfway.experiments.config.loading import load_run_config
from halfway.trainers.engines.vllm_servers import auth

FILE = REPOSITORY / "docs" / "deploy" / "kubernetes.yaml"
TWO_POOLS = REPOSITORY / "experiments" / "recipes" / "cluster" / "two_pools.yaml"


def objects() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(FILE.read_text())}


@pytest.mark.parametrize("version", ["1.33", "latest"])
def test_every_object_is_what_its_kind_allows(version: str) -> None:
    known = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (extra dev)")
    found = objects()
    assert set(found) == {"Service", "Job"}
    for each in found.values():
        known.validate(each, known.latest_version() if version == "latest" else version, strict=True)
    found["Job"]["spec"]["completionMood"] = "Indexed"
    with pytest.raises(known.ValidationError, match="completionMood"):
        known.validate(found["Job"], known.latest_version(), strict=True)


def started(folder: Path, index: int, shell: str = "sh", **changes: str) -> tuple[list[str], str]:
    """The command that a pod ends up as, and the servers that it accepts."""
    container = objects()["Job"]["spec"]["template"]["spec"]["containers"][0]
    for name in ("halfway", "torchrun"):
        path = folder / name
        path.write_text(f'#!/bin/sh\nprintf "%s\\0" "${{{VARIABLE}:-}}" {name} "$@"\n')
        path.chmod(0o755)
    given = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    given |= {"JOB_COMPLETION_INDEX": str(index), "POD_IP": "10.0.0.9", **changes}
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    words = [shell, *container["command"][1:]]
    done = subprocess.run(words, env={**given, **path}, capture_output=True, text=True, check=True, cwd=folder)
    accepted, *words = done.stdout.split("\0")[:-1]
    return words, accepted


def test_pods_train_and_serve_what_the_recipe_asks_for(tmp_path: Path) -> None:
    config = load_run_config(TWO_POOLS)
    cluster, spec = config.cluster, objects()["Job"]["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    assert spec["completions"] == spec["parallelism"] == cluster.train_nodes + cluster.rollout_nodes
    assert spec["successPolicy"]["rules"] == [{"succeededIndexes": f"0-{cluster.train_nodes - 1}"}]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": cluster.devices_per_node}
    assert auth.VARIABLE in {one["name"] for one in container["env"]}
    words, accepted = started(tmp_path, 0)
    assert words[:5] == [
        "torchrun",
        "--nnodes",
        str(cluster.train_nodes),
        "--nproc-per-node",
        str(cluster.devices_per_node),
    ]
    serving = [f"halfway-{i}.halfway" for i in range(cluster.train_nodes, spec["completions"])]
    assert accepted == ",".join(f"server:{host}" for host in serving)
    ports = [service.port for service in config.rollouts.engine.part.services(config.planned(), serving[0])]
    addresses = ",".join(f"{host}:{port}" for host in serving for port in ports)
    assert words[-1] == f"rollouts.engine.vllm_servers.addresses=[{addresses}]"
    assert words[-4:-1] == ["halfway", "run", "/etc/halfway/run.yaml"]
    assert started(tmp_path, cluster.train_nodes)[0] == [
        "halfway",
        "serve",
        "/etc/halfway/run.yaml",
        "--address",
        "10.0.0.9",
    ]


def test_without_serving_pods_no_address_is_given(tmp_path: Path) -> None:
    words, accepted = started(tmp_path, 1, SERVING="")
    assert (words[-1], accepted) == ("/etc/halfway/run.yaml", "")


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("odd", [*(odd for odd in ODD if odd != "\udcff"), f"a[$(touch {CANARY})]"], ids=ascii)
def test_a_value_is_one_word_and_runs_nothing(odd: str, shell: str, tmp_path: Path) -> None:
    sound = len(started(tmp_path, 0, shell)[0])
    for name in ("SERVING", "SERVERS", "TRAIN_NODES", "DEVICES"):
        with suppress(subprocess.CalledProcessError):
            words, _ = started(tmp_path, 0, shell, **{name: odd})
            assert len(words) == (sound if words[0] == "torchrun" else 5), words
    assert started(tmp_path, 9, shell, POD_IP=odd)[0][-2:] == ["--address", odd]
    assert not list(tmp_path.rglob(CANARY))


def test_its_names_agree() -> None:
    service, job = objects()["Service"], objects()["Job"]
    pod = job["spec"]["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None" and pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == {one["name"] for one in pod["volumes"]}


def dry_run(file: Path) -> subprocess.CompletedProcess[str]:
    script = [REPOSITORY / "docs" / "deploy" / "try_dockerfile.sh", "--dry-run", file]
    return subprocess.run(script, capture_output=True, text=True)


def test_the_recipe_of_the_image_can_be_tried_and_names_what_exists() -> None:
    file = FILE.with_name("Dockerfile")
    done = dry_run(file)
    assert done.returncode == 0, done.stderr
    steps = [step.partition(" ")[::2] for step in done.stdout.splitlines()]
    text = file.read_text()
    assert [word for word, _ in steps] == re.findall(r"^[A-Z]+(?= )", text, re.MULTILINE)
    settings = dict(rest.split("=", 1) for word, rest in steps if word in {"ARG", "ENV"})
    commands = [rest for word, rest in steps if word == "RUN"]
    optional = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(settings["EXTRAS"].split(",")) <= set(optional)
    (copied,) = [rest.removeprefix(". ") for word, rest in steps if word == "COPY"]
    (install,) = [command for command in commands if "pip install" in command]
    assert f'"{copied}${{EXTRAS:+[$EXTRAS]}}"' in install
    assert f"python3 -m venv {settings['PATH'].partition('/bin:')[0]}" in commands
    (built,) = re.findall(r"--file (\S+)", text)
    assert REPOSITORY / built == file


@pytest.mark.parametrize("step", ["USER nobody", "COPY docs /docs", 'RUN ["halfway"]', "RUN --mount=type=cache x"])
def test_a_step_that_docker_would_run_otherwise_is_refused(step: str, tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text(f"FROM debian:trixie-slim\n{step}\n")
    done = dry_run(file)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{file}: '{step}': ") and done.stderr.count("\n") == 1
