"""Rollout engines by name. Importing this package loads none of them.

- `contract`: continue contexts, take the learner's weights
- `part`: the interface of an engine before it is built: options, checks, memory, servers
- `sync_check`: checks that engine and learner still hold the same policy
- `transformers`: in this process, with a `transformers` module
- `vllm`: in this process, with vLLM
- `vllm_servers`: through vLLM servers, here or on other hosts
"""

from halfway.curriculum import Registry

ENGINES = Registry(
    what="rollouts.engine",
    group="halfway.engines",
    builtin={
        "transformers": "halfway.trainers.engines.transformers.part:Transformers",
        "vllm": "halfway.trainers.engines.vllm.part:Vllm",
        "vllm_servers": "halfway.trainers.engines.vllm_servers.part:VllmServers",
    },
)
