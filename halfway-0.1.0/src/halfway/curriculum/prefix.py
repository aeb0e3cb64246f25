"""Starting points of rollouts other than the prompt: inside an earlier rollout, or after a hint."""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from halfway.curriculum.problems import Problem
from halfway.curriculum.rollouts import Rollout, Turn, Unit
from halfway.curriculum.support.errors import UserError

Place = Literal["prompt", "response"]


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """The part of an earlier rollout from which new rollouts start.

    Attributes:
        turns: the replayed turns, every token of them marked as replayed. Whole turns with their recorded
            observations if `unit` is "steps"; one unfinished turn if it is "tokens".
        length: number of units replayed.
        unit: unit of `length`.
        parent_passed, parent_size: k and N of the group it was cut from.
        parent_success: true if the parent rollout passed (a head start), false if it failed (a handicap).
    """

    turns: tuple[Turn, ...]
    length: int
    unit: Unit
    parent_passed: int
    parent_size: int
    parent_success: bool

    @property
    def num_tokens(self) -> int:
        return sum(len(turn.tokens_T) for turn in self.turns)

    @property
    def policy_version(self) -> int:
        """Version of the weights that sampled the last replayed turn (see `Turn`); earlier turns may be older."""
        return self.turns[-1].policy_version


class ParentCount(NamedTuple):
    """k and N of a parent group, from whose rollouts children start."""

    passed: int
    size: int

    def metric(self, quantity: str) -> str:
        """Name of a metric for these parents, such as "ratio_2_of_8", for writers and readers alike."""
        return f"{quantity}_{self.passed}_of_{self.size}"


def mark_replayed(turn: Turn, num_tokens: int | None = None) -> Turn:
    """The first `num_tokens` tokens of a turn (all of them by default), marked as replayed.

    A whole turn keeps its observation; a cut turn loses it, since the environment has not seen the turn yet.
    """
    whole = num_tokens is None
    tokens_T = turn.tokens_T[:num_tokens]
    zeros_T = np.zeros(len(tokens_T), np.float32)
    unseen = {"observation": "", "observation_tokens_O": turn.observation_tokens_O[:0], "state": ""}
    gone: dict[str, Any] = {} if whole else unseen
    return replace(
        turn,
        tokens_T=tokens_T,
        logprobs_T=zeros_T,
        entropies_T=zeros_T,
        num_replayed=len(tokens_T),
        values_T=None,
        tool_seconds=0.0,
        spans=(),
        **gone,
    )


def cut(rollout: Rollout, length: int, unit: Unit) -> tuple[Turn, ...]:
    """The first `length` units of a rollout as replayed turns.

    Args:
        length: 1 <= length < rollout.length(unit), so that at least one unit is replayed and one generated.

    Raises:
        ValueError: if `length` is outside that range, or `unit` is "tokens" and the rollout has several turns.
    """
    total = rollout.length(unit)
    if not 1 <= length < total:
        raise ValueError(f"prefix length {length} is outside 1..{total - 1} {unit}")
    if unit == "steps":
        return tuple(mark_replayed(turn) for turn in rollout.turns[:length])
    if len(rollout.turns) != 1:
        raise ValueError(f"a prefix in tokens needs a rollout of one turn, not {len(rollout.turns)}")
    return (mark_replayed(rollout.turns[0], length),)


@dataclass(frozen=True, slots=True)
class Hint:
    """A beginning of a problem's reference solution, given to the policy.

    Attributes:
        text: the text of the hint.
        share: share of the whole reference, in characters; above 0, at most 1.
        place: "prompt" = appended to the prompt, after `opening`; "response" = the response begins with it. There its
            tokens are context, like those of a prefix: never in the loss, never in an importance ratio, never counted
            as generated.
        opening: the text between prompt and hint.
    """

    text: str
    share: float
    place: Place = "response"
    opening: str = "\n\nThe solution begins like this:\n"


def hint_of(problem: Problem, length: int, place: Place = "response") -> Hint:
    """The first `length` characters of a problem's reference solution.

    Raises:
        UserError: if the problem has no reference solution.
        ValueError: unless 1 <= length <= the solution's length.
    """
    solution = problem.solution
    if not solution:
        raise UserError(
            f"problems: {problem.id!r} has no reference solution to hint at; add the column 'solution' to the problem "
            "file, or leave such problems out"
        )
    if not 1 <= length <= len(solution):
        raise ValueError(f"hint length {length} is outside 1..{len(solution)} characters")
    return Hint(solution[:length], length / len(solution), place)
