"""Turns correct rollouts into new starting points: where to cut, what to refuse, and how to store prefixes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from halfway.curriculum import Group, Prefix, Rollout, Turn, Unit, cut
from halfway.curriculum.rollouts import FloatArray, IntArray

LEAST_UNITS = 4  # with fewer, the window from a quarter to three quarters leaves no choice


@dataclass(frozen=True, slots=True)
class Start:
    """A prefix as it is stored: 80 bytes and its text, rather than the objects and arrays of `Prefix`.

    Attributes:
        text: the packed turns; equal texts are equal prefixes.
        length: units replayed.
        passed, size: k and N of the group it was cut from.
        policy_version: see `Prefix.policy_version`.
    """

    text: bytes
    length: int
    passed: int
    size: int
    policy_version: int


class _Piece(NamedTuple):
    tokens: bytes
    observation: str
    observation_tokens: bytes
    state: str = ""


class _Text(NamedTuple):
    unit: Unit
    turns: tuple[_Piece, ...]


def cut_point(entropies_T: FloatArray, values_T: FloatArray | None = None, top_share: float = 1.0) -> int | None:
    """t*, the position of the highest entropy with T/4 <= t < 3T/4 (PROS, section 3): units 0 .. t* - 1 are kept.

    So the first unit to be written anew is the one of which the policy was least certain. Among equals the first wins.

    Args:
        entropies_T: of the distribution that each of the T units was drawn from.
        values_T: a critic's values of the T positions.
        top_share: the share of the window's positions, those with the highest values, that is considered; at least one
            is. (The source's actor-critic runs take a tenth; it does not say whether the window or the tenth comes
            first.)

    Returns:
        None if T < 4.
    """
    total = len(entropies_T)
    if total < LEAST_UNITS:
        return None
    window = np.arange(math.ceil(total / 4), math.ceil(3 * total / 4))
    if values_T is not None:
        best = max(1, math.floor(top_share * len(window)))
        window = np.sort(window[np.argsort(-values_T[window], kind="stable")[:best]])
    return int(window[np.argmax(entropies_T[window])])


def start_of(rollout: Rollout, group: Group, leak_tokens: int, top_values: float | None = None) -> Start | str:
    """The start that a correct rollout yields, or the reason why it yields none.

    The cut point is sought in what the rollout itself wrote; whatever it replayed stays in front. In tasks of many
    turns a cut falls between turns, and a turn counts as uncertain as its least certain token.

    Args:
        leak_tokens: the prefix is refused ("leak") if it contains this many last tokens of the rollout, not counting
            the end token: then it already gives away what the rollout ends with, the answer. 0 = no check.
        top_values: the `top_share` of `cut_point`, by the values that a critic gave the rollout; None = without values.
    """
    if rollout.truncated:
        return "truncated"
    past = group.request.prefix.length if group.request.prefix else 0
    entropies_T = _unit_entropies(rollout, group.unit)[past:]
    if top_values is None:
        here = cut_point(entropies_T)
    else:
        here = cut_point(entropies_T, _unit_values(rollout, group.unit)[past:], top_values)
    if here is None:
        return "too_short"
    length = past + here
    turns = cut(rollout, length, group.unit)
    if leak_tokens and _leaks(rollout, turns, leak_tokens):
        return "leak"
    return Start(pack(turns, group.unit), length, group.num_passed, group.size, turns[-1].policy_version)


def pack(turns: Sequence[Turn], unit: Unit) -> bytes:
    """The replayed turns as bytes; equal turns give equal bytes."""
    pieces = [_Piece(_raw(t.tokens_T), t.observation, _raw(t.observation_tokens_O), t.state) for t in turns]
    # An empty state is left out, as it was in older checkpoints, so that their texts are still found.
    return msgspec.msgpack.encode((unit, [piece if piece.state else piece[:3] for piece in pieces]))


def prefix_of(start: Start) -> Prefix:
    """The prefix that a start stands for."""
    text = msgspec.msgpack.decode(start.text, type=_Text)
    return Prefix(
        turns=tuple(_turn(piece, start.policy_version) for piece in text.turns),
        length=start.length,
        unit=text.unit,
        parent_passed=start.passed,
        parent_size=start.size,
        parent_success=True,
    )


def text_of(prefix: Prefix) -> bytes:
    """The packed turns of a prefix, which identify it."""
    return pack(prefix.turns, prefix.unit)


def _raw(tokens: IntArray) -> bytes:
    return np.ascontiguousarray(tokens, np.int32).tobytes()


def _turn(piece: _Piece, policy_version: int) -> Turn:
    tokens_T = np.frombuffer(piece.tokens, np.int32).copy()  # torch warns about read-only arrays
    zeros_T = np.zeros(len(tokens_T), np.float32)
    return Turn(
        tokens_T=tokens_T,
        logprobs_T=zeros_T,
        entropies_T=zeros_T,
        policy_version=policy_version,
        num_replayed=len(tokens_T),
        observation=piece.observation,
        observation_tokens_O=np.frombuffer(piece.observation_tokens, np.int32).copy(),
        state=piece.state,
    )


def _unit_entropies(rollout: Rollout, unit: Unit) -> FloatArray:
    if unit == "tokens":
        return np.concatenate([turn.entropies_T for turn in rollout.turns])
    return np.asarray([turn.entropies_T.max(initial=0.0) for turn in rollout.turns], np.float32)


def _unit_values(rollout: Rollout, unit: Unit) -> FloatArray:
    """Values of the states before each token, or before each turn."""
    rows = [turn.values_T for turn in rollout.turns if turn.values_T is not None]
    assert len(rows) == len(rollout.turns), "a rollout without values, which `Pros.needs` asks for"
    return np.concatenate(rows) if unit == "tokens" else np.asarray([row_T[:1].sum() for row_T in rows], np.float32)


def _leaks(rollout: Rollout, turns: Sequence[Turn], leak_tokens: int) -> bool:
    last = rollout.turns[-1]
    said_T = last.tokens_T[:-1] if last.stop == "end" else last.tokens_T
    return any(_contains(turn.tokens_T, said_T[-leak_tokens:]) for turn in turns)


def _contains(tokens_T: IntArray, wanted_T: IntArray) -> bool:
    """True if `wanted_T` occurs in `tokens_T` as consecutive tokens."""
    if len(wanted_T) == 0 or len(wanted_T) > len(tokens_T):
        return False
    windows = np.lib.stride_tricks.sliding_window_view(tokens_T, len(wanted_T))
    return bool((windows == wanted_T).all(axis=1).any())
