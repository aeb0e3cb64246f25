"""Turns groups into padded arrays: what the loss sees, and what it does not. Needs only numpy."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum.groups import Group
from halfway.curriculum.rollouts import IntArray, Origin, Rollout
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import UserError
from halfway.trainers.learner.objective.advantages import advantages
from halfway.trainers.learner.options import LearnerOptions

BoolArray = NDArray[np.bool_]
Floats = NDArray[np.floating[Any]]

# Why a rollout is not in the loss.
TRUNCATED = "truncated"  # cut by a limit, under compact filtering
UNGROUPED = "ungrouped"  # the only rollout left of its group: it has no advantage
NOT_GENERATED = "not_generated"  # every token of it was replayed
WEIGHED_OUT = "weighed_out"  # a controller gave it the weight 0
REASONS = (TRUNCATED, UNGROUPED, NOT_GENERATED, WEIGHED_OUT)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSequence:
    """One rollout as the loss sees it. Entry t of every array belongs to token t, which tokens 0..t-1 predict.

    Attributes:
        tokens_T: the prompt, then the response and the observation of every turn.
        mask_T: True where the policy generated the token in this rollout; False on the prompt, on replayed tokens and
            on observations, which are context only.
        advantage: advantage of every generated token, unless `advantages_T` gives it token by token.
        engine_logprobs_T: natural-log probabilities, as recorded at sampling; 0 where the mask is False.
        old_logprobs_T: denominator of the importance ratio, likewise; None = the policy's own, so that the ratio is 1.
        reference_logprobs_T: the reference policy's, likewise; None if there is none.
        reward: reward of the whole rollout, which comes with the last generated token.
        group: position of the rollout's group in the update.
        weight: factor on all its advantages.
        advantages_T: advantage of every generated token, from a critic or a controller; 0 where the mask is False.
        values_T, returns_T: with a critic, for every generated token: the value, before the update, of the state before
            the token, and the target of that value. 0 where the mask is False.
    """

    tokens_T: IntArray
    mask_T: BoolArray
    advantage: float
    engine_logprobs_T: Floats
    old_logprobs_T: Floats | None = None
    reference_logprobs_T: Floats | None = None
    reward: float = 0.0
    group: int = 0
    weight: float = 1.0
    advantages_T: Floats | None = None
    values_T: Floats | None = None
    returns_T: Floats | None = None

    @property
    def length(self) -> int:
        return len(self.tokens_T)

    @property
    def num_trained(self) -> int:
        """Tokens in the loss."""
        return int(self.mask_T.sum())


@dataclass(frozen=True, slots=True)
class Batch:
    """What an update trains on.

    Attributes:
        sequences: one per rollout, in the order of the groups; may be empty.
        left_out: reason -> number of rollouts that are not in the loss, for all of `REASONS`, zeros included.
    """

    sequences: tuple[TrainingSequence, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Padded:
    """Sequences padded on the right to a common length.

    Attributes:
        tokens_BT: int64.
        mask_BT: False on padding.
        advantages_BT: advantage of every token, including weights; or one column if all tokens of a sequence share
            theirs.
        engine_logprobs_BT, old_logprobs_BT, reference_logprobs_BT, values_BT, returns_BT: as in `TrainingSequence`; 0
            on padding.
    """

    tokens_BT: NDArray[np.int64]
    mask_BT: BoolArray
    advantages_BT: Floats
    engine_logprobs_BT: Floats
    old_logprobs_BT: Floats | None
    reference_logprobs_BT: Floats | None
    values_BT: Floats | None = None
    returns_BT: Floats | None = None


def make_batch(groups: Sequence[Group], options: LearnerOptions) -> Batch:
    """The sequences of the groups.

    Advantages come from the rewards of all rollouts of a group: their raw binary successes, unless `Rollout.reward`
    says otherwise. With `options.compact_filtering`, truncated rollouts count in that baseline and are left out
    afterwards: they count neither in the sum nor in the denominator of the loss. A degenerate group is not left out
    here; with equal rewards its advantages are zero.

    With advantage=gae there is no baseline, so a rollout that is alone in its group stays; the critic provides its
    advantages.

    Weights and advantages from controllers (`Group.weights`) are applied here. A stored group brings its own old
    log-probabilities, as recorded at sampling, so its importance ratio is taken against the policy that wrote it.

    Raises:
        UserError: if both a controller and a critic give advantages.
    """
    sequences = []
    left_out: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
    for position, group in enumerate(groups):
        if group.size < 2 and options.advantage != "gae" and not (group.weights and group.weights.steers):
            left_out[UNGROUPED] += group.size
            continue
        for i, advantage in enumerate(group_advantages(group, options)):
            reason = _left_out(group, i, options)
            if reason:
                left_out[reason] += 1
            else:
                sequences.append(replace(_sequence(group, i, float(advantage), options), group=position))
    return Batch(tuple(sequences), dict(left_out))


def _left_out(group: Group, i: int, options: LearnerOptions) -> str:
    """Why rollout i is not in the loss; empty if it is."""
    rollout = group.rollouts[i]
    if options.compact_filtering and rollout.truncated:
        return TRUNCATED
    if rollout.num_generated == 0:
        return NOT_GENERATED
    return "" if group.weights_N[i] > 0 else WEIGHED_OUT


def _sequence(group: Group, i: int, advantage: float, options: LearnerOptions) -> TrainingSequence:
    """Rollout i of a group as the loss sees it."""
    rollout, given = group.rollouts[i], group.weights and group.weights.advantages_NT
    sequence = make_sequence(group.prompt_tokens_P, rollout, advantage)
    own = options.old_logprobs == "engine" or group.request.origin is Origin.STORED
    advantages_T = None
    if given:
        advantages_T = np.zeros(sequence.length)
        advantages_T[sequence.mask_T] = given[i]
    return replace(
        sequence,
        old_logprobs_T=sequence.engine_logprobs_T if own else None,
        reward=rollout.trained_reward,
        weight=float(group.weights_N[i]),
        advantages_T=advantages_T,
    )


def group_advantages(group: Group, options: LearnerOptions) -> NDArray[np.float64]:
    """Advantages by the group's own baseline, or by a controller; 0 where they are given token by token.

    Raises:
        UserError: if both a critic and a controller give them.
    """
    steers = group.weights is not None and group.weights.steers
    if steers and options.advantage == "gae":
        raise UserError(
            "learner.advantage: 'gae' is not acceptable; a controller gives advantages of its own: use "
            "learner.advantage=leave_one_out, or leave that controller out"
        )
    if group.weights is not None and steers:
        given_N = group.weights.advantages_N
        return np.zeros(group.size) if given_N is None else np.asarray(given_N, np.float64)
    if options.advantage == "gae":
        return np.zeros(group.size)
    rewards_N = [rollout.trained_reward for rollout in group.rollouts]
    return advantages(rewards_N, options.advantage, options.divide_by_std)


def make_sequence(prompt_tokens_P: IntArray, rollout: Rollout, advantage: float) -> TrainingSequence:
    """The prompt and the rollout's turns, concatenated into one sequence."""
    tokens: list[NDArray[Any]] = [prompt_tokens_P]
    mask: list[NDArray[Any]] = [np.zeros(len(prompt_tokens_P), np.bool_)]
    logprobs: list[NDArray[Any]] = [np.zeros(len(prompt_tokens_P), np.float32)]
    for turn in rollout.turns:
        generated_T = np.arange(len(turn.tokens_T)) >= turn.num_replayed
        num_observed = len(turn.observation_tokens_O)
        tokens += [turn.tokens_T, turn.observation_tokens_O]
        mask += [generated_T, np.zeros(num_observed, np.bool_)]
        logprobs += [np.where(generated_T, turn.logprobs_T, np.float32(0)), np.zeros(num_observed, np.float32)]
    sequence = TrainingSequence(np.concatenate(tokens), np.concatenate(mask), advantage, np.concatenate(logprobs))
    assert not sequence.mask_T[0], "the first token has no context, so it cannot have been generated"
    return sequence


