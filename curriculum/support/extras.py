"""Loads packages of Halfway's extras, and formats values and errors for one-line messages."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from halfway.curriculum.support.errors import UserError

_MODULES = {
    "train": (
        *("accelerate", "aiohttp", "cycler", "huggingface_hub", "matplotlib", "mlflow", "omegaconf", "packaging"),
        *("safetensors", "scipy", "tokenizers", "torch", "transformers", "vl_convert", "yaml"),
    ),
    "tasks": ("math_verify", "reasoning_gym"),
    "bayes": ("pyro",),
    "propel": ("pyarrow", "sklearn"),
    "vllm": ("vllm",),
    "deepspeed": ("deepspeed", "ninja"),
    "lora": ("peft",),
    "smollm2": ("gguf",),
    "slurm": ("submitit",),
    "ray": ("ray",),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
    "verifiers": ("verifiers",),
    "dev": ("statsmodels",),
}
EXTRAS: Mapping[str, str] = {module: extra for extra, modules in _MODULES.items() for module in modules}
"""Module -> the extra that installs it. `pip install halfway` alone installs all other imports."""


def load_extra(module: str, needed_by: str, extra: str = "") -> Any:
    """Import a module of an optional extra: `extra`, otherwise the one in `EXTRAS`.

    Raises:
        UserError: if it is not installed; the message names the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        chosen = extra or EXTRAS[module.partition(".")[0]]
        raise UserError(f"{needed_by}: needs the package {error.name}; pip install 'halfway[{chosen}]'") from error


def remedy(error: ModuleNotFoundError) -> str | None:
    """Name the package that an import lacks and its extra; None if no extra has it, or if it is installed."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS or find_spec(package) is not None:
        return None
    return f"needs the package {package}; pip install 'halfway[{EXTRAS[package]}]'"


def one_line(value: object, limit: int = 160) -> str:
    """Format a value, or an exception with its type, as one line of at most `limit` characters."""
    most = 100 * limit  # letters that matter: a stranger's text may have millions
    value = value[:most] if isinstance(value, str | bytes) else value
    text = f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else repr(value)
    text = clean(" ".join(text[:most].split()))
    return text if len(text) <= limit else text[: limit - 3] + "..."


def clean(text: str) -> str:
    """Replace every unprintable character, since some could control a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


@contextmanager
def blaming(what: str, remedy: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn errors of these kinds in a `with` block into a UserError: what is wrong, the error, the remedy."""
    try:
        yield
    except UserError:
        raise
    except errors as error:
        raise UserError(f"{what} ({one_line(error)}); {remedy}") from error
