"""Where correct rollouts are cut, what is refused, and that a packed prefix comes back whole."""

import base64
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from controller_harness import group, problem_set, rollout
from hypothesis import given
from hypothesis import strategies as st

from halfway.controllers.prefixes.reuse import Start, cut_point, prefix_of, start_of, text_of
from halfway.curriculum import Origin, Prefix, Rollout, cut, restore_state, save_state
from halfway.curriculum.states import Packed

PROBLEM = problem_set(1)[0]


def with_entropies(entropies, unit="tokens", **options) -> Rollout:
    made = rollout(True, len(entropies), unit, **options)
    values = np.asarray(entropies, np.float32)
    if unit == "tokens":
        return replace(made, turns=(replace(made.turns[0], entropies_T=values),))
    return replace(made, turns=tuple(replace(t, entropies_T=values[i : i + 1]) for i, t in enumerate(made.turns)))


@given(st.lists(st.integers(0, 50), min_size=4, max_size=60))
def test_cut_is_the_first_highest_entropy_of_the_window(entropies):
    total = len(entropies)
    cut_at = cut_point(np.asarray(entropies, np.float32))
    window = [t for t in range(total) if total / 4 <= t < 3 * total / 4]
    assert cut_at == max(window, key=lambda t: (entropies[t], -t))


@pytest.mark.parametrize("total", [0, 1, 2, 3])
def test_short_rollouts_have_no_cut(total: int):
    assert cut_point(np.ones(total, np.float32)) is None


def test_peaks_outside_the_window_do_not_count():
    assert cut_point(np.asarray([9, 9, 1, 0, 2, 0, 9, 9], np.float32)) == 4


def test_values_leave_the_top_tenth_of_the_window():
    entropies, values = np.zeros(80, np.float32), np.zeros(80)
    entropies[30], entropies[40], entropies[59] = 5, 3, 4
    values[[39, 40, 41, 58]] = [3, 2, 1, 0.5]  # 40 positions in the window, so four remain
    assert cut_point(entropies, values, 0.1) == 40
    assert cut_point(entropies) == cut_point(entropies, values, 1.0) == 30
    assert cut_point(entropies[:8], np.arange(8), 0.1) == 5  # at least one position: the one with the highest value


@pytest.mark.parametrize("unit", ["tokens", "steps"])
def test_values_move_the_cut_of_a_start(unit: str):
    made = with_entropies([0, 0, 0, 5, 4, 0, 0, 0, 0, 0, 0, 0], unit)  # window 3..8
    values_T = np.asarray([9, 9, 9, 0, 1, 0, 0, 0, 0, 9, 9, 9], np.float32)
    if unit == "tokens":
        valued = replace(made, turns=(replace(made.turns[0], values_T=values_T),))
    else:
        valued = replace(made, turns=tuple(replace(t, values_T=values_T[[i]]) for i, t in enumerate(made.turns)))
    whole = group(PROBLEM, 8, rollouts=[valued], unit=unit)
    assert [start_of(valued, whole, 0, share).length for share in (None, 1.0, 0.1)] == [3, 3, 4]


def test_start_keeps_what_is_before_the_least_sure_token():
    sure = with_entropies([0, 0, 0, 1, 2, 0, 0, 9], first=100)
    start = start_of(sure, group(PROBLEM, 3, rollouts=[sure] * 8), leak_tokens=0)
    assert isinstance(start, Start)
    prefix = prefix_of(start)
    assert prefix.turns[0].tokens_T.tolist() == [100, 101, 102, 103]
    assert (prefix.length, prefix.unit, prefix.num_tokens, prefix.parent_success) == (4, "tokens", 4, True)
    assert (prefix.parent_passed, prefix.parent_size, prefix.policy_version) == (8, 8, 3)
    assert prefix.turns[0].num_replayed == 4


def test_steps_are_cut_between_turns():
    agent = with_entropies([0, 1, 0, 7, 3, 9], "steps", first=50)
    start = start_of(agent, group(PROBLEM, 8, rollouts=[agent], unit="steps"), leak_tokens=0)
    prefix = prefix_of(start)
    assert (prefix.length, prefix.unit) == (3, "steps")
    assert [turn.tokens_T.tolist() for turn in prefix.turns] == [[50], [51], [52]]
    assert [turn.observation for turn in prefix.turns] == ["o0", "o1", "o2"]


