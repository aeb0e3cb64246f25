"""Training sequences of a batch, and the weights of their losses."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from learner_harness import PAD, assert_close, gradients, make_group, make_turn, plain_logprobs
from messages import says
from msgspec import structs
from transformers import Qwen3ForCausalLM

from halfway.curriculum import Group, Origin, Prefix, Problem, Request, Rollout, Stream, Turn, UserError, cut, hint_of
from halfway.trainers.learner.batch import WEIGHED_OUT, TrainingSequence, make_batch, make_sequence
from halfway.trainers.learner.learner_options import CriticOptions, LearnerOptions
from halfway.trainers.learner.microbatches import count_minibatches, pad, scatter, split_microbatches, split_minibatches

OPTIONS = LearnerOptions()
PROMPT = np.asarray([3, 4], np.int32)


def turn(*tokens: int, replayed: int = 0, observation: tuple[int, ...] = ()) -> Turn:
    generated_T = np.arange(len(tokens)) >= replayed
    return Turn(
        tokens_T=np.asarray(tokens, np.int32),
        logprobs_T=np.where(generated_T, -np.asarray(tokens) / 10, 0).astype(np.float32),
        entropies_T=np.zeros(len(tokens), np.float32),
        policy_version=0,
        num_replayed=replayed,
        observation_tokens_O=np.asarray(observation, np.int32),
    )


def group(*rollouts: Rollout) -> Group:
    return Group(Request(Problem("p", "ab", "c"), len(rollouts)), PROMPT, rollouts)


def sequence(length: int, trained: int = 1) -> TrainingSequence:
    tokens_T = np.arange(length, dtype=np.int32)
    return TrainingSequence(tokens_T, tokens_T >= length - trained, 0.0, np.zeros(length, np.float32))


def test_a_single_turn_is_prompt_and_response() -> None:
    made = make_sequence(PROMPT, Rollout((turn(5, 6, 7),), True), 0.5)
    assert made.tokens_T.tolist() == [3, 4, 5, 6, 7]
    assert made.mask_T.tolist() == [False, False, True, True, True]
    np.testing.assert_allclose(made.engine_logprobs_T, [0, 0, -0.5, -0.6, -0.7])
    assert (made.advantage, made.length, made.num_trained) == (0.5, 5, 3)


def test_a_stored_group_holds_what_training_reads_and_no_more() -> None:
    values_T = np.ones(3, np.float32)
    rollouts = [replace(turn(5, 6, 7, observation=(9,)), entropies_T=values_T, values_T=values_T), turn(8, replayed=1)]
    written = replace(group(*(Rollout((turn,), i == 0) for i, turn in enumerate(rollouts))), lag=2)
    stored = written.bare()
    assert all(len(turn.entropies_T) == 0 and turn.values_T is None for r in stored.rollouts for turn in r.turns)
    [one], [other] = (make_batch([each], OPTIONS).sequences for each in (written, stored))
    for field in fields(TrainingSequence):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def test_only_what_the_policy_generated_in_this_rollout_is_in_the_mask() -> None:
    rollout = Rollout(
        (
            turn(5, 6, replayed=2, observation=(20, 21)),  # a replayed step of the environment
            turn(7, 8, 9, replayed=1, observation=(22,)),  # a response that begins with replayed tokens
            turn(10, 11),
        ),
        True,
    )
    made = make_sequence(PROMPT, rollout, 1.0)
    #                               prompt  replay  observed  mixed     observed  fresh
    assert made.tokens_T.tolist() == [3, 4, 5, 6, 20, 21, 7, 8, 9, 22, 10, 11]
    assert np.flatnonzero(made.mask_T).tolist() == [7, 8, 10, 11]
    assert made.num_trained == rollout.num_generated
    expected_T = [0, 0, 0, 0, 0, 0, 0, -0.8, -0.9, 0, -1.0, -1.1]
    np.testing.assert_allclose(made.engine_logprobs_T, expected_T, rtol=1e-6)


def test_a_prefix_gives_the_same_sequence_as_the_prefix_as_prompt() -> None:
    parent = Rollout((turn(5, 6, 7, 8),), True)
    (start,) = cut(parent, 2, "tokens")
    prefixed = make_sequence(PROMPT, Rollout((turn(*start.tokens_T, 12, 13, replayed=2),), True), 1.0)
    prompted = make_sequence(np.asarray([3, 4, 5, 6], np.int32), Rollout((turn(12, 13),), True), 1.0)
    for name in ("tokens_T", "mask_T", "engine_logprobs_T"):
        np.testing.assert_array_equal(getattr(prefixed, name), getattr(prompted, name))


def test_advantages_come_from_the_raw_successes_of_the_group() -> None:
    batch = make_batch([group(*(Rollout((turn(5, 6),), i < 2) for i in range(8)))], OPTIONS)
    assert [s.advantage for s in batch.sequences] == pytest.approx([6 / 7] * 2 + [-2 / 7] * 6)
    assert batch.left_out == {"truncated": 0, "ungrouped": 0, "not_generated": 0, "weighed_out": 0, "late": 0}


def test_truncated_rollouts_stay_in_the_baseline_and_leave_the_loss() -> None:
    rollouts = [Rollout((turn(5, i),), i == 0, truncated=i >= 2) for i in range(4)]
    batch = make_batch([group(*rollouts)], OPTIONS)
    assert [s.tokens_T[-1] for s in batch.sequences] == [0, 1]
    # Among all four: 1 - 0 and 0 - 1/3. Without the truncated two the second would be -1.
    assert [s.advantage for s in batch.sequences] == pytest.approx([1, -1 / 3])
    assert batch.left_out["truncated"] == 2
    unfiltered = make_batch([group(*rollouts)], replace(OPTIONS, compact_filtering=False))
    assert len(unfiltered.sequences) == 4 and unfiltered.left_out["truncated"] == 0


def test_a_truncated_success_counts_in_the_baseline() -> None:
    rollouts = [Rollout((turn(5, 6),), success=i < 2, truncated=i == 0) for i in range(4)]
    batch = make_batch([group(*rollouts)], OPTIONS)
    assert [s.advantage for s in batch.sequences] == pytest.approx([2 / 3, -2 / 3, -2 / 3])


def test_every_rollout_is_either_in_the_batch_or_counted() -> None:
    replayed_only = Rollout((turn(5, 6, replayed=2),), True)
    fresh = Rollout((turn(5, 6),), False)
    batch = make_batch([group(), group(fresh), group(replayed_only, fresh, replace(fresh, truncated=True))], OPTIONS)
    assert len(batch.sequences) == 1
    assert batch.left_out == {"truncated": 1, "ungrouped": 1, "not_generated": 1, "weighed_out": 0, "late": 0}


def test_prefix_groups_take_their_own_successes() -> None:
    (start,) = cut(Rollout((turn(5, 6, 7),), False), 1, "tokens")
    prefix = Prefix((start,), 1, "tokens", 7, 8, False)
    request = Request(Problem("p", "ab", "c"), 2, Origin.PREFIX, prefix)
    rollouts = tuple(Rollout((turn(5, 9, replayed=1),), success) for success in (True, False))
    batch = make_batch([Group(request, PROMPT, rollouts)], OPTIONS)
    assert [s.advantage for s in batch.sequences] == [1, -1]
    assert [np.flatnonzero(s.mask_T).tolist() for s in batch.sequences] == [[3], [3]]


def test_old_logprobs_are_the_engines_only_on_request() -> None:
    groups = [group(Rollout((turn(5),), True), Rollout((turn(6),), False))]
    assert [s.old_logprobs_T for s in make_batch(groups, OPTIONS).sequences] == [None, None]
    for made in make_batch(groups, replace(OPTIONS, old_logprobs="engine")).sequences:
        assert made.old_logprobs_T is made.engine_logprobs_T


@given(st.integers(0, 30), st.integers(1, 9), st.integers(0, 3))
def test_minibatches_are_a_fair_and_repeatable_partition(num: int, num_minibatches: int, seed: int) -> None:
    sequences = [sequence(i + 2) for i in range(num)]
    options = replace(OPTIONS, num_minibatches=num_minibatches)
    parts = split_minibatches(sequences, options, Stream(seed))
    again = split_minibatches(sequences, options, Stream(seed))
    assert [[id(s) for s in part] for part in parts] == [[id(s) for s in part] for part in again]
    assert sorted(s.length for part in parts for s in part) == [s.length for s in sequences]
    assert len(parts) == count_minibatches(sequences, options) == min(num, num_minibatches)
    sizes = [len(part) for part in parts]
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_minibatches_are_shuffled_by_the_stream() -> None:
    sequences = [sequence(i + 2) for i in range(40)]
    halves = replace(OPTIONS, num_minibatches=2)
    orders = [
        [s.length for part in split_minibatches(sequences, halves, Stream(seed)) for s in part] for seed in (0, 1)
    ]
    assert orders[0] != orders[1] and orders[0] != sorted(orders[0])


def in_groups(sizes: Sequence[int]) -> list[TrainingSequence]:
    """Sequences of groups with so many left each, and every length once."""
    owners = [group for group, size in enumerate(sizes) for _ in range(size)]
    return [replace(sequence(i + 2), group=group) for i, group in enumerate(owners)]


@pytest.mark.parametrize(
    ("groups", "size", "steps"),
    [(0, 4, 0), (1, 4, 1), (5, 4, 1), (6, 4, 2), (8, 4, 2), (9, 4, 2), (10, 4, 3), (256, 64, 4), (7, 1, 7), (3, 64, 1)],
)
def test_the_number_of_steps_follows_from_the_groups(groups: int, size: int, steps: int) -> None:
    options = replace(OPTIONS, minibatch_groups=size)
    sequences = in_groups([2] * groups)
    assert count_minibatches(sequences, options) == len(split_minibatches(sequences, options, Stream(0))) == steps


def test_whole_groups_are_dealt_in_the_order_of_the_shuffle() -> None:
    """Groups 0 to 4 have 1, 3, 0, 2, 2 sequences left: four groups make two mini-batches of two."""
    sequences = in_groups([1, 3, 0, 2, 2])
    order = [[0, 1, 3, 4][i] for i in Stream(7).generator().permutation(4)]
    first, second = split_minibatches(sequences, replace(OPTIONS, minibatch_groups=2), Stream(7))
    assert list(dict.fromkeys(s.group for s in first)) == order[:2]
    assert list(dict.fromkeys(s.group for s in second)) == order[2:]
    lengths = {0: [2], 1: [3, 4, 5], 3: [6, 7], 4: [8, 9]}
    assert [s.length for s in first + second] == [length for group in order for length in lengths[group]]


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(1, 9), st.integers(0, 3))
def test_minibatches_of_groups_miss_nothing_and_split_no_group(sizes: list[int], size: int, seed: int) -> None:
    sequences = in_groups(sizes)
    parts = split_minibatches(sequences, replace(OPTIONS, minibatch_groups=size), Stream(seed))
    assert sorted(s.length for part in parts for s in part) == [s.length for s in sequences]
    held = [{s.group for s in part} for part in parts]
    assert sum(map(len, held)) == sum(count > 0 for count in sizes)
    assert not held or max(map(len, held)) - min(map(len, held)) <= 1


def test_sequences_know_their_group() -> None:
    pair = (Rollout((turn(5),), True), Rollout((turn(6),), False))
    alone = (Rollout((turn(7),), True),)
    assert [s.group for s in make_batch([group(*pair), group(*alone), group(*pair)], OPTIONS).sequences] == [0, 0, 2, 2]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"minibatch_groups": -1}, r"^learner\.minibatch_groups: .*-1"),
        ({"minibatch_groups": 8, "num_minibatches": 4}, r"^learner\.num_minibatches: (?=.*4).*minibatch_groups=8"),
    ],
)
def test_only_one_says_how_many_minibatches_there_are(changes: dict[str, int], error: str) -> None:
    with pytest.raises(UserError, match=error):
        replace(OPTIONS, **changes)


@given(st.lists(st.integers(2, 40), max_size=30), st.integers(1, 100))
def test_microbatches_respect_the_budget_and_miss_nothing(lengths: list[int], budget: int) -> None:
    parts = split_microbatches([sequence(length) for length in lengths], budget)
    assert sorted(i for part in parts for i in part) == list(range(len(lengths)))
    for part in parts:
        assert len(part) * max(lengths[i] for i in part) <= budget or len(part) == 1
    in_order = [lengths[i] for part in parts for i in part]
    assert in_order == sorted(lengths, reverse=True)


def test_microbatches_by_hand() -> None:
    parts = split_microbatches([sequence(length) for length in (4, 9, 4, 5, 2)], max_tokens=10)
    # 9 alone, 2 x 5 = 10 fits, 2 x 4 = 8 fits.
    assert parts == [[1], [3, 0], [2, 4]]


def test_padding_is_on_the_right() -> None:
    padded = pad([sequence(2), replace(sequence(4, trained=2), advantage=0.5)], pad_token_id=9)
    assert padded.tokens_BT.tolist() == [[0, 1, 9, 9], [0, 1, 2, 3]]
    assert padded.mask_BT.tolist() == [[False, True, False, False], [False, False, True, True]]
    assert padded.advantages_BT.tolist() == [[0.0], [0.5]]
    assert padded.engine_logprobs_BT.shape == (2, 4)
    assert padded.old_logprobs_BT is None and padded.reference_logprobs_BT is None


def lengths_of(sequences: list[TrainingSequence], parts: list[tuple[list[int], float]]) -> list[list[int]]:
    return [[sequences[i].length for i in positions] for positions, _ in parts]


def test_microbatches_hold_sequences_of_like_length() -> None:
    sequences = [sequence(length) for length in (100, 80, 75, 74, 60, 50, 20)]
    parts = split_microbatches(sequences, max_tokens=800, max_padding=0.25)
    assert [[sequences[i].length for i in part] for part in parts] == [[100, 80, 75], [74, 60], [50, 20]]
    assert split_microbatches(sequences, max_tokens=800) == [list(range(7))]


@given(st.lists(st.integers(4, 108), min_size=150, max_size=250))
def test_a_quarter_of_padding_is_the_most_but_for_the_last_few(lengths: list[int]) -> None:
    parts = split_microbatches([sequence(length) for length in lengths], 4000, 0.25)
    padded = sum(len(part) * max(lengths[i] for i in part) for part in parts)
    # An eighth of the budget may be filled with whatever there is, once for every halving of the length at most.
    assert 0.75 * padded <= sum(lengths) + 5 * 500


def test_scatter_balances_tokens_and_evens_out_micro_batches() -> None:
    sequences = [sequence(length) for length in (9, 2, 5, 4, 3, 7)]
    first, second = scatter(sequences, max_tokens=10, num_processes=2)
    # 9 | 7, then 5 to the second (7 < 9), 4 to the first, 3 to the second (12 < 13), 2 to the first.
    assert lengths_of(sequences, first) == [[9], [4, 2]]
    assert lengths_of(sequences, second) == [[7], [5, 3]]
    assert [weight for _, weight in first + second] == [1.0] * 4


def test_scatter_gives_processes_without_work_the_shortest_sequence_at_weight_zero() -> None:
    sequences = [sequence(8), sequence(2)]
    assert scatter(sequences, 100, 3) == [[([0], 1.0)], [([1], 1.0)], [([1], 0.0)]]


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=20),
    num_processes=st.integers(1, 5),
    max_tokens=st.integers(1, 60),
)
def test_scatter_trains_every_sequence_once(lengths: list[int], num_processes: int, max_tokens: int) -> None:
    sequences = [sequence(length) for length in lengths]
    dealt = scatter(sequences, max_tokens, num_processes)
    assert len(dealt) == num_processes and len({len(parts) for parts in dealt}) == 1
    trained = [i for parts in dealt for positions, weight in parts if weight == 1 for i in positions]
    assert sorted(trained) == list(range(len(lengths)))
    loads = [sum(lengths[i] for positions, weight in parts if weight == 1 for i in positions) for parts in dealt]
    assert max(loads) - min(loads) <= max(lengths)


PLAIN = LearnerOptions(lr=1e-3)
START = [3, 4, 5]
RESPONSES = [[7, 8, 9], [10, 11], [12, 13, 14, 15], [16]]


def group_of(successes: Sequence[bool], replayed: int = 0) -> Group:
    made = [Rollout((make_turn(tokens, replayed),), ok) for tokens, ok in zip(RESPONSES, successes, strict=False)]
    return make_group(START, made)


def expected(
    model: Qwen3ForCausalLM, terms: Sequence[tuple[Sequence[int], Sequence[float], Sequence[float]]], tokens: int
) -> dict[str, torch.Tensor]:
    """The gradient of -sum over tokens of coefficient x log-probability / number of tokens.

    Args:
        terms: response tokens, coefficient of each, and which of them count (1 or 0).
    """
    model.zero_grad()
    for response, factors, counts in terms:
        logprobs_T = plain_logprobs(model, START + list(response))[len(START) :]
        loss = -(logprobs_T * torch.as_tensor(factors) * torch.as_tensor(counts)).sum() / tokens
        loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_weights_scale_advantages_and_zero_takes_a_rollout_out_of_the_loss(tiny_model: Qwen3ForCausalLM) -> None:
    group = group_of([True, False, False, False]).with_weights([1.0, 0.5, 0.0, 2.0])
    batch = make_batch([group], PLAIN)
    assert batch.left_out[WEIGHED_OUT] == 1
    # The baseline is of all four: one success of four has 1, a failure -1/3 (leave one out).
    assert pad(batch.sequences, PAD).advantages_BT[:, 0].tolist() == pytest.approx([1.0, -1 / 6, -2 / 3])
    seen, _ = gradients(tiny_model, [group], PLAIN)
    terms = [([7, 8, 9], [1.0] * 3, [1] * 3), ([10, 11], [-1 / 6] * 2, [1] * 2), ([16], [-2 / 3], [1])]
    assert_close(seen, expected(tiny_model, terms, tokens=6), 1e-4)


def test_all_ones_train_as_no_weights_do(tiny_model: Qwen3ForCausalLM) -> None:
    plain = group_of([True, False, True, False])
    left, _ = gradients(tiny_model, [plain], PLAIN)
    right, _ = gradients(tiny_model, [plain.with_weights([1.0] * 4)], PLAIN)
    assert_close(left, right, 1e-7)


def test_a_zero_variance_group_trains_with_the_advantages_given_token_by_token(tiny_model: Qwen3ForCausalLM) -> None:
    failed = group_of([False, False])
    assert not failed.teaches
    given = (np.asarray([-0.1, -0.2, -0.3]), np.asarray([0.4, 0.0]))
    advised = failed.with_advantages(advantages_NT=given)
    assert advised.teaches and not advised.with_weights([0.0, 0.0]).teaches
    mixed = group_of([True, False])
    seen, _ = gradients(tiny_model, [advised, mixed], PLAIN)
    terms = [(RESPONSES[i], given[i], [1] * len(RESPONSES[i])) for i in range(2)]
    terms += [([7, 8, 9], [1.0] * 3, [1] * 3), ([10, 11], [-1.0] * 2, [1] * 2)]
    assert_close(seen, expected(tiny_model, terms, tokens=10), 1e-4)


def test_advantages_of_rollouts_replace_the_learner_s(tiny_model: Qwen3ForCausalLM) -> None:
    seen, _ = gradients(tiny_model, [group_of([True, True]).with_advantages(np.asarray([0.25, -0.5]))], PLAIN)
    terms = [([7, 8, 9], [0.25] * 3, [1] * 3), ([10, 11], [-0.5] * 2, [1] * 2)]
    assert_close(seen, expected(tiny_model, terms, tokens=5), 1e-4)


def test_advantages_and_a_critic_are_refused_together() -> None:
    options = replace(PLAIN, advantage="gae", critic=CriticOptions())
    with pytest.raises(UserError, match=says("learner.advantage", "'gae'", "controller")):
        make_batch([group_of([True, True]).with_advantages(np.zeros(2))], options)


@pytest.mark.parametrize(("minibatches", "older"), [(1, "stored"), (2, "stored"), (1, "carried")])
def test_a_group_of_an_older_policy_keeps_that_policy_as_its_denominator(
    tiny_model: Qwen3ForCausalLM, minibatches: int, older: str
) -> None:
    options = replace(PLAIN, num_minibatches=minibatches, lr=1e-30)
    fresh = group_of([True, False])
    with torch.no_grad():
        now = [plain_logprobs(tiny_model, START + tokens)[3:].numpy() for tokens in RESPONSES[2:]]
    # The policy that wrote them thought each token less likely by a tenth: all ratios are 1.1, inside the clip range.
    old = [values - np.float32(np.log(1.1)) for values in now]
    rollouts = tuple(
        Rollout((Turn(np.asarray(t, np.int32), lp, -lp, policy_version=0),), ok)
        for t, lp, ok in zip(RESPONSES[2:], old, (True, False), strict=True)
    )
    written = replace(make_group(START, list(rollouts)))
    stored = replace(written, request=Request(Problem("p", "", ""), 2, Origin.STORED, stored=written))
    seen, metrics = gradients(tiny_model, [fresh, stored if older == "stored" else replace(written, lag=1)], options)
    tokens = 10
    assert metrics["ratio"] == pytest.approx((5 * 1.0 + 5 * 1.1) / tokens, rel=1e-5)
    if minibatches == 1:
        terms = [([7, 8, 9], [1.0] * 3, [1] * 3), ([10, 11], [-1.0] * 2, [1] * 2)]
        terms += [(RESPONSES[2], [1.1] * 4, [1] * 4), (RESPONSES[3], [-1.1], [1])]
        assert_close(seen, expected(tiny_model, terms, tokens), 1e-4)


def test_a_group_written_by_two_policies_trains_like_any_other(tiny_model: Qwen3ForCausalLM) -> None:
    first, more = group_of([True, False]), group_of([True, False, False, False])
    whole = replace(more, rollouts=first.rollouts + more.rollouts[2:])
    seen, _ = gradients(tiny_model, [whole], PLAIN)
    terms = [(RESPONSES[i], [(1.0, -1 / 3)[i > 0]] * len(RESPONSES[i]), [1] * len(RESPONSES[i])) for i in range(4)]
    assert_close(seen, expected(tiny_model, terms, tokens=10), 1e-4)


def test_no_gradient_reaches_a_hint(tiny_model: Qwen3ForCausalLM) -> None:
    """The first token of each response is the hint's: context of the loss, and no part of it."""
    hint = hint_of(Problem("p", "", "", solution="ab"), 1)
    plain = group_of([True, False, False], replayed=1)
    group = replace(plain, request=structs.replace(plain.request, hint=hint, origin=Origin.HINTED))
    batch = make_batch([group], PLAIN)
    assert [sequence.mask_T.tolist().index(True) for sequence in batch.sequences] == [4, 4, 4]
    assert [sequence.num_trained for sequence in batch.sequences] == [2, 1, 3]
    seen, metrics = gradients(tiny_model, [group], PLAIN)
    assert metrics["tokens"] == 6
    terms = [
        (RESPONSES[i], [(1.0, -0.5)[i > 0]] * len(RESPONSES[i]), [0] + [1] * (len(RESPONSES[i]) - 1)) for i in range(3)
    ]
    assert_close(seen, expected(tiny_model, terms, tokens=6), 1e-4)


def test_a_start_that_the_policy_did_not_write_is_refused_in_the_loss() -> None:
    """A turn that does not count its prefix or hint as replayed would be trained on it."""
    prefix = Prefix(cut(Rollout((make_turn([7, 8, 9, 10]),), True), 3, "tokens"), 3, "tokens", 1, 2, True)
    hint = hint_of(Problem("p", "", "", solution="7 8"), 3)
    starts: list[tuple[dict[str, Any], str]] = [({"prefix": prefix}, "prefix"), ({"hint": hint}, "hint")]
    for start, what in starts:
        request = structs.replace(make_group([4, 5, 6], []).request, **start)
        for replayed, refused in ((3, False), (0, True)):
            turn = replace(make_turn([7, 8, 9, 10]), num_replayed=replayed)
            rollouts = [Rollout((turn,), success) for success in (True, False)]
            group = replace(make_group([4, 5, 6], rollouts), request=request)
            if refused:
                with pytest.raises(UserError, match=says("learner", what, "loss")):
                    make_batch([group], LearnerOptions())
            else:
                assert len(make_batch([group], LearnerOptions()).sequences) == 2
