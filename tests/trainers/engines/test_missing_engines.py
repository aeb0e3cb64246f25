"""Asking for an engine that is not installed gives one line; what is not asked for is not imported."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from halfway.curriculum import UserError
from halfway.trainers.engines import ENGINES
from halfway.trainers.engines.base import EngineSetup
from halfway.trainers.learner.deepspeed import build_accelerator
from halfway.trainers.learner.options import DeepSpeedOptions, LearnerOptions


@pytest.mark.parametrize(("name", "options"), [("vllm", []), ("vllm_servers", ["folder"])])
def test_a_missing_vllm_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, name: str, options: list[str], tmp_path: Any
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    policy: Any = SimpleNamespace(dtype=torch.float32)
    with pytest.raises(UserError) as raised:
        ENGINES.get(name)(**dict.fromkeys(options, str(tmp_path))).build(EngineSetup(policy, "model", [1], 0))
    assert str(raised.value) == f"rollouts.engine: {name!r}: needs the package vllm; pip install 'halfway[vllm]'"
    assert list(tmp_path.iterdir()) == []


def test_a_missing_deepspeed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("deepspeed", "ninja"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "DS_ACCELERATOR", "PATH"):
        monkeypatch.setenv(name, "0")  # so that what the call sets is undone
    with pytest.raises(
        UserError, match=r"learner.deepspeed: needs the package ninja; pip install 'halfway\[deepspeed\]"
    ):
        build_accelerator(LearnerOptions(deepspeed=DeepSpeedOptions(2)), bfloat16=False)


def test_a_lock_that_a_killed_compiler_left_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from halfway.trainers.learner.deepspeed import report_locks

    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    report_locks()
    assert capsys.readouterr().err == ""
    lock = tmp_path / "py311_cpu" / "deepspeed_shm_comm" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    report_locks()
    assert capsys.readouterr().err.endswith(f"remove {lock}\n")


def test_a_plain_learner_and_engine_import_neither() -> None:
    program = (
        "import sys, halfway.experiments.running.build, halfway.experiments.cli\n"
        "import halfway.trainers.distributed.workers, halfway.trainers.learner.learner\n"
        "import halfway.trainers.engines.transformers.engine\n"
        "print([name for name in ('vllm', 'deepspeed', 'mlflow', 'ray') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
