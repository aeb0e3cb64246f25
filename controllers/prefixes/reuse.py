"""Turns correct rollouts into new starting points: cut points, refusals and stored prefixes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from halfway.curriculum import FloatArray, Group, IntArray, Prefix, Rollout, Turn, Unit
from halfway.curriculum.states import Packed

TOKEN_BYTES = np.dtype(np.int32).itemsize
LEAST_UNITS = 4  # with fewer, the window from one quarter to three quarters leaves no choice


@dataclass(frozen=True, slots=True)
class Start:
    """A stored prefix: 80 bytes and its text instead of the objects and arrays of `Prefix`.

    Attributes:
        text: the packed turns; equal texts are equal prefixes.
        length: units replayed.
        passed, size: k and N of its group.
        policy_version: see `Prefix.policy_version`.
    """

    text: Packed
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
    """Find t*, the index of the highest entropy with T/4 <= t < 3T/4 (PROS, section 3): units 0 .. t* - 1 are kept.

    So the first new unit is the one of which the policy was least certain. Among equals the first wins.

    Args:
        entropies_T: entropy of the distribution of each of the T units.
        values_T: a critic's values of the T units.
        top_share: share of the window's units to consider, those with the highest values; at least one. (The source's
            actor-critic runs take a tenth; it does not say whether the window or the tenth comes first.)

    Returns:
        None if T < 4.
    """
    total = len(entropies_T)
    if total < LEAST_UNITS:
        return None
    first, last = math.ceil(total / 4), math.ceil(3 * total / 4)
    if values_T is None:
        return first + int(entropies_T[first:last].argmax())
    best = max(1, math.floor(top_share * (last - first)))
    window = first + np.sort(np.argsort(-values_T[first:last], kind="stable")[:best])
    return int(window[np.argmax(entropies_T[window])])


def start_of(rollout: Rollout, group: Group, leak_tokens: int, top_values: float | None = None) -> Start | str:
    """Cut a start from a correct rollout, or return why there is none.

    The cut is in the rollout's own tokens; its replayed tokens stay in front. In tasks of several turns a cut falls
    between turns, and a turn is as uncertain as its least certain token.

    Args:
        leak_tokens: refuse the prefix ("leak") if it contains this many last tokens of the rollout, without the end
            token: it would give away the answer. 0 = no check.
        top_values: the `top_share` of `cut_point`, by a critic's values of the rollout; None = without values.
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
    if group.unit == "steps":
        turns = rollout.turns[:length]
        pieces = [_piece(turn) for turn in turns]
    else:
        turns = rollout.turns
        assert len(turns) == 1, f"a prefix in tokens needs a rollout of one turn, not {len(turns)}"
        pieces = [(_raw(turns[0].tokens_T[:length]), "", b"")]  # a cut turn has no observation yet
    if leak_tokens and _leaks(rollout, pieces, leak_tokens):
        return "leak"
    text = msgspec.msgpack.encode((group.unit, pieces))
    return Start(Packed(text), length, group.num_passed, group.size, turns[-1].policy_version)


def pack(turns: Sequence[Turn], unit: Unit) -> bytes:
    """Pack replayed turns into bytes; equal turns give equal bytes."""
    return msgspec.msgpack.encode((unit, [_piece(turn) for turn in turns]))


def _piece(turn: Turn) -> tuple[Any, ...]:
    piece = _raw(turn.tokens_T), turn.observation, _raw(turn.observation_tokens_O)
    # An empty state is left out, as in older checkpoints, so that their texts still match.
    return (*piece, turn.state) if turn.state else piece


def prefix_of(start: Start) -> Prefix:
    """Unpack the prefix of a start."""
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
    """Pack the turns of a prefix; the bytes identify it."""
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
    assert len(rows) == len(rollout.turns), "a rollout without values, which `Pros.needs` requires"
    return np.concatenate(rows) if unit == "tokens" else np.asarray([row_T[:1].sum() for row_T in rows], np.float32)


def _leaks(rollout: Rollout, pieces: Sequence[tuple[Any, ...]], leak_tokens: int) -> bool:
    last = rollout.turns[-1]
    said_T = last.tokens_T[:-1] if last.stop == "end" else last.tokens_T
    return any(_contains(tokens, _raw(said_T[-leak_tokens:])) for tokens, *_ in pieces)


def _contains(tokens: bytes, wanted: bytes) -> bool:
    """True if `wanted` occurs in `tokens` as consecutive tokens."""
    place = tokens.find(wanted) if wanted else -1
    while place % TOKEN_BYTES and place > 0:
        place = tokens.find(wanted, place + 1)
    return place >= 0
