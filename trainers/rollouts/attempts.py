"""Rollouts in progress: their tokens so far, and their start."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import structs

from halfway.curriculum import (
    NO_TOKENS,
    Decision,
    Group,
    IntArray,
    Origin,
    Prefix,
    Problem,
    Request,
    Rollout,
    Stream,
    Turn,
    Unit,
    UserError,
)
from halfway.curriculum.environments.replay import Divergence
from halfway.curriculum.groups import ReplayCost
from halfway.curriculum.rollouts import LATE
from halfway.curriculum.support.extras import clean
from halfway.trainers.engines.contract import Completion

LOST, LONGEST_REASON = "lost", 60


def short_reason(message: str) -> str:
    """Cut a message before its details, to count together the rollouts lost for one reason."""
    return clean(message.partition(" (")[0].partition(":")[0]).strip()[:LONGEST_REASON] or LOST


@dataclass(slots=True, eq=False)
class Attempt:
    """A rollout in progress.

    Attributes:
        stream: its own stream; turn t samples with the seed of `stream.at(t)`.
        context_P: all tokens that the policy reads before its next response.
        turns: the turns that the environment has answered and, once the rollout has ended, the last one.
        start_T: tokens of an earlier rollout that start the next response.
        success: None while the episode continues.
        lost: why the rollout is lost; empty if it is not.
        late: whether its time ran out before it ended.
    """

    stream: Stream
    problem: Problem
    episode: Any
    context_P: IntArray
    prefix: Prefix | None
    turns: list[Turn] = field(default_factory=list)
    start_T: IntArray = field(default_factory=lambda: NO_TOKENS)
    success: bool | None = None
    truncated: bool = False
    lost: str = ""
    late: bool = False

    @property
    def live(self) -> bool:
        return self.success is None and not self.lost

    @property
    def num_tokens(self) -> int:
        """Response tokens so far, replayed tokens included."""
        return sum(len(turn.tokens_T) for turn in self.turns) + len(self.start_T)

    def resume(self, episode: Any) -> None:
        """Continue from the end of the prefix, in an episode that has replayed it."""
        assert self.prefix is not None
        self.episode = episode
        for turn in self.prefix.turns:
            self.read(turn)

    def read(self, turn: Turn) -> None:
        """Append a turn after which the episode continues."""
        self.turns.append(turn)
        self.context_P = np.concatenate([self.context_P, turn.tokens_T, turn.observation_tokens_O])
        self.start_T = NO_TOKENS

    def end(self, turn: Turn, success: bool, truncated: bool) -> None:
        """Append the last turn."""
        self.turns.append(turn)
        self.success, self.truncated = success, truncated

    def cut(self, turn: Turn | None = None) -> None:
        """End an attempt whose time has run out. Its last turn stays unanswered; an attempt without turns is lost."""
        self.turns += [] if turn is None else [turn]
        self.lost = "" if self.turns else LATE
        self.success, self.truncated, self.late = False, True, True


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """The rollouts in progress of one request.

    Attributes:
        stream: its own stream; attempt n draws from `stream.at(n)`.
        replay_cost: None if the environment replayed nothing.
    """

    request: Request
    prompt_tokens_P: IntArray
    attempts: Sequence[Attempt]
    stream: Stream
    replay_cost: ReplayCost | None = None

    def group(self, unit: Unit) -> Group:
        """Make the group of the finished attempts. Lost attempts are counted."""
        return Group(
            request=self.request,
            prompt_tokens_P=self.prompt_tokens_P,
            rollouts=tuple(
                Rollout(tuple(a.turns), bool(a.success), a.truncated, late=a.late) for a in self.attempts if not a.lost
            ),
            unit=unit,
            dropped=dict(Counter(a.lost for a in self.attempts if a.lost)),
            replay_cost=self.replay_cost,
        )


@dataclass(slots=True, eq=False)
class Replays:
    """Counts a run's replays, and the replays that differed from the record.

    Attributes:
        limit: largest share of replays that may diverge.
        least: number of replays from which the share is checked.
    """

    limit: float
    replayed: int = 0
    diverged: int = 0
    least: int = 20

    def count(self, divergence: Divergence | None) -> None:
        """Count a replay; None = it did not diverge. Raises UserError if too many have diverged."""
        self.replayed += 1
        if divergence is None:
            return
        self.diverged += 1
        if self.replayed >= self.least and self.diverged > self.limit * self.replayed:
            response = " ".join(divergence.response.split())[:200]
            raise UserError(
                f"rollouts.max_diverged: {self.limit!r} is exceeded: {self.diverged} of {self.replayed} replays "
                f"differed from the record, the last one at step {divergence.step}, {response!r}: "
                f"{divergence.why}; make the tools deterministic, or allow a larger share"
            )


def response_of(start_T: IntArray, completion: Completion) -> Turn:
    """Make a turn of a replayed start and the engine's completion."""
    zeros_T = np.zeros(len(start_T), np.float32)
    return Turn(
        tokens_T=np.concatenate([start_T, completion.tokens_T]),
        logprobs_T=np.concatenate([zeros_T, completion.logprobs_T]),
        entropies_T=np.concatenate([zeros_T, completion.entropies_T]),
        policy_version=completion.policy_version,
        spans=completion.spans,
        stop=completion.stop,
        num_replayed=len(start_T),
    )


def begun_anew(request: Request, divergence: Divergence) -> Request:
    """Make a fresh request, since the replay differed from the record."""
    decision = Decision("replay", f"diverged at step {divergence.step}: {divergence.why}"[:200])
    return structs.replace(request, origin=Origin.FRESH, prefix=None, decisions=(*request.decisions, decision))
