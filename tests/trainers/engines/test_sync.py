"""After every weight sync vLLM gives the learner's log-probabilities, however the learner trains."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import DRIVERS, IMPORTABLE

pytest.importorskip("vllm", reason="vLLM is not installed (extra vllm)", exc_type=ImportError)
pytest.importorskip("deepspeed", reason="DeepSpeed is not installed (extra deepspeed)", exc_type=ImportError)
pytest.importorskip("peft", reason="peft is not installed (extra lora)")
pytestmark = pytest.mark.engines

# In nats, on a policy with large random weights; in bfloat16 the two round differently in every layer.
BOUNDS = {"float32": 1e-4, "bfloat16": 0.1}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", BOUNDS)
def test_engine_and_learner_agree_after_every_sync(tmp_path: Path, dtype: str) -> None:
    environment = os.environ | {
        "PYTHONPATH": IMPORTABLE,
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
    }
    driver = DRIVERS / "sync_driver.py"
    subprocess.run([sys.executable, driver, tmp_path, dtype], check=True, timeout=400, env=environment)
    gaps = json.loads((tmp_path / "gaps.json").read_text())
    assert set(gaps) == {"plain", "untied", "lora", "zero2", "zero3", "zero3-untied", "zero3-lora"}
    for way, (start, *changed) in gaps.items():
        assert start <= BOUNDS[dtype], way
        for before, after in zip(changed[::2], changed[1::2], strict=True):
            assert after <= BOUNDS[dtype] < before / 2, f"{way}: {before} nats before a sync, {after} after it"
