"""DeepSpeed with gloo: two processes train like one, and a checkpoint serves any number of them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from drivers.deepspeed_driver import SAVED, STEPS
from hostile_pickles import hostile_contents
from messages import says
from paths import DRIVERS, IMPORTABLE
from transformers import AutoModelForCausalLM

from halfway.curriculum import UserError
from halfway.trainers.learner.learner_options import DeepSpeedOptions
from halfway.trainers.learner.shards import SHARDS, TAG, UNIVERSAL, convert

pytest.importorskip("deepspeed", reason="DeepSpeed is not installed (extra deepspeed)", exc_type=ImportError)
pytestmark = pytest.mark.engines

Load = Callable[[str], dict[str, Any]]


def run_driver(processes: int, *arguments: str | Path) -> None:
    environment = os.environ | {
        "PYTHONPATH": IMPORTABLE,
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    driver = DRIVERS / "deepspeed_driver.py"
    subprocess.run([sys.executable, *launcher, driver, *arguments], check=True, timeout=400, env=environment)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs' output. The first run on a machine also compiles a module of DeepSpeed, once."""
    folder = tmp_path_factory.mktemp("deepspeed")
    run_driver(1, folder, "train", "plain,plain-lora")
    run_driver(2, folder, "train,resume", "0,2,3,3-offload,3-bfloat16,3-lora")
    run_driver(1, folder, "resume", "0,2,3,3-lora")
    return folder


@pytest.fixture
def results(folder: Path) -> Load:
    """By name: what each process got."""
    return lambda name: torch.load(folder / f"{name}.pt")  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", ["0", "2", "3", "3-offload", "3-lora"])
def test_two_processes_train_like_one(results: Load, way: str) -> None:
    one = results("train-plain-lora-0-of-1" if way == "3-lora" else "train-plain-0-of-1")
    assert len(one["metrics"]) == STEPS
    for process in range(2):
        two = results(f"train-{way}-{process}-of-2")
        for expected, actual in zip(one["metrics"], two["metrics"], strict=True):
            assert actual["loss"] == pytest.approx(expected["loss"], rel=1e-5)
            assert actual == pytest.approx(expected, rel=1e-4, abs=1e-5)
        torch.testing.assert_close(two["weights"], one["weights"], rtol=1e-5, atol=1e-6)


def test_bfloat16_weights_follow_float32_ones(results: Load) -> None:
    one, two = results("train-plain-0-of-1"), results("train-3-bfloat16-0-of-2")
    for name, weight in two["weights"].items():
        assert weight.dtype == torch.bfloat16
        moved = (one["weights"][name] - weight.float()).abs().max()
        assert moved < 0.02, name  # ten steps of 1e-3, and half a bfloat16 step of weights around 1
    assert two["metrics"][0]["grad_norm"] == pytest.approx(one["metrics"][0]["grad_norm"], rel=0.05)


@pytest.mark.parametrize("way", ["0", "2", "3", "3-offload", "3-bfloat16", "3-lora"])
def test_a_resumed_run_is_bit_equal_on_as_many_processes(results: Load, way: str) -> None:
    for process in range(2):
        whole, rest = results(f"train-{way}-{process}-of-2"), results(f"resume-{way}-{process}-of-2")
        assert rest["metrics"] == whole["metrics"][SAVED:]
        assert rest["version"] == whole["version"] == STEPS
        for name, weight in whole["weights"].items():
            assert torch.equal(rest["weights"][name], weight), name


@pytest.mark.parametrize("way", ["0", "2", "3", "3-lora"])
def test_a_run_resumes_on_another_number_of_processes(results: Load, way: str) -> None:
    whole, rest = results(f"train-{way}-0-of-2"), results(f"resume-{way}-0-of-1")
    for expected, actual in zip(whole["metrics"][SAVED:], rest["metrics"], strict=True):
        assert actual["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    torch.testing.assert_close(rest["weights"], whole["weights"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("way", ["0", "2", "3", "3-lora"])
def test_a_checkpoint_holds_a_plain_hugging_face_folder(folder: Path, way: str) -> None:
    saved = AutoModelForCausalLM.from_pretrained(folder / way / "policy").state_dict()
    alone = "plain-lora" if way == "3-lora" else "plain"
    plain = AutoModelForCausalLM.from_pretrained(folder / alone / "policy").state_dict()
    torch.testing.assert_close(saved, plain, rtol=1e-5, atol=1e-6)


def test_no_pickle_in_a_checkpoint_is_opened(tmp_path: Path) -> None:
    run_driver(1, tmp_path, "train,attack", "0,2,3,3-bfloat16")
    wrong = {path.stem: torch.load(path)["wrong"] for path in tmp_path.glob("attack-*.pt")}
    assert wrong == {f"attack-{way}-0-of-1": [] for way in ("0", "2", "3", "3-bfloat16")}


@pytest.mark.parametrize("way", ["2", "3"])
def test_the_converter_opens_no_pickle(folder: Path, way: str, tmp_path: Path) -> None:
    hostile, canary = tmp_path / way, tmp_path / "canary"
    shutil.copytree(folder / way, hostile)
    shutil.rmtree(hostile / UNIVERSAL, ignore_errors=True)
    convert(hostile)
    shutil.rmtree(hostile / UNIVERSAL)
    file = next((hostile / SHARDS / TAG).glob("*_optim_states.pt"))
    contents = dict(hostile_contents(canary, file))
    file.write_bytes(contents["torch, zipped=True"])
    with pytest.raises(UserError, match=says("shard", "could run code", "mkdir", "resume from")):
        convert(hostile)
    assert not canary.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zero_stage": 4}, says("learner.deepspeed.zero_stage", "0, 1, 2 or 3", 4)),
        (
            {"zero_stage": 0, "offload_optimizer": True},
            says("learner.deepspeed.offload_optimizer", True, "zero_stage=1"),
        ),
        (
            {"zero_stage": 2, "offload_parameters": True},
            says("learner.deepspeed.offload_parameters", True, "zero_stage=3"),
        ),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        DeepSpeedOptions(**options)
