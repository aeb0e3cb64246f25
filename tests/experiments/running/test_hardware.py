"""Memory estimates, and the commands that start a run on a cluster."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from messages import says
from paths import REPOSITORY
from typer.testing import CliRunner

from halfway.curriculum import UserError
from halfway.experiments.cli import app
from halfway.experiments.comparing.compare import prepare_comparison
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.loading import load_comparison_config, load_run_config
from halfway.experiments.config.run import RunConfig
from halfway.experiments.running import launch
from halfway.experiments.running.launch import commands, run_all
from halfway.experiments.running.memory_estimate import estimate, require_room, zero_states
from halfway.experiments.running.runs import COMPARISON, CONFIG, claim, prepare
from halfway.trainers.distributed import ports
from halfway.trainers.distributed.cluster import ShapeOptions
from halfway.trainers.engines.vllm_servers import auth
from halfway.trainers.engines.vllm_servers.server_options import MIDDLEWARE
from halfway.trainers.learner.learner_options import DeepSpeedOptions

CLUSTER = REPOSITORY / "experiments" / "recipes" / "cluster"
NODES = {"one_gpu": ["a"], "one_node": ["a"], "two_pools": ["a", "b", "c", "d"]}
BILLION = 10**9
SERVERS = "rollouts.engine.vllm_servers"


def found(name: str, *overrides: str) -> Any:
    file = CLUSTER / f"{name}.yaml"
    return commands(load_run_config(file, overrides), file, NODES[name], overrides)


def test_weights_are_counted_as_the_model_cards_do() -> None:
    sizes = {name: load_run_config(CLUSTER / f"{name}.yaml").cluster.model.weights / BILLION for name in NODES}
    assert sizes == pytest.approx({"one_gpu": 1.54, "one_node": 7.62, "two_pools": 8.19}, rel=0.01)


def test_a_folder_has_its_own_sizes() -> None:
    config = load_run_config(REPOSITORY / "experiments" / "recipes" / "lab" / "sums.yaml")
    shape = config.shape
    assert shape is not None and 0.2e6 < shape.weights < 0.5e6
    assert all(need.fits for need in estimate(config))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learner.deepspeed.zero_stage=0", r"cluster\.device_gib: .*update: 1\d\d.*80 GiB"),
        (
            f"{SERVERS}.sleep=false",
            r"cluster\.device_gib: .*update: 8\d.*weights 14.2",
        ),
        (f"{SERVERS}.kv_cache_gib=60", r"cluster\.device_gib: .*rollouts: "),
        ("cluster.host_gib=200", r"cluster\.host_gib: "),
    ],
)
def test_runs_that_cannot_fit_are_refused(override: str, message: str) -> None:
    config = load_run_config(CLUSTER / "one_node.yaml", [override, "learner.max_microbatch_tokens=65536"])
    with pytest.raises(UserError, match=message):
        require_room(config)


@pytest.mark.parametrize(
    ("width", "model", "message"),
    [
        (3, {}, r"rollouts\.engine\.vllm_servers\.tensor_parallel: (?=.*3).* cluster\.devices_per_node=8"),
        (
            8,
            {"num_attention_heads": 12},
            r"vllm_servers\.tensor_parallel: (?=.*8).* 12 attention heads",
        ),
        (
            4,
            {"num_key_value_heads": 6},
            r"vllm_servers\.tensor_parallel: (?=.*4).* 6 key-value heads",
        ),
    ],
)
def test_a_model_is_split_evenly(width: int, model: dict[str, int], message: str) -> None:
    changes = [
        f"{SERVERS}.tensor_parallel={width}",
        *(f"cluster.model.{k}={v}" for k, v in model.items()),
    ]
    done = CliRunner().invoke(app, ["validate", str(CLUSTER / "two_pools.yaml"), *changes])
    assert done.exit_code == 2 and re.search(message, done.stderr), done.output
    config = load_run_config(CLUSTER / "two_pools.yaml", ["rollouts.engine.vllm_servers.tensor_parallel=8"])
    config.rollouts.engine.part.check(config.planned(config.shape))


@pytest.mark.parametrize("words", [["validate"], ["launch", "--nodes=a,b,c,d", "--dry-run"]])
def test_an_engine_that_cannot_serve_is_refused_before_its_memory_is_counted(words: list[str]) -> None:
    file, change = str(CLUSTER / "two_pools.yaml"), "rollouts.engine=transformers"
    done = CliRunner().invoke(app, [words[0], file, change, *words[1:]])
    assert done.exit_code == 2 and "rollouts.engine: 'transformers' runs beside the learner" in done.stderr


def test_a_model_without_shared_heads_has_as_many_pairs(tmp_path: Path) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps({**sizes, "vocab_size": 4}))
    config = load_run_config(REPOSITORY / "experiments" / "recipes" / "lab" / "sums.yaml", [f"model.path={tmp_path}"])
    shape = config.shape
    assert shape is not None and shape.num_key_value_heads == 2
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match=says("model.path", "config.json", "JSON")):
        _ = replace(config, seed=1).shape


def test_more_devices_and_offload_need_less_of_each() -> None:
    def device(options: DeepSpeedOptions, devices: int) -> int:
        return zero_states(8 * BILLION, BILLION, options, devices, 1)[1]

    stages = [device(DeepSpeedOptions(stage), 8) for stage in (0, 1, 2, 3)]
    assert stages == sorted(stages, reverse=True) and len(set(stages)) == 4
    assert stages[0] == 160 * BILLION and stages[3] == 22 * BILLION
    assert device(DeepSpeedOptions(3), 16) < stages[3]
    assert device(DeepSpeedOptions(3, offload_optimizer=True), 8) == 6 * BILLION
    assert device(DeepSpeedOptions(3, offload_parameters=True), 8) == 4 * BILLION


@pytest.mark.engines
@pytest.mark.parametrize("offload", [(False, False), (True, False), (True, True)])
def test_states_are_those_of_deepspeeds_own_estimators(offload: tuple[bool, bool]) -> None:
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed (extra deepspeed)", exc_type=ImportError)
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    weights, largest, devices, nodes = 8 * BILLION, BILLION, 8, 2
    optimizer, parameters = offload
    expected = estimate_zero3_model_states_mem_needs(weights, largest, devices, nodes, optimizer, parameters, False)
    assert zero_states(weights, largest, DeepSpeedOptions(3, optimizer, parameters), devices, nodes) == expected[:2]
    if not parameters:
        two = estimate_zero2_model_states_mem_needs(weights, devices, nodes, optimizer)
        assert zero_states(weights, largest, DeepSpeedOptions(2, optimizer), devices, nodes) == two


def test_a_pool_of_servers_and_two_training_hosts() -> None:
    *servers, first, second = found("two_pools", "seed=3")
    assert [(command.host, command.serves) for command in servers] == [("c", True)] * 8 + [("d", True)] * 8
    assert [command.environment["CUDA_VISIBLE_DEVICES"] for command in servers] == [str(i) for i in range(8)] * 2
    assert all(command.environment["VLLM_SERVER_DEV_MODE"] == "1" for command in servers)
    program = (sys.executable, "-m", "vllm.entrypoints.openai.api_server")
    assert servers[1].words[:5] == (*program, "--model=Qwen/Qwen3-8B", "--host=c")
    assert "--port=29502" in servers[1].words and "--max-model-len=6144" in servers[1].words
    assert [first.host, second.host] == ["a", "b"]
    text = shlex.join(second.words)
    assert text.startswith(
        f"{sys.executable} -m accelerate.commands.launch --num_machines 2 --num_processes 16 --machine_rank 1 "
        "--main_process_ip a --main_process_port 29500"
    )
    addresses = ",".join(f"{host}:{29501 + i}" for host in "cd" for i in range(8))
    assert second.words[-2:] == ("seed=3", f"rollouts.engine.vllm_servers.addresses=[{addresses}]")
    changed = load_run_config(CLUSTER / "two_pools.yaml", second.words[-2:])
    assert changed.rollouts.engine.part.addresses[9] == "d:29502" and changed.seed == 3


def test_one_node_starts_its_servers_itself() -> None:
    [command] = found("one_node")
    assert not command.serves and "--multi_gpu" in command.words
    [alone] = found("one_gpu")
    assert "--multi_gpu" not in alone.words and alone.words[-2:] == ("run", str(CLUSTER / "one_gpu.yaml"))


def test_accelerate_understands_the_command() -> None:
    from accelerate.commands.launch import launch_command_parser

    *_, command = found("two_pools", "seed=3")
    parsed = launch_command_parser().parse_args(command.words[3:])
    assert (parsed.num_machines, parsed.num_processes, parsed.machine_rank) == (2, 16, 1)
    assert parsed.module and parsed.multi_gpu and parsed.training_script == "halfway.experiments.cli"
    assert parsed.training_script_args[0] == "run" and "seed=3" in parsed.training_script_args


def test_accelerate_starts_without_a_path_to_programs(tmp_path: Path) -> None:
    """As in a shell of ssh, which knows nothing of a virtual environment."""
    [command] = found("one_gpu")
    asked = [*command.words[:3], "--help"]
    bare = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(asked, env=bare, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0 and "--main_process_ip" in done.stdout, done.stderr


@pytest.mark.engines
def test_vllm_understands_the_command() -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed (extra vllm)", exc_type=ImportError)
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    command = found("two_pools")[3]
    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(list(command.words[3:]))
    assert parsed.model == "Qwen/Qwen3-8B" and parsed.host == "c"
    assert parsed.port == 29504 and parsed.max_model_len == 6144 and parsed.enable_prefix_caching
    assert parsed.worker_extension_cls == "halfway.trainers.engines.vllm_servers.weights.receiver.Registration"


@pytest.mark.engines
def test_vllm_starts_without_a_path_to_programs(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed (extra vllm)", exc_type=ImportError)
    asked = [*found("two_pools")[0].words[:3], "--help"]
    bare = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(asked, env=bare, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0 and "--model" in done.stdout, done.stderr


def allocated(nodes: str, output: Path, *overrides: str) -> RunConfig:
    """The run as its first rank reads it, launched on these hosts."""
    file, changes = CLUSTER / "two_pools.yaml", [f"output={output}", *overrides]
    *_, command = commands(load_run_config(file, changes), file, nodes.split(), changes)
    given = command.words[command.words.index("run") + 2 :]
    return load_run_config(file, given)


def test_another_allocation_continues_the_same_run(tmp_path: Path) -> None:
    first = allocated("a b c d", tmp_path)
    prepare(first, first.folder)
    elsewhere = ["cluster.port=31000", "rollouts.engine.vllm_servers.folder=/scratch"]
    second = allocated("e f g h", tmp_path, *elsewhere)
    addresses = [run.rollouts.engine.part.addresses[0] for run in (first, second)]
    assert addresses == ["c:29501", "g:31001"]
    prepare(second, second.folder)
    assert load_run_config(second.folder / CONFIG) == second  # what `halfway resume` goes by


def test_another_allocation_with_other_settings_is_refused(tmp_path: Path) -> None:
    first, folder = allocated("a b c d", tmp_path), tmp_path / "two_pools"
    prepare(first, folder)
    (folder / "steps.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=says("learner.lr", "1e-06", "2e-06")):
        prepare(allocated("e f g h", tmp_path, "learner.lr=2e-6"), folder)
    with pytest.raises(UserError, match=says("cluster.devices_per_node", "8", "4")):
        prepare(allocated("e f g h", tmp_path, "cluster.devices_per_node=4"), folder)
    with claim(folder), pytest.raises(UserError, match=says("another process")):
        prepare(allocated("e f g h", tmp_path), folder)
    assert load_run_config(folder / CONFIG) == first


def test_a_comparisons_places_are_free_too(tmp_path: Path) -> None:
    def compared(address: str, groups: int = 8) -> ComparisonConfig:
        file = tmp_path / "compared.yaml"
        servers = f"{{engine: {{vllm_servers: {{addresses: ['{address}:1'], max_length: 4096}}}}}}"
        file.write_text(
            f"base:\n  base: {CLUSTER / 'one_gpu.yaml'}\n  fill: {{groups: {groups}}}\n"
            f"arms:\n  plain: {{}}\n  v1.5: {{rollouts: {servers}}}\nseeds: [0]\n"
        )
        return load_comparison_config(file)

    folder = tmp_path / "compared"
    prepare_comparison(compared("a"), folder)
    prepare_comparison(compared("b"), folder)
    arm = load_comparison_config(folder / COMPARISON).arms["v1.5"]
    assert arm.fields["rollouts"]["engine"]["vllm_servers"]["addresses"] == ["b:1"]
    with pytest.raises(UserError, match=says("base.fill.groups", "8", "9")):
        prepare_comparison(compared("c", groups=9), folder)


@pytest.mark.parametrize(
    ("name", "nodes", "overrides", "message"),
    [
        ("two_pools", ["a", "b"], [], "--nodes: 2 .*4"),
        ("two_pools", list("abcd"), ["rollouts.engine=transformers"], r"rollouts\.engine: .*'transformers'"),
    ],
)
def test_runs_that_cannot_be_launched_are_refused(
    name: str, nodes: list[str], overrides: list[str], message: str
) -> None:
    file = CLUSTER / f"{name}.yaml"
    with pytest.raises(UserError, match=message):
        commands(load_run_config(file, overrides), file, nodes)


def on_this_host(config: RunConfig) -> RunConfig:
    return replace(config, cluster=replace(config.cluster, device_gib=0.0, model=ShapeOptions(), port=29777))


def test_ranks_on_cpus_are_started_by_torch() -> None:
    file = REPOSITORY / "experiments" / "recipes" / "lab" / "sums.yaml"
    config = load_run_config(file, ["cluster.devices_per_node=2"])
    [command] = commands(on_this_host(config), file, ["localhost"])
    assert "torch.distributed.run" in command.words and "accelerate" not in command.words
    assert shlex.join(command.words).endswith(f"--module halfway.experiments.cli run {file}")


def test_servers_end_with_the_ranks_and_a_failure_is_reported(tmp_path: Path) -> None:
    from halfway.experiments.running.launch import Command

    sleeper = Command("localhost", ("sleep", "100"), serves=True)
    write = Command("localhost", ("sh", "-c", 'echo "$VALUE" > out'), {"VALUE": "a b"})
    note = tmp_path / "out"
    assert run_all([sleeper, replace(write, words=("sh", "-c", f'echo "$VALUE" > {note}'))], "ssh", {}) == 0
    assert note.read_text() == "a b\n"
    assert run_all([sleeper, Command("localhost", ("sh", "-c", "exit 7"))], "ssh", {}) == 7


def test_a_torch_in_the_current_folder_is_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the launcher nor by the ranks that it starts."""
    from halfway.experiments.running.launch import PYTHON, TORCH, Command

    (tmp_path / "torch.py").write_text("open('executed', 'w').close()")
    monkeypatch.chdir(tmp_path)
    rank = ("--nnodes", "1", "--nproc-per-node", "1", "--master-port", "0", "--module", "torch.version")
    assert run_all([Command("localhost", (*PYTHON, TORCH, *rank))], "ssh", {}) == 0
    assert not Path("executed").exists()


