"""Rollout engines by name: functions from an `EngineSetup` to an `Engine`. Importing this package loads none."""

from halfway.curriculum.support.registry import Registry

ENGINES = Registry(
    what="rollouts.engine",
    group="halfway.engines",
    builtin={
        "transformers": "halfway.trainers.engines.transformers.engine:transformers_engine",
        "vllm": "halfway.trainers.engines.vllm.engine:vllm_engine",
        "vllm_servers": "halfway.trainers.engines.vllm_servers.engine:vllm_servers_engine",
    },
)
