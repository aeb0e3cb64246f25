"""Rollout engines by name: functions from an `EngineSetup` to an `Engine`. Importing this package loads none."""

from curriculum.registry import Registry

ENGINES = Registry(
    what="rollouts.engine",
    group="halfway.engines",
    builtin={
        "transformers": "trainers.engines.transformers:transformers_engine",
        "vllm": "trainers.engines.vllm:vllm_engine",
        "vllm_servers": "trainers.engines.vllm_servers:vllm_servers_engine",
    },
)