def split_minibatches(
    sequences: Sequence[TrainingSequence], options: LearnerOptions, stream: Stream
) -> list[list[TrainingSequence]]:
    """Shuffle the sequences and deal them out to optimizer steps: `count_minibatches` parts, none of them empty.

    With `options.minibatch_groups` whole groups are dealt out in shuffled order, otherwise sequences; the sizes of
    parts differ by at most one. A single mini-batch is not shuffled.
    """
    num = count_minibatches(sequences, options)
    if num <= 1:
        return [list(sequences)] if sequences else []
    dealt = by_group(sequences) if options.minibatch_groups else [[sequence] for sequence in sequences]
    order = stream.generator().permutation(len(dealt))
    return [[sequence for i in part for sequence in dealt[i]] for part in np.array_split(order, num)]


def count_minibatches(sequences: Sequence[TrainingSequence], options: LearnerOptions) -> int:
    """Number of optimizer steps in one epoch; 0 if there is no sequence.

    With `options.minibatch_groups`, the number of groups divided by it, rounded (halves up), and at least 1; groups of
    which no sequence is left do not count. Otherwise `options.num_minibatches`, or the number of sequences if that is
    smaller.
    """
    if not sequences or not options.minibatch_groups:
        return min(options.num_minibatches, len(sequences))
    return max(1, math.floor(len(by_group(sequences)) / options.minibatch_groups + 0.5))


