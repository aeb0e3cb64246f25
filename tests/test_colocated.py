"""Learner and engine on one device: who asks for how much of it, and when it is given back."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from curriculum import UserError
from trainers.engines.base import EngineSetup
from trainers.engines.vllm import vllm_engine
from trainers.engines.vllm_server import server_flags
from trainers.options import RolloutOptions, VllmOptions

OPTIONS = RolloutOptions(vllm=VllmOptions(kv_cache_gib=2))


def test_the_engine_in_this_process_wants_no_free_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def llm(path: str, **options: Any) -> Any:
        asked.update(options)
        raise ValueError("enough seen")

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=llm))  # type: ignore[arg-type]
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "ERROR")
    policy: Any = SimpleNamespace(dtype=torch.float32)
    with pytest.raises(UserError, match="enough seen"):
        vllm_engine(EngineSetup(policy, "model", [1], 0, OPTIONS))
    # vLLM refuses to start where less than this share of the device is free, whatever the cache's size.
    assert 0 < asked["gpu_memory_utilization"] <= 0.01
    assert asked["kv_cache_memory_bytes"] == 2 * 2**30


@pytest.mark.parametrize("chunked", [True, False])
def test_a_server_wants_no_free_device(chunked: bool) -> None:
    flags = dict(flag.split("=", 1) for flag in server_flags("bfloat16", OPTIONS, chunked) if "=" in flag)
    assert 0 < float(flags["--gpu-memory-utilization"]) <= 0.01
    assert int(flags["--kv-cache-memory-bytes"]) == 2 * 2**30
