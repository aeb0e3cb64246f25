"""Pickles in a checkpoint of TRL, beside the state that Halfway writes there: a resumed run opens none of them."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hostile_pickles import hostile_contents
from messages import says

pytest.importorskip("trl")

import trl_lab

from halfway.controllers.uniform import Uniform
from halfway.curriculum import UserError, chain

ADDED = {"pytorch_model.bin": "model.safetensors", "adapter_model.bin": "model.safetensors", "rng_state_0.pth": ""}
"""Files that TRL may take -> what has to be missing for that."""


def train(folder: Path, resumed: Path | None = None) -> Any:
    """A run of two steps, or what is left of it after a checkpoint."""
    args = trl_lab.config(folder, 2, max_completion_length=8)
    trl_lab.trainer(chain(("uniform", Uniform())), args).train(resume_from_checkpoint=resumed and str(resumed))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trl") / "run"
    train(folder)
    return folder


def test_no_pickle_in_a_checkpoint_of_trl_runs(finished: Path, tmp_path: Path) -> None:
    """TRL reports its own refusals; a pickle that runs makes a folder."""
    canary, checkpoint = tmp_path / "canary", finished / "checkpoint-2"
    names = [path.name for path in checkpoint.iterdir() if path.suffix in (".pt", ".pth", ".bin", ".safetensors")]
    assert {"optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"} <= set(names)
    for name in [*names, *ADDED]:
        broken = tmp_path / name / "run"
        shutil.copytree(finished, broken)
        (broken / "checkpoint-2" / (ADDED.get(name) or name)).unlink(missing_ok=True)
        original = checkpoint / (name if name in names else "none")
        [content] = [c for label, c in hostile_contents(canary, original) if label == "torch, zipped=True"]
        (broken / "checkpoint-2" / name).write_bytes(content)
        with suppress(Exception):
            train(broken, broken / "checkpoint-2")
        assert not canary.exists(), name


@pytest.mark.parametrize("what", ["a pickle", "a pipe", "a device"])
def test_a_state_that_is_not_halfways_is_refused_in_one_line(what: str, finished: Path, tmp_path: Path) -> None:
    broken = tmp_path / "run"
    shutil.copytree(finished, broken)
    state = broken / "checkpoint-2" / "halfway.json"
    state.unlink()
    if what == "a pickle":
        state.write_bytes(next(hostile_contents(tmp_path / "canary", state))[1])
    elif what == "a pipe":
        os.mkfifo(state)
    else:
        state.symlink_to("/dev/zero")
    with pytest.raises(UserError, match=says(state, "resume from another checkpoint")):
        train(broken, broken / "checkpoint-2")
    assert not (tmp_path / "canary").exists()


def test_a_pipe_among_the_records_is_one_line(finished: Path, tmp_path: Path) -> None:
    broken = tmp_path / "run"
    shutil.copytree(finished, broken)
    (broken / "halfway" / "steps.jsonl").unlink()
    os.mkfifo(broken / "halfway" / "steps.jsonl")
    with pytest.raises(UserError, match=says("steps.jsonl", "not a regular file")):
        train(broken, broken / "checkpoint-2")
