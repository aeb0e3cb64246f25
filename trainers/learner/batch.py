"""Turns groups into the sequences of the loss, and counts the rollouts left out. Needs only numpy."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfway.curriculum import Group, IntArray, Origin, Rollout, UserError, refusal
from halfway.curriculum.rollouts import LATE
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.learner.objective.advantages import advantages

BoolArray = NDArray[np.bool_]
Floats = NDArray[np.floating[Any]]
Join = Callable[[Sequence[Any]], Any]

# Why a rollout is not in the loss.
TRUNCATED = "truncated"  # cut by a limit, under compact filtering
UNGROUPED = "ungrouped"  # the only rollout left of its group: it has no advantage
NOT_GENERATED = "not_generated"  # all its tokens were replayed
WEIGHED_OUT = "weighed_out"  # a controller gave it the weight 0
REASONS = (TRUNCATED, UNGROUPED, NOT_GENERATED, WEIGHED_OUT, LATE)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSequence:
    """One rollout in the loss. Entry t of every array belongs to token t, which tokens 0..t-1 predict.

    Attributes:
        tokens_T: the prompt, then the response and the observation of every turn.
        mask_T: True where the policy generated the token in this rollout; False on the prompt, on replayed tokens and
            on observations, which are context only.
        advantage: advantage of every generated token, unless `advantages_T` gives one per token.
        engine_logprobs_T: natural-log probabilities recorded at sampling; 0 where the mask is False.
        old_logprobs_T: natural-log probabilities in the denominator of the importance ratio; None = the policy's own,
            so that the ratio is 1.
        reference_logprobs_T: natural-log probabilities of the reference policy; None without a reference.
        reward: reward of the whole rollout, given at the last generated token.
        group: index of the rollout's group in the update.
        weight: factor on all its advantages.
        context: number of its `context_T` among those of the batch, equal for equal ones; None = compare the tokens.
        lags_T: age in updates of the weights that sampled each token; None = 0 for all.
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
    context: int | None = None
    lags_T: IntArray | None = None
    advantages_T: Floats | None = None
    values_T: Floats | None = None
    returns_T: Floats | None = None

    @property
    def length(self) -> int:
        return len(self.tokens_T)

    @property
    def context_T(self) -> IntArray:
        """The context before the first trained token (prompt and replayed prefix), without its last token, which
        predicts the first trained one."""
        return self.tokens_T[: int(self.mask_T.argmax()) - 1]

    @property
    def num_trained(self) -> int:
        """Tokens in the loss."""
        return int(self.mask_T.sum())


@dataclass(frozen=True, slots=True)
class Batch:
    """The training data of one update.

    Attributes:
        sequences: one per rollout, in the order of the groups; may be empty.
        left_out: reason -> number of rollouts left out of the loss, for all of `REASONS`, zeros included.
    """

    sequences: tuple[TrainingSequence, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)


def make_batch(groups: Sequence[Group], options: LearnerOptions, join: Join = np.concatenate) -> Batch:
    """Make the sequences of the groups.

    Advantages come from the rewards of all rollouts of a group: `Rollout.reward` if set, otherwise the binary success.
    With `options.compact_filtering`, truncated rollouts count in that baseline but not in the loss, neither in its sum
    nor in its denominator. A zero-variance group stays; its advantages are zero.

    With advantage=gae there is no baseline: a rollout that is alone in its group stays, and the critic provides its
    advantages.

    Weights and advantages from controllers (`Group.weights`) are applied here. A stored group has its own old
    log-probabilities, recorded at sampling, so its importance ratio compares with the policy that wrote it.

    Args:
        join: see `make_sequence`.

    Raises:
        UserError: if both a controller and a critic give advantages.
    """
    sequences = []
    left_out: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
    for position, group in enumerate(groups):
        if group.size < 2 and options.advantage != "gae" and not (group.weights and group.weights.steers):
            left_out[UNGROUPED] += group.size
            continue
        newest = group.policy_version + group.lag if group.lag and group.policy_versions else None
        for i, advantage in enumerate(group_advantages(group, options)):
            reason = _left_out(group, i, options)
            if reason:
                left_out[reason] += 1
            else:
                sequences.append(replace(_sequence(group, i, float(advantage), options, newest, join), group=position))
    return Batch(tuple(sequences), dict(left_out))


def _left_out(group: Group, i: int, options: LearnerOptions) -> str:
    """Why rollout i is not in the loss; empty if it is."""
    rollout = group.rollouts[i]
    if rollout.late:
        return LATE
    if options.compact_filtering and rollout.truncated:
        return TRUNCATED
    if rollout.num_generated == 0:
        return NOT_GENERATED
    return "" if group.weights_N[i] > 0 else WEIGHED_OUT


