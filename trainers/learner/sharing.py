"""Divides a batch among processes: each gets the outlines of all sequences, and the tokens of those that it reads."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum import NO_TOKENS, IntArray
from halfway.trainers.learner.batch import Batch, Floats, TrainingSequence

Array = NDArray[Any]


class Runs(NamedTuple):
    """An array of repeated values: each value, and the length of its run."""

    values: Array
    counts: Array

    @classmethod
    def of(cls, array_T: Array) -> "Runs":
        ends = np.flatnonzero(array_T[1:] != array_T[:-1])
        starts = np.concatenate([[0], ends + 1]) if len(array_T) else ends
        return cls(array_T[starts], np.diff(starts, append=len(array_T)).astype(np.int32))

    def array(self) -> Array:
        return np.repeat(self.values, self.counts)


class Outline(NamedTuple):
    """A sequence without its arrays of tokens and their values.

    Attributes:
        bare: the sequence, with empty arrays.
        mask, lags: its mask and lags.
    """

    bare: TrainingSequence
    mask: Runs
    lags: Runs | None


class Content(NamedTuple):
    """The tokens of a sequence and their values; what lies in a store is read where it is used."""

    tokens_T: IntArray
    engine_logprobs_T: Floats
    advantages_T: Floats | None


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """A process's share of a batch.

    Attributes:
        outlines: outlines of all sequences.
        contents: contents of the sequences that the process reads, by position.
        left_out: as in `Batch`.
    """

    outlines: Sequence[Outline]
    contents: dict[int, Content]
    left_out: dict[str, int]

    def batch(self) -> Batch:
        """Make the batch; sequences that this process does not read are zeros without memory."""
        sequences = [_whole(outline, self.contents.get(i)) for i, outline in enumerate(self.outlines)]
        return Batch(tuple(sequences), self.left_out)


def divide(batch: Batch, reads: Sequence[Set[int]]) -> list[Share]:
    """Make the share of every process.

    Args:
        reads: positions of the sequences that each process reads.
    """
    numbers: dict[bytes, int] = {}
    contexts = [numbers.setdefault(s.context_T.tobytes(), len(numbers)) for s in batch.sequences]
    outlines = [_outline(sequence, context) for sequence, context in zip(batch.sequences, contexts, strict=True)]
    contents = [Content(s.tokens_T, s.engine_logprobs_T, s.advantages_T) for s in batch.sequences]
    return [Share(outlines, {i: contents[i] for i in sorted(read)}, dict(batch.left_out)) for read in reads]


def _outline(sequence: TrainingSequence, context: int) -> Outline:
    old_T, lags_T = sequence.old_logprobs_T, sequence.lags_T
    assert old_T is None or old_T is sequence.engine_logprobs_T, "old log-probabilities are not the engine's"
    bare = replace(
        sequence,
        tokens_T=NO_TOKENS,
        mask_T=sequence.mask_T[:0],
        engine_logprobs_T=sequence.engine_logprobs_T[:0],
        old_logprobs_T=None if old_T is None else old_T[:0],
        context=context,
        lags_T=None,
        advantages_T=None,
    )
    return Outline(bare, Runs.of(sequence.mask_T), None if lags_T is None else Runs.of(lags_T))


def _whole(outline: Outline, content: Content | None) -> TrainingSequence:
    bare, mask_T = outline.bare, outline.mask.array()
    if content is None:
        zeros_T = np.broadcast_to(np.float32(0), mask_T.shape)
        content = Content(np.broadcast_to(np.int32(0), mask_T.shape), zeros_T, None)
    logprobs_T = np.asarray(content.engine_logprobs_T)
    return replace(
        bare,
        tokens_T=np.asarray(content.tokens_T),
        mask_T=mask_T,
        engine_logprobs_T=logprobs_T,
        old_logprobs_T=None if bare.old_logprobs_T is None else logprobs_T,
        lags_T=None if outline.lags is None else outline.lags.array(),
        advantages_T=content.advantages_T,
    )
