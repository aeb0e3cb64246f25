"""Divides the sequences of an update into optimizer steps, processes and forward passes, as padded tensors."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from halfway.curriculum import Stream
from halfway.trainers.learner.batch import Floats, TrainingSequence
from halfway.trainers.learner.learner_options import LearnerOptions

LONG_CONTEXT = 128
"""Tokens from which it pays to read a context by itself."""
READ = 16
"""Tokens whose keys and values, one copy a row, take about the memory of one token's other activations."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedContexts:
    """Contexts shared by several sequences, each once, and the rest of every sequence.

    The rollouts of a group share their context, see `TrainingSequence.context_T`.

    Attributes:
        tokens_UP: the U different contexts, padded on the left.
        given_UP: False on padding.
        of_B: index of each sequence's context.
        own_tokens_BR: each sequence from its last context token on, padded on the right.
        own_mask_BR: mask of `own_tokens_BR`.
    """

    tokens_UP: Tensor
    given_UP: Tensor
    of_B: Tensor
    own_tokens_BR: Tensor
    own_mask_BR: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Padded:
    """Sequences padded on the right to a common length, as tensors on one device.

    Attributes:
        tokens_BT: int64.
        mask_BT: bool, False on padding.
        advantages_BT: advantage of every token, including weights; one column if all tokens of a sequence have the
            same.
        engine_logprobs_BT, old_logprobs_BT, reference_logprobs_BT, values_BT, returns_BT: as in `TrainingSequence`; 0
            on padding.
        shared: None if the sequences are read whole.
        lags_BT: as in `TrainingSequence`.
    """

    tokens_BT: Tensor
    mask_BT: Tensor
    advantages_BT: Tensor
    engine_logprobs_BT: Tensor
    old_logprobs_BT: Tensor | None
    reference_logprobs_BT: Tensor | None
    values_BT: Tensor | None = None
    returns_BT: Tensor | None = None
    shared: SharedContexts | None = None
    lags_BT: Tensor | None = None


def split_minibatches(
    sequences: Sequence[TrainingSequence], options: LearnerOptions, stream: Stream
) -> list[list[TrainingSequence]]:
    """Shuffle the sequences and divide them among optimizer steps: `count_minibatches` parts, none empty.

    With `options.minibatch_groups` groups stay whole; sizes of parts differ by at most one group, otherwise by one
    sequence. A single mini-batch is not shuffled.
    """
    num = count_minibatches(sequences, options)
    if num <= 1:
        return [list(sequences)] if sequences else []
    dealt = by_group(sequences) if options.minibatch_groups else [[sequence] for sequence in sequences]
    order = stream.generator().permutation(len(dealt))
    return [[sequence for i in part for sequence in dealt[i]] for part in np.array_split(order, num)]


def count_minibatches(sequences: Sequence[TrainingSequence], options: LearnerOptions) -> int:
    """Number of optimizer steps in one epoch; 0 without sequences.

    With `options.minibatch_groups`, the number of groups divided by it, rounded (halves up), and at least 1; groups
    without sequences do not count. Otherwise `options.num_minibatches`, but at most the number of sequences.
    """
    if not sequences or not options.minibatch_groups:
        return min(options.num_minibatches, len(sequences))
    return max(1, math.floor(len(by_group(sequences)) / options.minibatch_groups + 0.5))


def by_group(sequences: Sequence[TrainingSequence]) -> list[list[TrainingSequence]]:
    """Collect the sequences of each group, in the order of the groups' first sequences."""
    groups: dict[int, list[TrainingSequence]] = {}
    for sequence in sequences:
        groups.setdefault(sequence.group, []).append(sequence)
    return list(groups.values())


