"""After every weight sync vLLM gives the learner's log-probabilities, however the learner trains."""

import json
from pathlib import Path

import pytest
from engine_drivers import run_engine_driver

pytest.importorskip("vllm", reason="vLLM is not installed (extra vllm)", exc_type=ImportError)
pytest.importorskip("deepspeed", reason="DeepSpeed is not installed (extra deepspeed)", exc_type=ImportError)
pytest.importorskip("peft", reason="peft is not installed (extra lora)")
pytestmark = pytest.mark.engines

# In nats, on a policy with large random weights; in bfloat16 the two round differently in every layer.
BOUNDS = {"float32": 1e-4, "bfloat16": 0.1}
WAYS = {"plain", "float32", "untied", "lora", "zero2", "zero3", "zero3-untied", "zero3-lora"}


@pytest.mark.parametrize("dtype", BOUNDS)
def test_engine_and_learner_agree_after_every_sync(tmp_path: Path, dtype: str) -> None:
    run_engine_driver("sync_driver.py", tmp_path, dtype, timeout=400)
    gaps = json.loads((tmp_path / "gaps.json").read_text())
    assert set(gaps) == WAYS - {dtype}
    assert dtype == "float32" or gaps["float32"][0] > 1e-4, "the engine is in float32, too"
    for way, (start, *changed) in gaps.items():
        assert start <= BOUNDS[dtype], way
        for before, after in zip(changed[::2], changed[1::2], strict=True):
            assert after <= BOUNDS[dtype] < before / 2, f"{way}: {before} nats before a sync, {after} after it"