def by_group(sequences: Sequence[TrainingSequence]) -> list[list[TrainingSequence]]:
    """The sequences of each group, in the order of the groups' first sequences."""
    groups: dict[int, list[TrainingSequence]] = {}
    for sequence in sequences:
        groups.setdefault(sequence.group, []).append(sequence)
    return list(groups.values())


def split_microbatches(
    sequences: Sequence[TrainingSequence], max_tokens: int, max_padding: float = 1.0
) -> list[list[int]]:
    """Positions of the sequences in batches for one forward pass each: longest first, ties in the given order.

    Args:
        max_tokens: bound on rows x longest row. A single sequence that is longer has a micro-batch of its own.
        max_padding: if a row would be shorter than the longest of its micro-batch by more than this share, a new
            micro-batch begins, unless the current one is still below an eighth of `max_tokens`.
    """
    order = sorted(range(len(sequences)), key=lambda i: -sequences[i].length)
    parts: list[list[int]] = []
    for i in order:
        if parts:
            # The first row of a part is its longest.
            longest, rows = sequences[parts[-1][0]].length, len(parts[-1])
            fits = (rows + 1) * longest <= max_tokens
            like = sequences[i].length >= (1 - max_padding) * longest or 8 * rows * longest < max_tokens
            if fits and like:
                parts[-1].append(i)
                continue
        parts.append([i])
    return parts


def scatter(
    sequences: Sequence[TrainingSequence], max_tokens: int, num_processes: int, max_padding: float = 1.0
) -> list[list[tuple[list[int], float]]]:
    """The micro-batches of every process as positions, each with its weight, 0 or 1.

    Processes get about equally many tokens: longest sequence first, each to the process that has the fewest so far. All
    get equally many micro-batches, as collective operations require; a process that has run out gets the shortest
    sequence with weight 0.
    """
    shares: list[list[int]] = [[] for _ in range(num_processes)]
    loads = [0] * num_processes
    for i in sorted(range(len(sequences)), key=lambda i: -sequences[i].length):
        process = loads.index(min(loads))
        shares[process].append(i)
        loads[process] += sequences[i].length
    dealt = []
    for share in map(sorted, shares):
        parts = split_microbatches([sequences[i] for i in share], max_tokens, max_padding)
        dealt.append([([share[i] for i in part], 1.0) for part in parts])
    rounds = max(map(len, dealt))
    shortest = min(range(len(sequences)), key=lambda i: sequences[i].length)
    return [parts + [([shortest], 0.0)] * (rounds - len(parts)) for parts in dealt]


def pad(sequences: Sequence[TrainingSequence], pad_token_id: int) -> Padded:
    """Right-padded arrays of at least one sequence. An optional array is present in all sequences or in none."""
    int64 = np.dtype(np.int64)
    return Padded(
        tokens_BT=_stack([s.tokens_T for s in sequences], pad_token_id, int64),
        mask_BT=_stack([s.mask_T for s in sequences], False),
        advantages_BT=_advantages(sequences),
        engine_logprobs_BT=_stack([s.engine_logprobs_T for s in sequences], 0),
        old_logprobs_BT=_stack_optional([s.old_logprobs_T for s in sequences]),
        reference_logprobs_BT=_stack_optional([s.reference_logprobs_T for s in sequences]),
        values_BT=_stack_optional([s.values_T for s in sequences]),
        returns_BT=_stack_optional([s.returns_T for s in sequences]),
    )


def _advantages(sequences: Sequence[TrainingSequence]) -> NDArray[Any]:
    """One column, unless some sequence has an advantage for every token."""
    if all(s.advantages_T is None for s in sequences):
        return np.asarray([[s.weight * s.advantage] for s in sequences])
    rows = [np.where(s.mask_T, s.advantage, 0) if s.advantages_T is None else s.advantages_T for s in sequences]
    return _stack([s.weight * row_T for s, row_T in zip(sequences, rows, strict=True)], 0)


def _stack(rows: Sequence[NDArray[Any]], fill: float, dtype: "np.dtype[Any] | None" = None) -> NDArray[Any]:
    stacked_BT = np.full((len(rows), max(len(row) for row in rows)), fill, dtype or np.result_type(*rows))
    for b, row in enumerate(rows):
        stacked_BT[b, : len(row)] = row
    return stacked_BT


def _stack_optional(rows: Sequence[Floats | None]) -> Floats | None:
    given = [row for row in rows if row is not None]
    assert len(given) in (0, len(rows)), "an optional array is missing in some of the sequences"
    return _stack(given, 0) if given else None