def split_microbatches(
    sequences: Sequence[TrainingSequence], max_tokens: int, max_padding: float = 1.0, share: bool = False
) -> list[list[int]]:
    """Divide sequences, by index, into batches for one forward pass each: longest first, ties in the given order.

    Args:
        max_tokens: bound on rows x longest row. A longer sequence gets its own micro-batch. A context that rows share
            counts once, and each token of which a row reads keys and values as 1/16 (`READ`).
        max_padding: a row that is shorter than the longest of its micro-batch by more than this share starts a new
            micro-batch, unless the current one is still below an eighth of `max_tokens`.
        share: whether sequences with the same context stay together, as far as `max_tokens` allows.
    """
    bundles = [p for bundle in _bundles(sequences, share) for p in _pieces(sequences, bundle, max_tokens, share)]
    parts: list[list[int]] = []
    for bundle in sorted(bundles, key=lambda bundle: -sequences[bundle[0]].length):
        if parts:
            # The first row of a part is its longest, and so is a bundle's.
            longest, rows = sequences[parts[-1][0]].length, len(parts[-1])
            fits = (rows + len(bundle)) * longest <= max_tokens
            like = sequences[bundle[0]].length >= (1 - max_padding) * longest or 8 * rows * longest < max_tokens
            if fits and like:
                parts[-1] += bundle
                continue
        parts.append(list(bundle))
    return parts


def _bundles(sequences: Sequence[TrainingSequence], share: bool) -> list[list[int]]:
    """Indices of sequences that stay together, longest first: those with the same context, or each alone."""
    together: dict[bytes | int, list[int]] = {}
    for i, sequence in enumerate(sequences):
        together.setdefault(_context(sequence) if share else i, []).append(i)
    return [sorted(bundle, key=lambda i: -sequences[i].length) for bundle in together.values()]


def _context(sequence: TrainingSequence) -> bytes | int:
    return sequence.context_T.tobytes() if sequence.context is None else sequence.context


def _pieces(
    sequences: Sequence[TrainingSequence], bundle: Sequence[int], max_tokens: int, share: bool
) -> Iterator[list[int]]:
    """Split a bundle into pieces of at most `max_tokens`, or of single sequences."""
    longest = sequences[bundle[0]]
    shared = len(longest.context_T) if share else 0
    row = longest.length - shared + (longest.length / READ if shared else 0)
    rows = max(1, int((max_tokens - shared) / row))
    for start in range(0, len(bundle), rows):
        yield list(bundle[start : start + rows])


def scatter(
    sequences: Sequence[TrainingSequence],
    max_tokens: int,
    num_processes: int,
    max_padding: float = 1.0,
    share: bool = False,
) -> list[list[tuple[list[int], float]]]:
    """Assign micro-batches to processes, as indices of sequences, each micro-batch with its weight, 0 or 1.

    Processes get about equally many tokens: longest sequence first, each to the process with the fewest so far. All get
    equally many micro-batches, as collective operations require; a process with fewer is filled up with the shortest
    sequence at weight 0.

    Args:
        share: see `split_microbatches`.
    """
    shares: list[list[int]] = [[] for _ in range(num_processes)]
    loads = [0] * num_processes
    for bundle in sorted(_bundles(sequences, share), key=lambda bundle: -sequences[bundle[0]].length):
        process = loads.index(min(loads))
        shares[process] += bundle
        loads[process] += sum(sequences[i].length for i in bundle)
    dealt = []
    for own in map(sorted, shares):
        parts = split_microbatches([sequences[i] for i in own], max_tokens, max_padding, share)
        dealt.append([([own[i] for i in part], 1.0) for part in parts])
    rounds = max(map(len, dealt))
    shortest = min(range(len(sequences)), key=lambda i: sequences[i].length)
    return [parts + [([shortest], 0.0)] * (rounds - len(parts)) for parts in dealt]


def contexts_dominate(sequences: Sequence[TrainingSequence]) -> bool:
    """True if the contexts of sequences are long, and longer than the rest: to read each only once pays."""
    contexts = sum(len(sequence.context_T) for sequence in sequences)
    return contexts >= max(LONG_CONTEXT * len(sequences), sum(s.length for s in sequences) / 2)


