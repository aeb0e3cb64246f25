"""What the DeepSpeed backend tells DeepSpeed and what it undoes, with a stand-in for DeepSpeed's engine."""

import resource
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from messages import says

from halfway.curriculum import UserError
from halfway.trainers.learner.deepspeed import DeepSpeedBackend, convert, deepspeed_config
from halfway.trainers.learner.learner_options import DeepSpeedOptions, LearnerOptions
from halfway.trainers.learner.shards import SHARDS, TAG
from halfway.trainers.loop.checkpoint import Checkpoints
from halfway.trainers.loop.loop_options import CheckpointOptions


def backend(engine: Any, **options: Any) -> DeepSpeedBackend:
    made = object.__new__(DeepSpeedBackend)
    made.options, made._engine, made._stage = LearnerOptions(**options), engine, 2
    made.accelerator = SimpleNamespace(num_processes=1, is_main_process=True, wait_for_everyone=lambda: None)  # type: ignore[assignment]
    return made


def write_checkpoint(folder: Path) -> None:
    (folder / "deepspeed.json").write_text('{"zero_stage": 2, "processes": 1}')
    (folder / SHARDS / TAG).mkdir(parents=True)
    (folder / SHARDS / TAG / "mp_rank_00_model_states.pt").touch()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_micro_batches_add_up_in_float32(stage: int) -> None:
    options = LearnerOptions(deepspeed=DeepSpeedOptions(stage))
    wanted = {"grad_accum_dtype": "fp32"} if stage >= 2 else {}
    assert deepspeed_config(options, bfloat16=True)["data_types"] == wanted
    assert deepspeed_config(options, bfloat16=False)["data_types"] == {}


def test_settings_stay_the_options_when_a_checkpoint_is_loaded(tmp_path: Path) -> None:
    optimizer = SimpleNamespace(clip_grad=0.5, param_groups=[{"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.0}])

    def load(*_: Any, **__: Any) -> None:
        optimizer.clip_grad = 9.0
        optimizer.param_groups[0] |= {"betas": (0.1, 0.2), "eps": 3.0, "weight_decay": 4.0}

    engine = SimpleNamespace(optimizer=optimizer, load_checkpoint=load, _config=SimpleNamespace())
    write_checkpoint(tmp_path)
    options = {"betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.1}
    backend(engine, max_grad_norm=0.5, **options).load(tmp_path)
    assert optimizer.clip_grad == 0.5
    assert optimizer.param_groups == [options]


def test_a_checkpoint_without_shards_is_one_line(tmp_path: Path) -> None:
    def load(*_: Any, **__: Any) -> None:
        raise AssertionError  # as DeepSpeed 0.19 does where it finds no file

    write_checkpoint(tmp_path)
    shutil.rmtree(tmp_path / SHARDS)
    with pytest.raises(UserError, match=says("no shards", "resume")):
        backend(SimpleNamespace(load_checkpoint=load, _config=SimpleNamespace())).load(tmp_path)


def test_a_full_disk_costs_one_line(tmp_path: Path) -> None:
    def save(folder: str, **_: Any) -> None:
        Path(folder).mkdir()
        torch.save({"state": torch.zeros(2**18)}, Path(folder) / "state.pt")

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, hard))
    try:
        with pytest.raises(UserError, match=says("full disk", "make room", "resume")) as raised:
            Checkpoints(tmp_path, CheckpointOptions()).write(
                3, lambda put: {}, backend(SimpleNamespace(save_checkpoint=save)).save
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_other_failures_of_a_save_are_not_reported_as_a_full_disk(tmp_path: Path) -> None:
    def save(*_: Any, **__: Any) -> None:
        raise RuntimeError("[gloo] Connection closed by peer")

    with pytest.raises(RuntimeError, match="gloo"):
        backend(SimpleNamespace(save_checkpoint=save)).save(tmp_path)


def test_half_written_files_are_removed_when_a_process_is_lost(tmp_path: Path) -> None:
    def save(folder: Path) -> None:
        raise UserError("a training process has died")

    with pytest.raises(UserError, match=says("died")):
        Checkpoints(tmp_path, CheckpointOptions()).write(3, lambda put: {}, save)
    assert list(tmp_path.iterdir()) == []


def test_the_converter_executes_nothing_of_the_folder_in_which_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deepspeed.py").write_text("open('executed', 'w').close()")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=says("converted")):  # there are no shards
        convert(tmp_path)
    assert not (tmp_path / "executed").exists()
