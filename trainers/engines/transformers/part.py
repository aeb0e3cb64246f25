"""The engine `transformers` as a registered part."""

from dataclasses import dataclass
from functools import partial

from halfway.trainers.distributed.cluster import ShapeOptions
from halfway.trainers.engines.contract import Engine, EngineSetup
from halfway.trainers.engines.part import EngineMemory, EnginePart, PlannedRun, SplitEngine, bytes_of


@dataclass(frozen=True)
class Transformers(EnginePart):
    """Sampling in this process with the learner's own module: no copy of the weights, nothing to install."""

    @property
    def changes_process(self) -> bool:
        return False

    def build(self, setup: EngineSetup) -> Engine:
        from halfway.trainers.engines.transformers.engine import TransformersEngine

        return TransformersEngine(setup)

    @property
    def can_split(self) -> bool:
        return True

    def split(self, setup: EngineSetup) -> SplitEngine:
        from halfway.trainers.engines.transformers.engine import ElsewhereEngine, ReplicaEngine

        return SplitEngine(ReplicaEngine(setup), partial(ElsewhereEngine, setup.policy, setup.policy_version))

    def memory(self, run: PlannedRun, shape: ShapeOptions) -> EngineMemory:
        """A key-value cache for full responses; its memory stays reserved during the update."""
        tokens = run.max_sequences * run.max_response_tokens
        cache = {"cache": float(shape.cache_per_token * tokens * bytes_of(run.dtype))}
        return EngineMemory(cache, cache, remedy="rollouts.max_sequences")
