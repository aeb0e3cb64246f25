"""Rollout engines by name. Importing this package loads none of them."""

from curriculum.registry import Registry

ENGINES = Registry(
    what="rollouts.engine",
    group="halfway.engines",
    builtin={"transformers": "trainers.engines.transformers:TransformersEngine"},
)
