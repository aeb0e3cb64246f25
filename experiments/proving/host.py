"""Checks this machine's resources for a run. Needs torch only to count devices."""

import os
import resource
import shutil
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from halfway.experiments.config.run import RunConfig
from halfway.experiments.proving.checks import Check, judge, skip
from halfway.experiments.running.memory_estimate import estimate
from halfway.trainers.distributed.ports import INTERFACE_VARIABLES, LOOPBACK
from halfway.trainers.engines.part import GIB

PART = "host"
SERVER = "vllm.entrypoints.openai.api_server"
# Bytes per parameter of a checkpoint: weights, both moments and a copy in 32 bits.
CHECKPOINT_BYTES = 16
FILES_AT_LEAST = 4096


def host_checks(config: RunConfig) -> Iterator[Check]:
    """All checks of this machine that need no computation."""
    yield from _limits(config)
    yield from _cores()
    yield from _network(config)
    yield from _disks(config)
    yield from _programs(config)
    yield from _devices(config)


def _limits(config: RunConfig) -> Iterator[Check]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(FILES_AT_LEAST, 2 * config.rollouts.max_sequences)
    enough = hard == resource.RLIM_INFINITY or hard >= wanted
    yield judge(PART, "open files", enough, f"limit {hard}, wanted {wanted}", f"raise it: ulimit -Hn {wanted}")
    with open("/proc/meminfo") as table:
        total = int(table.readline().split()[1]) * 1024 / GIB
    for need in estimate(config):
        if need.where == "its memory":
            found = f"{total:.0f} GiB, needed {need.gib:.0f}"
            yield judge(PART, "main memory", need.gib <= total, found, "use a larger host, or more of them")


def _cores() -> Iterator[Check]:
    mine, all_cores = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    found = f"{mine} of {all_cores} for this process"
    remedy = "Slurm binds a step to one core: srun --cpu-bind=none, sbatch --cpus-per-task=N; or taskset -pc 0-N PID"
    yield judge(PART, "cores", mine > 1 or all_cores == 1, found, remedy)


def _network(config: RunConfig) -> Iterator[Check]:
    interfaces = {name for _, name in socket.if_nameindex()}
    for variable in INTERFACE_VARIABLES:
        name = os.environ.get(variable, "").lstrip("=^").split(",")[0]
        known = not name or any(each.startswith(name) for each in interfaces)
        yield judge(PART, variable, known, name or "not set", f"name one of {', '.join(sorted(interfaces))}")
    cluster = config.cluster
    if cluster.train_nodes + cluster.rollout_nodes > 1:
        yield _own_name()
    count = 1 if not cluster.rollout_nodes else 1 + cluster.devices_per_node
    ports = range(cluster.port, cluster.port + count)
    taken = [f"{port} by {holder}" for port in ports if (holder := holder_of(port))]
    found = f"taken: {', '.join(taken)}" if taken else "free"
    remedy = "end what holds them, or set cluster.port"
    yield judge(PART, f"ports {ports[0]} to {ports[-1]}", not taken, found, remedy)
    for pid, words in leaked_servers():
        yield Check(PART, "leaked server", "FAIL", f"process {pid} ({words[:80]})", f"kill {pid}")


def _own_name() -> Check:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        address = "no address"
    remedy = "give --nodes addresses, or set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME"
    return judge(PART, "own name", not address.startswith((LOOPBACK, "no")), f"{name} is {address}", remedy)


def holder_of(port: int) -> str | None:
    """Find the process that listens on a port of this host; None = no process."""
    wanted, inodes = f":{port:04X}", set()
    for table in ("tcp", "tcp6"):
        rows = [row.split() for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
        inodes |= {f"socket:[{row[9]}]" for row in rows if row[1].endswith(wanted) and row[3] == "0A"}
    if not inodes:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(file) in inodes for file in (process / "fd").iterdir()):
                return f"process {process.name} ({_words(process)[:80]})"
        except OSError:  # it has ended, or belongs to another user
            continue
    return "another user's process"


def leaked_servers() -> Iterator[tuple[int, str]]:
    """Find servers of this user whose run has ended: their parent is init, or a process that adopts orphans."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mine = process.stat().st_uid == os.geteuid()
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if mine and parent == 1 and SERVER in (words := _words(process)):
                yield int(process.name), words
        except OSError:
            continue


def _words(process: Path) -> str:
    return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()


def _disks(config: RunConfig) -> Iterator[Check]:
    shape = config.shape
    weights = shape.weights if shape is not None and shape.known else 0
    kept = config.checkpoint.keep + 1
    yield _room("output", config.output, kept * CHECKPOINT_BYTES * weights, f"for {kept} checkpoints", "set output")
    folder = getattr(config.rollouts.engine.part, "folder", None)
    if folder and getattr(config.rollouts.engine.part, "transfer", "") == "files":
        remedy = "docker run --shm-size, an emptyDir with medium: Memory, or another folder"
        yield _room("weights' folder", folder, 4 * weights, "for two versions in bfloat16", remedy)


def _room(name: str, folder: str, wanted: float, purpose: str, remedy: str) -> Check:
    """Check that a folder is writable and its disk has enough room."""
    nearest = next(path for path in (Path(folder).absolute(), *Path(folder).absolute().parents) if path.exists())
    free = shutil.disk_usage(nearest).free
    writable = os.access(nearest, os.W_OK)
    found = f"{free / GIB:.2f} GiB free in {folder}, {wanted / GIB:.2f} wanted {purpose}"
    return judge(PART, name, writable and free >= wanted, found if writable else f"{nearest} is read-only", remedy)


def _programs(config: RunConfig) -> Iterator[Check]:
    wanted = {"torch": "train", "transformers": "train"}
    if config.learner.deepspeed.zero_stage is not None:
        wanted["deepspeed"] = "deepspeed"
    if config.rollouts.engine.name.startswith("vllm"):
        wanted["vllm"] = "vllm"
    for module, extra in wanted.items():
        there = find_spec(module) is not None
        yield judge(PART, module, there, "installed" if there else "missing", f"pip install 'halfway[{extra}]'")
    if "deepspeed" in wanted:
        compiler = shutil.which("g++") or shutil.which("c++")
        yield judge(PART, "compiler", compiler is not None, compiler or "none", "DeepSpeed compiles: install g++")


def _devices(config: RunConfig) -> Iterator[Check]:
    cluster = config.cluster
    if not cluster.gpus:
        yield skip(PART, "devices", "cluster.device_gib is 0, so the run needs none")
        return
    import torch

    count = torch.cuda.device_count()
    found = f"{count} of {cluster.devices_per_node}"
    yield judge(PART, "devices", count >= cluster.devices_per_node, found, "check nvidia-smi, CUDA_VISIBLE_DEVICES")
    for index in range(count):
        gib = torch.cuda.get_device_properties(index).total_memory / GIB
        enough = gib >= 0.95 * cluster.device_gib  # the driver keeps some
        yield judge(PART, f"device {index}", enough, f"{gib:.0f} GiB", f"set cluster.device_gib={gib:.0f}")