def test_a_server_that_ends_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfway.trainers.distributed.cluster.FIRST_PAUSE", 0.1)
    monkeypatch.setattr(launch, "POLL_SECONDS", 0.05)
    note = tmp_path / "starts"
    server = launch.Command("localhost", ("sh", "-c", f"echo started >> {note}; exit 9"), serves=True)
    ranks = ("sh", "-c", f'for _ in $(seq 200); do [ "$(wc -l < {note})" -ge 3 ] && exit 0; sleep 0.1; done; exit 1')
    assert run_all([server, launch.Command("localhost", ranks)], "ssh", {}) == 0


def test_the_dry_run_prints_a_line_for_each_kind_of_process_and_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(auth.VARIABLE, "a_token_that_is_not_told")
    done = CliRunner().invoke(
        app, ["launch", str(CLUSTER / "two_pools.yaml"), "seed=1", "--nodes", "a,b,c,d", "--dry-run"]
    )
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["16 x server on c,d", "2 x training host on a,b"]
    assert """'--weight-transfer-config={"backend": "halfway"}'""" in lines[0]
    assert MIDDLEWARE in lines[0] and "a_token" not in done.output


SAYS = "import json, os, sys; print(json.dumps([dict(os.environ), os.getcwd(), sys.orig_argv]), flush=True); "


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which stand-ins for ssh and srun write what they were called with; they run it here.

    As sshd does, the one for ssh runs a line in a shell with an almost empty environment.
    """
    shells = {
        "ssh": 'shift 2; exec env -i PATH="$PATH" sh -c "$*"',
        "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
    }
    for name, act in shells.items():
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tmp_path}/{name}.words\n{act}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("through", ["ssh", "srun"])
def test_another_host_gets_the_environment_the_folder_and_the_token_and_none_on_a_command_line(
    elsewhere: Path, through: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    monkeypatch.setenv("HF_TOKEN", "a secret of the user")
    words = (sys.executable, "-c", SAYS + "sys.exit(3)")
    command = launch.Command("far", words, {"SET": "a b"})
    assert run_all([command], through, {auth.VARIABLE: "the run's token"}) == 3
    environment, folder, argv = json.loads(capfd.readouterr().out)
    told = {name: environment.get(name) for name in ("NCCL_SOCKET_IFNAME", "HF_TOKEN", auth.VARIABLE, "SET")}
    assert list(told.values()) == ["ib0", "a secret of the user", "the run's token", "a b"]
    assert folder == str(elsewhere) and environment["PYTHONSAFEPATH"] == "1"
    said = (elsewhere / f"{through}.words").read_text() + " ".join(argv)
    assert "token" not in said and "secret" not in said
    assert through == "ssh" or {"--cpu-bind=none", "--export=ALL"} <= set(said.split())


def test_processes_on_another_host_end_with_the_launcher_however_it_ends(elsewhere: Path) -> None:
    code = (
        "from halfway.experiments.running.launch import Command, run_all; import sys; "
        "run_all([Command('far', (sys.executable, '-c', sys.argv[1]))], 'ssh', {})"
    )
    child = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"
    launcher = subprocess.Popen([sys.executable, "-c", code, child], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    pid = int(launcher.stdout.readline())
    launcher.kill()
    launcher.communicate()  # until the child, too, has closed its output
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_host_is_named_by_the_address_at_which_the_others_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Debian a host's own name leads to 127.0.1.1."""
    known = {"here": "127.0.1.1", "far": "10.0.0.7"}

    def resolve(name: str, *_: Any) -> Any:
        if name not in known:
            raise socket.gaierror(name)
        return [(socket.AF_INET, None, None, "", (known[name], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(ports, "own_address", lambda peer: {"10.0.0.7:1": "10.0.0.3"}[peer])
    found = ports.addresses_of(["here", "user@far", "unknown"])
    assert found == {"here": "10.0.0.3", "user@far": "10.0.0.7", "unknown": "unknown"}
    assert ports.addresses_of(["here"]) == {"here": "127.0.1.1"}


def test_gloo_and_nccl_use_the_interface_towards_the_first_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ports.INTERFACE_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    ports.use_interface_towards("127.0.0.1")
    ports.use_interface_towards("no-such-host.invalid")
    assert ports.interface_of("127.0.0.1") == "lo" and "GLOO_SOCKET_IFNAME" not in os.environ
    monkeypatch.setattr(ports, "own_address", lambda _: "10.0.0.3")
    monkeypatch.setattr(ports, "interface_of", lambda address: {"10.0.0.3": "ib0"}[address])
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "chosen")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "removed again afterwards")
    del os.environ["NCCL_SOCKET_IFNAME"]
    ports.use_interface_towards("far")
    assert os.environ["GLOO_SOCKET_IFNAME"] == "chosen" and os.environ["NCCL_SOCKET_IFNAME"] == "=ib0"


def test_a_colocated_engine_sleeps_while_the_learner_updates() -> None:
    from halfway.trainers.distributed.colocated import Colocated

    heard: list[str] = []

    class Updates:
        policy_version = 4

        def update(self, groups: Any, stream: Any, spent: float) -> dict[str, float]:
            heard.append(f"update {spent}")
            return {"loss": 1.0}

    learner: Any = Updates()
    both = Colocated(learner, lambda: heard.append("sleep"))
    stream: Any = None
    assert both.update([], stream, 0.5) == {"loss": 1.0} and both.policy_version == 4
    assert heard == ["sleep", "update 0.5"]