def test_packing_is_the_identity_on_what_matters():
    for unit in ("tokens", "steps"):
        made = rollout(True, 6, unit, first=7)
        made = replace(made, turns=tuple(replace(turn, state=f"hash{i}") for i, turn in enumerate(made.turns)))
        prefix = Prefix(cut(made, 3, unit), 3, unit, 2, 8, parent_success=True)
        again = prefix_of(Start(Packed(text_of(prefix)), 3, 2, 8, 5))
        assert again.policy_version == 5
        assert text_of(again) == text_of(prefix)
        assert [t.tokens_T.tolist() for t in again.turns] == [t.tokens_T.tolist() for t in prefix.turns]
        assert [t.state for t in again.turns] == ([""] if unit == "tokens" else ["hash0", "hash1", "hash2"])
        assert all(t.num_replayed == len(t.tokens_T) for t in again.turns)
    assert text_of(Prefix(cut(rollout(True, 6, first=8), 3, "tokens"), 3, "tokens", 2, 8, True)) != text_of(prefix)


def test_turns_without_a_state_are_packed_as_they_were_before_states_were():
    turns = cut(rollout(True, 6, "steps", first=7), 2, "steps")
    written = ("steps", [(np.int32(7 + i).tobytes(), f"o{i}", b"") for i in range(2)])
    assert text_of(Prefix(turns, 2, "steps", 2, 8, True)) == msgspec.msgpack.encode(written)


def test_grandchildren_are_cut_in_what_they_wrote_and_keep_what_they_replayed():
    parent = rollout(True, 12, first=0)
    prefix = Prefix(cut(parent, 4, "tokens"), 4, "tokens", 2, 8, True)
    entropies = [0] * 4 + [5, 0, 0, 2, 0, 0, 0, 9]  # the new part has 8 tokens: window 2..5
    later = with_entropies(entropies)
    later = replace(later, turns=(replace(later.turns[0], num_replayed=4),))
    start = start_of(later, group(PROBLEM, 1, origin=Origin.PREFIX, prefix=prefix, rollouts=[later]), leak_tokens=0)
    assert prefix_of(start).length == 7
    assert prefix_of(start).turns[0].num_replayed == 7


def test_a_prefix_that_contains_the_answer_is_refused():
    tokens = np.asarray([1, 2, 7, 8, 9, 3, 4, 5, 7, 8, 9, 0], np.int32)  # 0 ends the turn; 7 8 9 is said twice
    made = with_entropies([0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0])
    made = replace(made, turns=(replace(made.turns[0], tokens_T=tokens),))
    whole = group(PROBLEM, 8, rollouts=[made])
    assert start_of(made, whole, leak_tokens=3) == "leak"
    assert isinstance(start_of(made, whole, leak_tokens=4), Start)  # 5 7 8 9 is not in it
    assert isinstance(start_of(made, whole, leak_tokens=0), Start)


def test_short_and_truncated_parents_are_refused_with_a_reason():
    short, cut_off = rollout(True, 3), rollout(True, 8, truncated=True)
    assert start_of(short, group(PROBLEM, 8, rollouts=[short]), 0) == "too_short"
    assert start_of(cut_off, group(PROBLEM, 8, rollouts=[cut_off]), 0) == "truncated"


def test_starts_survive_a_checkpoint():
    made = rollout(True, 8)
    start = start_of(made, group(PROBLEM, 8, rollouts=[made]), 0)
    assert isinstance(start, Start)
    template = Start(Packed(b""), 0, 0, 0, 0)
    assert restore_state(template, save_state(start)) == start
    kept: list[Any] = []

    def put(array: Any) -> list[int | None]:
        kept.append(array)
        return [0, len(array)]

    plain = save_state(start, put)
    assert kept[0].tobytes() == start.text and len(str(plain)) < 200
    assert restore_state(template, plain, lambda dtype, at: kept[0]) == start
    before = {**plain, "text": base64.b64encode(start.text).decode()}
    assert restore_state(template, before) == start
