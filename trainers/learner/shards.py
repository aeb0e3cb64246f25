"""Opens DeepSpeed's shards without running code: tensors, plain data and the few classes that DeepSpeed stores.

DeepSpeed has torch open whole pickles, which may run anything. As a program, this module is DeepSpeed's converter.
"""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError

import torch

from halfway.curriculum import UserError
from halfway.curriculum.support.atomic import replacing_folder

# Below a checkpoint's folder: the shards of every process, and the same converted for any number of processes.
SHARDS, UNIVERSAL = "shards", "universal"
TAG = "state"
CLASSES = (
    ("deepspeed.runtime.fp16.loss_scaler", "LossScaler"),
    ("deepspeed.runtime.zero.config", "ZeroStageEnum"),
    ("deepspeed.utils.tensor_fragment", "fragment_address"),
)
"""Classes in the shards beside tensors and plain data; none of them runs code when it is built or filled."""
FORCED, NEVER = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
"""torch's variables that override the arguments of `torch.load`."""

REFUSED = re.compile(r"(?:GLOBAL|global:?) (\S{1,100})")
"""The part of torch's long message that names the refused class."""


@contextmanager
def opening_safely() -> Iterator[None]:
    """Restrict `torch.load` in a `with` block to shards of DeepSpeed, whatever its arguments.

    Raises:
        UserError: if a file contains anything else.
    """
    classes = CLASSES if find_spec("deepspeed") else ()
    known = [getattr(import_module(module), name) for module, name in classes]
    before = {name: os.environ.pop(name, None) for name in (FORCED, NEVER)}
    os.environ[FORCED] = "1"
    try:
        with torch.serialization.safe_globals(known):
            yield
    except UnpicklingError as error:
        why = REFUSED.search(str(error))
        raise UserError(
            "learner.deepspeed: a shard of the checkpoint holds more than tensors and DeepSpeed's own data, which "
            f"could run code ({why[1] if why else 'no file of torch'}); resume from a checkpoint of Halfway"
        ) from error
    finally:
        del os.environ[FORCED]
        os.environ.update({name: value for name, value in before.items() if value is not None})


def convert(folder: Path) -> None:
    """Convert DeepSpeed's checkpoint for use with any number of processes.

    Raises:
        UserError: if DeepSpeed's converter fails.
    """
    with replacing_folder(folder / UNIVERSAL) as partial:
        command = [
            *(sys.executable, "-m", __name__),
            *("--input_folder", str(folder / SHARDS / TAG), "--output_folder", str(partial / TAG)),
            *("--num_extract_workers", "1", "--num_merge_workers", "1", "--inject_missing_state"),
        ]
        # The converter runs as a separate program; as a rank it would wait for the others.
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        environment["PYTHONSAFEPATH"] = "1"  # imports nothing from the user's current folder
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UserError(f"learner.deepspeed: {folder} cannot be converted for another number of processes: {last}")


def main() -> None:
    """Run the converter with the arguments of this program."""
    try:
        with opening_safely():
            runpy.run_module("deepspeed.checkpoint.ds_to_universal", run_name="__main__")
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
