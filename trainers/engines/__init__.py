"""Rollout engines by name. Importing this package loads none of them.

- `base`: the contract: continue contexts, take the learner's weights
- `sync_check`: do engine and learner still stand for the same policy?
- `transformers`: in this process, with a `transformers` module
- `vllm`: in this process, with vLLM
- `vllm_servers`: through vLLM servers, here or on other hosts
"""

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
