"""Sampling from a replica of the policy in another process, so that the learner can update meanwhile."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from halfway.curriculum.rollouts import IntArray
from halfway.trainers.engines.base import Completion, EngineSetup, Finished
from halfway.trainers.engines.transformers.engine import TransformersEngine
from halfway.trainers.learner.weights import copy_weights


class ReplicaEngine(TransformersEngine):
    """Samples in another process than the one that made it, from weights in shared memory.

    On a GPU it samples from a copy of them: on the last one, since the learner has the first.
    """

    def __init__(self, setup: EngineSetup):
        """
        Args:
            setup: its policy is a copy, in main memory.
        """
        super().__init__(setup)
        self._shared = setup.policy.share_memory()

    def refresh(self, version: int) -> None:
        """Use what is now in shared memory, the weights of this version."""
        if self.policy is self._shared and torch.cuda.is_available():
            self.policy = copy.deepcopy(self._shared).to(f"cuda:{torch.cuda.device_count() - 1}")
        self.sync(self._shared, version)


class ElsewhereEngine:
    """Stands here for a `ReplicaEngine` that samples in another process.

    Attributes:
        shared: the module whose weights the two share.
        call: calls a method of the engine there, by name.
    """

    serves_all = False
    replicas = 1

    def __init__(self, shared: nn.Module, version: int, call: Callable[..., Any]):
        """
        Args:
            version: of the weights that are shared now.
        """
        self.shared, self.call = shared, call
        self.call("refresh", version)

    def generate(
        self,
        contexts: Sequence[IntArray],
        max_new_tokens: Sequence[int],
        seeds: Sequence[int],
        finished: Finished | None = None,
    ) -> list[Completion]:
        completions: list[Completion] = self.call("generate", contexts, max_new_tokens, seeds)
        for i, completion in enumerate(completions):
            if finished is not None:
                finished(i, completion)
        return completions

    def sync(self, policy: nn.Module, version: int) -> None:
        """Put the weights of `policy` where the other process finds them. It must not be sampling."""
        copy_weights(policy, self.shared)
        self.call("refresh", version)