def _sequence(
    group: Group, i: int, advantage: float, options: LearnerOptions, newest: int | None, join: Join
) -> TrainingSequence:
    """Make the sequence of rollout i of a group.

    Args:
        newest: the learner's version; None = it sampled the group.
    """
    rollout, advantages_NT = group.rollouts[i], group.weights and group.weights.advantages_NT
    sequence = make_sequence(group.prompt_tokens_P, rollout, advantage, join)
    _require_start_outside(group, sequence)
    older = group.request.origin is Origin.STORED or (group.lag > 0 and options.mismatch == "none")
    own = options.old_logprobs == "engine" or older
    advantages_T = None
    if advantages_NT:
        advantages_T = np.zeros(sequence.length)
        advantages_T[sequence.mask_T] = advantages_NT[i]
    return replace(
        sequence,
        old_logprobs_T=sequence.engine_logprobs_T if own else None,
        reward=rollout.trained_reward,
        weight=float(group.weights_N[i]),
        lags_T=None if newest is None else _lags(len(group.prompt_tokens_P), rollout, newest),
        advantages_T=advantages_T,
    )


def _require_start_outside(group: Group, sequence: TrainingSequence) -> None:
    """Refuse a rollout whose prefix or hint would be in the loss: the policy did not write it here.

    Raises:
        UserError: if any of its tokens would be.
    """
    prefix, hint, start = group.request.prefix, group.request.hint, len(group.prompt_tokens_P)
    replayed = prefix.num_tokens if prefix else int(hint is not None and hint.place == "response")
    if sequence.mask_T[start : start + replayed].any():
        raise UserError(
            f"learner: problem {group.request.problem.id!r}: tokens of a {'prefix' if prefix else 'hint'} would be in "
            "the loss; have Turn.num_replayed count them"
        )


def _lags(num_prompt: int, rollout: Rollout, newest: int) -> IntArray:
    """Compute `TrainingSequence.lags_T`."""
    pieces = [np.zeros(num_prompt, np.int32)]
    for turn in rollout.turns:
        ages_T = newest - turn.versions_T
        pieces += [ages_T, np.zeros(len(turn.observation_tokens_O), np.int32)]
    return np.concatenate(pieces)


def group_advantages(group: Group, options: LearnerOptions) -> NDArray[np.float64]:
    """Advantages from the group's own baseline, or from a controller; 0 where there is one per token.

    Raises:
        UserError: if both a critic and a controller give advantages.
    """
    steers = group.weights is not None and group.weights.steers
    if steers and options.advantage == "gae":
        raise refusal(
            "learner.advantage",
            "gae",
            "a controller sets its own advantages; use leave_one_out, or leave that controller out",
        )
    if group.weights is not None and steers:
        advantages_N = group.weights.advantages_N
        return np.zeros(group.size) if advantages_N is None else np.asarray(advantages_N, np.float64)
    if options.advantage == "gae":
        return np.zeros(group.size)
    rewards_N = [rollout.trained_reward for rollout in group.rollouts]
    return advantages(rewards_N, options.advantage, options.divide_by_std)


def make_sequence(
    prompt_tokens_P: IntArray, rollout: Rollout, advantage: float, join: Join = np.concatenate
) -> TrainingSequence:
    """Concatenate the prompt and the rollout's turns into one sequence.

    Args:
        join: concatenates; `halfway.curriculum.stored.join` reads nothing from a store.
    """
    tokens: list[NDArray[Any]] = [prompt_tokens_P]
    mask: list[NDArray[Any]] = [np.zeros(len(prompt_tokens_P), np.bool_)]
    logprobs: list[NDArray[Any]] = [np.zeros(len(prompt_tokens_P), np.float32)]
    for turn in rollout.turns:
        num_observed = len(turn.observation_tokens_O)
        tokens += [turn.tokens_T, turn.observation_tokens_O]
        generated_T = np.ones(len(turn.tokens_T), np.bool_)
        generated_T[: turn.num_replayed] = False
        mask += [generated_T, np.zeros(num_observed, np.bool_)]
        logprobs += [turn.logprobs_T, np.zeros(num_observed, np.float32)]
    sequence = TrainingSequence(join(tokens), np.concatenate(mask), advantage, join(logprobs))
    assert not sequence.mask_T[0], "the first token has no context, so it cannot have been generated"
    return sequence


def continuation(context_P: IntArray, tokens_T: IntArray) -> TrainingSequence:
    """Make a sequence of a context and the tokens to score after it."""
    length = len(context_P) + len(tokens_T)
    mask_T = np.arange(length) >= len(context_P)
    return TrainingSequence(np.concatenate([context_P, tokens_T]), mask_T, 0.0, np.zeros(length, np.float32))


def lags_of(sequences: Sequence[TrainingSequence]) -> list[int]:
    """The different lags of the tokens in the loss, ascending; none if all are 0."""
    late = {int(lag) for s in sequences if s.lags_T is not None for lag in np.unique(s.lags_T[s.mask_T])}
    on_time = {0} if any(s.lags_T is None for s in sequences) else set()
    return sorted(late | on_time) if any(late) else []
