"""Pickles that run code when somebody opens them, put in place of the files of a folder, one after the other."""

import io
import os
import pickle
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halfway.curriculum import UserError
from halfway.trainers.loop.manifest import MANIFEST, write_manifest

RUN = """
name: run
seed: 1
problems:
  source: {running_sums: {}}
  train: 8
model: {path: experiments/starting_models/sums}
rollouts: {num_rollouts: 2, max_response_tokens: 4}
fill: {policy: once, groups: 2, zero_variance: keep}
controllers: [uniform]
budget: {steps: 2}
evaluation: {points: 1, samples: 1, problems: 2}
checkpoint: {every: 2}
tracking: {mlflow: false}
threads: 1
"""
"""A recipe of a short run, without its folder `output`."""


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, canary: Path):
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.canary),)


def hostile_contents(canary: Path, original: Path) -> Iterator[tuple[str, bytes]]:
    """Contents of a file that make the canary if they are unpickled: bare, as torch and numpy write them, and beside
    the values of the original where that is one of torch's."""
    payload = Payload(canary)
    for protocol in (4, 0):
        yield f"protocol {protocol}", pickle.dumps(payload, protocol)
    values: Any = {}
    if original.suffix in (".pt", ".pth"):
        values = torch.load(original, weights_only=False)  # the test has made it
    values = values if isinstance(values, dict) else {"values": values}
    for zipped in (True, False):
        buffer = io.BytesIO()
        torch.save({**values, "more": payload}, buffer, _use_new_zipfile_serialization=zipped)
        yield f"torch, {zipped=}", buffer.getvalue()
    buffer = io.BytesIO()
    np.save(buffer, np.array([payload]), allow_pickle=True)
    yield "numpy", buffer.getvalue()


def attack(folder: Path, canary: Path, actions: dict[str, Callable[[], object]], bare: bool = False) -> list[str]:
    """Put hostile contents in place of every file below a folder, do all actions, and put the file back.

    A manifest in or above the file's folder is written anew, as whoever changes a file can do.

    Args:
        bare: only a bare pickle, which runs in every reader that trusts its file.

    Returns:
        What went wrong: an action that ran the code, or that ended in anything but one line or a result.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in (MANIFEST, ".lock"))
    assert files
    wrong = []
    for file in files:
        before = file.read_bytes()
        manifests = [parent for parent in file.parents if (parent / MANIFEST).exists()]
        contents = list(islice(hostile_contents(canary, file), 1 if bare else None))
        for name, content in contents:
            for action, act in actions.items():
                file.write_bytes(content)
                for parent in manifests:
                    write_manifest(parent)
                wrong += [f"{file.relative_to(folder)}: {name}: {action}: {trouble}" for trouble in told(act, canary)]
        file.write_bytes(before)
        for parent in manifests:
            write_manifest(parent)
    return wrong


def told(act: Callable[[], object], canary: Path) -> Iterator[str]:
    """The fault in an action's end."""
    try:
        act()
    except UserError as error:
        if "\n" in str(error):
            yield f"several lines: {error}"
    except Exception as error:
        yield f"{type(error).__name__}: {str(error)[:200]}"
    if canary.exists():
        canary.rmdir()
        yield "THE CODE RAN"