def share_contexts(
    sequences: Sequence[TrainingSequence], pad_token_id: int, device: "torch.device | str" = "cpu"
) -> SharedContexts | None:
    """Collect the contexts of the sequences, each once; None if no two sequences share one."""
    contexts = [sequence.context_T for sequence in sequences]
    starts = list(map(len, contexts))
    distinct = {context.tobytes(): context for context in contexts}
    if len(distinct) == len(sequences) or min(starts) == 0:
        return None
    number_of = {key: number for number, key in enumerate(distinct)}
    backwards = [context[::-1] for context in distinct.values()]
    tokens_UP = _stack(backwards, pad_token_id, np.dtype(np.int64))[:, ::-1]
    given_UP = _stack([np.ones(len(context), np.bool_) for context in backwards], 0)[:, ::-1]
    own = [(s.tokens_T[start:], s.mask_T[start:]) for s, start in zip(sequences, starts, strict=True)]
    arrays = (
        tokens_UP,
        given_UP,
        np.array([number_of[context.tobytes()] for context in contexts]),
        _stack([tokens_R for tokens_R, _ in own], pad_token_id, np.dtype(np.int64)),
        _stack([mask_R for _, mask_R in own], 0),
    )
    return SharedContexts(*(torch.as_tensor(array.copy(), device=device) for array in arrays))


def pad(
    sequences: Sequence[TrainingSequence], pad_token_id: int, device: "torch.device | str" = "cpu", share: bool = False
) -> Padded:
    """Pad at least one sequence on the right, as tensors. An optional array is present in all sequences or in none.

    Args:
        share: whether to look for shared contexts.
    """

    def stack(rows: Sequence[NDArray[Any]], fill: float = 0, dtype: "np.dtype[Any] | None" = None) -> Tensor:
        return torch.as_tensor(_stack(rows, fill, dtype), device=device)

    def optional(rows: Sequence[Floats | None]) -> Tensor | None:
        present = [row_T for row_T in rows if row_T is not None]
        assert len(present) in (0, len(rows)), "an optional array is missing in some of the sequences"
        return stack(present) if present else None

    return Padded(
        tokens_BT=stack([s.tokens_T for s in sequences], pad_token_id, np.dtype(np.int64)),
        mask_BT=stack([s.mask_T for s in sequences]),
        advantages_BT=torch.as_tensor(_advantages(sequences), device=device),
        engine_logprobs_BT=stack([s.engine_logprobs_T for s in sequences]),
        old_logprobs_BT=optional([s.old_logprobs_T for s in sequences]),
        reference_logprobs_BT=optional([s.reference_logprobs_T for s in sequences]),
        values_BT=optional([s.values_T for s in sequences]),
        returns_BT=optional([s.returns_T for s in sequences]),
        shared=share_contexts(sequences, pad_token_id, device) if share else None,
        lags_BT=stack([np.zeros(s.length, np.int32) if s.lags_T is None else s.lags_T for s in sequences]),
    )


def _advantages(sequences: Sequence[TrainingSequence]) -> NDArray[Any]:
    """Collect advantages: one column, unless a sequence has an advantage per token."""
    if all(s.advantages_T is None for s in sequences):
        return np.asarray([[s.weight * s.advantage] for s in sequences])
    rows = [np.where(s.mask_T, s.advantage, 0) if s.advantages_T is None else s.advantages_T for s in sequences]
    return _stack([s.weight * row_T for s, row_T in zip(sequences, rows, strict=True)], 0)


def _stack(rows: Sequence[NDArray[Any]], fill: float, dtype: "np.dtype[Any] | None" = None) -> NDArray[Any]:
    stacked_BT = np.full((len(rows), max(len(row) for row in rows)), fill, dtype or np.result_type(*rows))
    for b, row in enumerate(rows):
        stacked_BT[b, : len(row)] = row
    return stacked_BT
