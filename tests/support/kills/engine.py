"""The engine `transformers` in other processes: in pieces, with new weights between them, or in Ray's actors."""

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
from torch import Tensor, nn

from halfway.curriculum.rollouts import IntArray
from halfway.trainers.engines.contract import Completion, Finished
from halfway.trainers.engines.transformers.engine import ElsewhereEngine, ReplicaEngine, TransformersEngine

PIECE = 4
"""Tokens that are sampled by the same weights."""


class ContinuingEngine(ReplicaEngine):
    """Samples in another process, whose weights may change at any time."""

    def generate(
        self,
        contexts: Sequence[IntArray],
        max_new_tokens: Sequence[int],
        seeds: Sequence[int],
        finished: Finished | None = None,
    ) -> list[Completion]:
        pieces: list[list[Completion]] = [[] for _ in contexts]
        left, under_way = list(max_new_tokens), list(range(len(contexts)))
        while under_way:
            grown = [np.concatenate([contexts[i], *(piece.tokens_T for piece in pieces[i])]) for i in under_way]
            limits = [min(PIECE, left[i]) for i in under_way]
            drawn = super().generate(grown, limits, [seeds[i] + len(pieces[i]) for i in under_way])
            for i, piece in zip(under_way, drawn, strict=True):
                pieces[i].append(piece)
                left[i] -= len(piece.tokens_T)
            under_way = [i for i in under_way if pieces[i][-1].stop == "length" and left[i]]
        completions = [join(each) for each in pieces]
        for i, completion in enumerate(completions if finished else ()):
            assert finished is not None
            finished(i, completion)
        return completions


def join(pieces: Sequence[Completion]) -> Completion:
    """One completion of consecutive pieces."""
    runs = [(version, list(run)) for version, run in groupby(pieces, key=lambda piece: piece.policy_version)]
    spans = tuple((version, sum(len(piece.tokens_T) for piece in run)) for version, run in runs)
    return Completion(
        tokens_T=np.concatenate([piece.tokens_T for piece in pieces]),
        logprobs_T=np.concatenate([piece.logprobs_T for piece in pieces]),
        entropies_T=np.concatenate([piece.entropies_T for piece in pieces]),
        stop=pieces[-1].stop,
        policy_version=spans[0][0],
        spans=spans if len(spans) > 1 else (),
    )


class AloneEngine(TransformersEngine):
    """Samples each sequence alone, so that the bits do not depend on how actors share a batch."""

    def generate(
        self,
        contexts: Sequence[IntArray],
        max_new_tokens: Sequence[int],
        seeds: Sequence[int],
        finished: Finished | None = None,
    ) -> list[Completion]:
        completions = []
        for i, call in enumerate(zip(contexts, max_new_tokens, seeds, strict=True)):
            completions += super().generate(*([each] for each in call))
            if finished is not None:
                finished(i, completions[-1])
        return completions

    def refresh(self, version: int, weights: Mapping[str, Tensor] | None = None) -> None:
        """Use these weights, or those that it has."""
        if weights is not None:
            self.policy.load_state_dict(weights)
        self.policy_version = version


class SendingEngine(ElsewhereEngine):
    """Sends the weights with the call, since other hosts share no memory."""

    def sync(self, policy: nn.Module, version: int) -> None:
        self.call("refresh", version, {name: values.cpu() for name, values in policy.state_dict().items()})
