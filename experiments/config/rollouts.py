"""The engine that a configuration names in `rollouts`: a registered component with its own options."""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from halfway.curriculum.support.errors import UserError
from halfway.experiments.config.components import component, kind_of, with_defaults
from halfway.trainers.engines import ENGINES
from halfway.trainers.engines.part import EnginePart
from halfway.trainers.rollouts.options import RolloutOptions

DEFAULT_ENGINE = "transformers"
# Groups of options that older configurations had beside the name of an engine.
OPTIONS_BESIDE = frozenset({"vllm", "servers"})


def engine_part(rollouts: RolloutOptions, path: str = "rollouts") -> EnginePart:
    """The engine of these rollouts, not built yet."""
    engine: EnginePart = component(rollouts.engine or DEFAULT_ENGINE, ENGINES, f"{path}.engine")
    return engine


def rollouts_with_defaults(rollouts: Any, path: str = "rollouts") -> Any:
    """The same mapping with every option of its engine written out; any other mistake in it is left for later checks.

    Raises:
        UserError: for an unknown engine, an option that it refuses, or engine options placed beside it.
    """
    if not isinstance(rollouts, Mapping):
        return rollouts
    engine = rollouts.get("engine") or DEFAULT_ENGINE
    if OPTIONS_BESIDE & set(rollouts):
        raise UserError(_options_beside(rollouts, engine, path))
    return {**rollouts, "engine": with_defaults(engine, ENGINES, f"{path}.engine")}


def _options_beside(rollouts: Mapping[str, Any], engine: Any, path: str) -> str:
    """How to rewrite an older configuration, whose engines had their options beside them."""
    from yaml import safe_dump

    beside = [name for name in rollouts if name in OPTIONS_BESIDE]
    name = engine if isinstance(engine, str) else str(next(iter(engine), ""))
    known = {f.name for f in fields(kind_of(ENGINES, name, f"{path}.engine"))}
    groups = [rollouts[group] for group in beside] + ([] if isinstance(engine, str) else [engine[name]])
    options = {k: v for group in groups if isinstance(group, Mapping) for k, v in group.items() if k in known}
    part = safe_dump({name: options} if options else name, default_flow_style=True, width=math.inf).splitlines()[0]
    return (
        f"{path}.{beside[0]}: an engine's options now stand below its name; write `{path}: {{engine: {part}}}`, "
        f"without {' and '.join(beside)}"
    )
