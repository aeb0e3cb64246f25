"""Writes a short, commented starter recipe, for a data file, a number of GPUs, and Halfway's trainer or a host."""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from halfway.curriculum import UserError, require
from halfway.curriculum.registries import SOURCES
from halfway.curriculum.support.atomic import write_text
from halfway.curriculum.tasks.data_files import blocks, kind_of, sample
from halfway.curriculum.tasks.files import Rows
from halfway.curriculum.tasks.layouts import recognise
from halfway.curriculum.tasks.verifiers.task_rewards import NAME
from halfway.experiments.config.paths import exists, find
from halfway.trainers.model_folder import read_object

HELDOUT, GROUPS = 256, 64
"""Held-out problems, and groups per batch, if there are enough rows."""
ENOUGH = 5 * HELDOUT
HOSTS = ("halfway", "trl", "verl", "trinity", "tinker", "prime_rl")

TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")
CONFIG, TOKENIZER, MOST_TOKENS = "config.json", "tokenizer_config.json", 1024


def write_starter(file: Path, data: str, model: str, gpus: int, host: str) -> str:
    """Write the recipe and return its text. Data are read to fill it in, if they exist.

    Raises:
        UserError: if the file exists, the host is unknown, or the data cannot be read.
    """
    require(host in HOSTS, "--host", host, f"give one of {', '.join(HOSTS)}")
    if file.exists():
        raise UserError(f"{file}: exists already; give another name, or remove it")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    own = {} if host != "halfway" else _fields(data, model)
    environment = Environment(
        loader=PackageLoader("halfway.experiments.config"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    template = environment.get_template("starter.yaml.j2")
    text = template.render(host=host, file=shlex.quote(str(file)), gpus=gpus, **own)
    write_text(file, text)
    return text


def _fields(data: str, model: str) -> dict[str, Any]:
    """The fields of a recipe for Halfway's trainer."""
    kind, options, read, rows = _source(data)
    chat, response = fit_model(model)
    heldout = max(1, min(HELDOUT, rows // 5))
    found = {"kind": kind, "options": options, "read": read, "model": json.dumps(model), "chat": chat}
    return {**found, "response": response, "groups": max(1, min(GROUPS, rows - heldout)), "heldout": heldout}


def fit_model(model: str) -> tuple[str, int]:
    """Chat-template options and response length, from the model's files if they are on this machine."""
    folder = find(model).expanduser()
    found = {name: read_object(folder / name) for name in (CONFIG, TOKENIZER) if (folder / name).is_file()}
    spoken = found.get(TOKENIZER, {"chat_template": ""}).get("chat_template") is not None
    chat = "all" if spoken or any((folder / name).exists() for name in TEMPLATES) else "messages"
    positions = found.get(CONFIG, {}).get("max_position_embeddings")
    most = positions // 2 if isinstance(positions, int) and positions > 1 else MOST_TOKENS
    return chat, min(MOST_TOKENS, most)


def source_of(data: str) -> dict[str, dict[str, str]]:
    """Find the source for an argument: taskset:NAME, files at a path or, if there are none, owner/name on the hub."""
    if data.startswith("taskset:"):
        name = data.removeprefix("taskset:")
        require(bool(NAME.fullmatch(name)), "--data taskset", name, "give the name of a package")
        return {"taskset": {"name": name}}
    data = re.sub(r"^(?:https://huggingface\.co|hf:/)/datasets/([^/]+/[^/]+)/?$", r"\1", data)
    on_hub = re.fullmatch(r"[\w-]+/[\w.-]+", data) and not kind_of(Path(data))[0] and not exists(Path(data))
    where = {"hub": {"name": data}} if on_hub else {"file": {"path": data}}
    return {kind: {**options, "verifier": "symbolic"} for kind, options in where.items()}


def _source(data: str) -> tuple[str, str, str, int]:
    """The name of the source, its options in YAML with the recognised columns, how its data are read, and rows.

    The count of rows ends at `ENOUGH`, which is also the count of unread data.
    """
    [(kind, options)] = source_of(data).items()
    if kind == "taskset":
        return kind, f"name: {_yaml(options['name'])}", f"needs HALFWAY_ACCEPT={data}, since it is code", ENOUGH
    source: Rows = SOURCES.get(kind)(**options)
    there = kind == "hub" or exists(Path(data))
    files = source.files() if there else []
    layout = recognise(next(filter(None, map(sample, files)), []), source) if there else None
    listed = {**options, **(layout.columns if layout else {})}
    read = str(layout) if layout else f"columns {source.prompt_column} and {source.answer_column}"
    written = ", ".join(f"{name}: {_yaml(value)}" for name, value in listed.items())
    return kind, written, read, _count_rows(files) if there else ENOUGH


def _count_rows(files: Sequence[Path]) -> int:
    """The number of rows, as far as `ENOUGH`."""
    total = 0
    for block in (block for file in files for block in blocks(file)):
        total += len(block.rows)
        if total >= ENOUGH:
            break
    return total


def _yaml(value: str) -> str:
    return value if re.fullmatch(r"[A-Za-z_][\w.]*", value) else json.dumps(value)
