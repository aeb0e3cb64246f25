"""Learner and engine on one device: how much memory each asks for, and when it is given back."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from paths import REPOSITORY

from halfway.curriculum import UserError
from halfway.experiments.config.loading import load_run_config
from halfway.experiments.running.build import _sync
from halfway.experiments.running.memory import rank_parts
from halfway.trainers.engines.base import EngineSetup
from halfway.trainers.engines.vllm.part import Vllm
from halfway.trainers.engines.vllm_servers.options import server_flags
from halfway.trainers.engines.vllm_servers.part import VllmServers


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
        Vllm(kv_cache_gib=2).build(EngineSetup(policy, "model", [1], 0))
    # vLLM refuses to start where less than this share of the device is free, whatever the cache's size.
    assert 0 < asked["gpu_memory_utilization"] <= 0.01
    assert asked["kv_cache_memory_bytes"] == 2 * 2**30


@pytest.mark.parametrize("chunked", [True, False])
def test_a_server_wants_no_free_device(chunked: bool) -> None:
    flags = dict(
        flag.split("=", 1)
        for flag in server_flags("bfloat16", VllmServers(kv_cache_gib=2), 512, chunked)
        if "=" in flag
    )
    assert 0 < float(flags["--gpu-memory-utilization"]) <= 0.01
    assert int(flags["--kv-cache-memory-bytes"]) == 2 * 2**30


@pytest.mark.parametrize(("sequences", "tokens"), [(2048, None), (4096, "8192"), (10_000, "10000")])
def test_a_server_for_thousands_of_sequences_reads_as_many_tokens_in_a_step(sequences: int, tokens: str | None) -> None:
    flags = dict(flag.partition("=")[::2] for flag in server_flags("bfloat16", VllmServers(), sequences, True))
    assert flags["--max-num-seqs"] == str(sequences) and flags.get("--max-num-batched-tokens") == tokens


def test_a_sync_gives_device_memory_back_before_the_engine_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: heard.append("given back"))
    engine: Any = SimpleNamespace(sync=lambda policy, version: heard.append(f"sync {version}"))
    learner: Any = SimpleNamespace(policy=None, policy_version=7)
    _sync(engine, learner, None)
    assert heard == ["given back", "sync 7"]


@pytest.mark.parametrize(
    ("engine", "copied"),
    [
        ("transformers", True),
        ("{vllm: {entropies: false}}", False),
        ("{vllm: {entropies: true}}", True),
        ("vllm_servers", False),
    ],
)
def test_only_engines_that_use_the_module_cost_a_copy(engine: str, copied: bool) -> None:
    recipe = REPOSITORY / "experiments" / "recipes" / "cluster" / "one_node.yaml"
    config = load_run_config(recipe, [f"rollouts.engine={engine}"])
    assert config.rollouts.engine.part.uses_module == copied
    shape = config.shape
    _, parts = rank_parts(config, shape)
    assert parts["copy to sample from"] == pytest.approx(14.2 if copied else 0, abs=0.1)
