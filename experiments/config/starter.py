"""A short, commented recipe to begin with: for a data file, a number of GPUs, and Halfway's trainer or a host."""

import json
from pathlib import Path

from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.support.errors import UserError, require
from halfway.curriculum.tasks.data_files import sample
from halfway.curriculum.tasks.files import File
from halfway.curriculum.tasks.layouts import recognised
from halfway.experiments.config.paths import exists

HOSTS = ("halfway", "trl", "verl", "trinity", "tinker", "prime_rl")

CHAIN = """\
controllers: # in this order; `halfway list controllers` names all
  - uniform # chooses problems; mopps would choose by a belief about pass rates
  - greso # skips problems whose groups stayed all-passed or all-failed when they were tried before
"""
HOSTED = """\
# A chain of pass-rate controllers for {host}; its fields: docs/hosts/{host}.md
{chain}"""
OWN = """\
# Check it:            halfway validate {file}
# Before training:     halfway survey {file}
# Train:               halfway {train}
# Any field by itself: halfway list learner
problems:
  source:
    {source} # {read}; `halfway list {kind}` has all options
model:
  path: {model} # a Hugging Face folder, or owner/name on its hub
  dtype: {dtype}
  chat: all # prompts that are plain text become a user's message; for a base model: messages
{chain}fill:
  policy: refill # rounds of rollouts until the batch is full of groups that teach
  groups: 64
rollouts:
  num_rollouts: 8 # a group
  max_response_tokens: 1024
{engine}learner:
  lr: 1e-6
{sharded}budget:
  rollouts: 100000 # all methods compared on one budget may spend this
evaluation:
  problems: 256 # held out
  points: 10
{cluster}"""
VLLM = "  engine: {{vllm: {{dtype: bfloat16, eager: false, max_length: 4096, kv_cache_gib: 20}}}}\n"
SERVERS = (
    "  engine: {{vllm_servers: {{dtype: bfloat16, eager: false, max_length: 4096, kv_cache_gib: 20, count: {gpus}, "
    "sleep: true}}}}\n"
)
CLUSTER = """\
cluster: # what the run is meant for; `halfway doctor {file}` says what this machine lacks
  devices_per_node: {gpus}
  device_gib: 80
  host_gib: 256
"""


def write_starter(file: Path, data: str, model: str, gpus: int, host: str) -> str:
    """Write the recipe, which must not exist yet, and return its text. Data that are there are looked at.

    Raises:
        UserError: if the file exists, nothing is known of the host, or the data cannot be read.
    """
    require(host in HOSTS, "--host", host, f"give one of {', '.join(HOSTS)}")
    if file.exists():
        raise UserError(f"{file}: exists already; give another name, or remove it")
    text = HOSTED.format(host=host, chain=CHAIN) if host != "halfway" else _own(file, data, model, gpus)
    write_text(file, text)
    return text


def _own(file: Path, data: str, model: str, gpus: int) -> str:
    """The recipe for Halfway's trainer."""
    alone = gpus < 2
    source, read = _source(data)
    return OWN.format(
        file=file,
        source=source,
        kind="file",
        read=read,
        model=json.dumps(model),
        chain=CHAIN,
        train=f"run {file}" if alone else f"launch {file}",
        dtype="bfloat16" if gpus else "float32",
        engine=("", VLLM, SERVERS)[min(gpus, 2)].format(gpus=gpus),
        sharded=f"  deepspeed: {{zero_stage: {2 if alone else 3}}}\n  mismatch: token_truncated\n" if gpus else "",
        cluster=CLUSTER.format(file=file, gpus=gpus) if gpus else "",
    )


def _source(data: str) -> tuple[str, str]:
    """The source of a recipe, with the columns that its data are recognised by, and how they are read."""
    source = File(data, verifier="symbolic")
    layout = recognised(next(filter(None, map(sample, source.files())), []), source) if exists(Path(data)) else None
    columns = "".join(f", {name}: {json.dumps(value)}" for name, value in layout.columns.items()) if layout else ""
    read = str(layout) if layout else f"columns {source.prompt_column} and {source.answer_column}"
    return f"file: {{path: {json.dumps(data)}, verifier: symbolic{columns}}}", read
