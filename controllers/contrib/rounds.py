"""Rounds of rollouts until a group has signal; a balanced part of them trains: Reinforce-Ada and AR3PO."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from halfway.controllers.beliefs.counts import fresh_groups
from halfway.curriculum import Group, Origin, PassRateController, Plan, ProblemSet, Stream, Verdict, require


@dataclass(frozen=True, slots=True, eq=False)
class RoundsState:
    """Numbers of fresh groups and of the rollouts that they needed.

    Attributes:
        groups, rollouts: numbers of fresh groups so far, and of their rollouts.
        given_up: number of groups that still lacked signal after their last round.
    """

    problems: ProblemSet
    groups: int = 0
    rollouts: int = 0
    given_up: int = 0


@dataclass(frozen=True)
class Rounds(PassRateController[RoundsState]):
    """Requests further rollouts of a group until it has enough of each outcome, and trains on some of them.

    Reinforce-Ada (arXiv 2510.04996): at most 4 rounds of 8. "balanced" stops when successes and failures each reach
    half of `keep`; "positive" (its positive_focused) stops at one success. `keep` rollouts train, half of them
    successes if there are enough; the baseline is taken over all rollouts. Its reported gains use more rollouts than
    GRPO. It counts rewards above 0.7 as successes; here the verdict of the verifier decides.

    AR3PO's rounds (arXiv 2509.25808; no code is published): `stop: positive, keep: 0`. Its reuse of old correct
    responses is not implemented.

    Rollouts of one outcome are exchangeable, so the first of them train (see `Group.draw_order_N`). Rollouts that the
    learner or another member leaves out do not count towards `stop` or `keep`.

    Attributes:
        stop: condition that ends the rounds of a group, "balanced" or "positive".
        rounds: maximum number of rounds of a group; fill.max_rounds bounds them too.
        size: rollouts per round; 0 = N.
        keep: rollouts of a group that train; 0 = all.
    """

    stop: Literal["balanced", "positive"] = "balanced"
    rounds: int = 4
    size: int = 0
    keep: int = 4

    claims = frozenset({"rounds", "rollouts"})

    def __post_init__(self) -> None:
        require(self.rounds >= 2, "rounds.rounds", self.rounds, "give at least 2")
        require(self.size >= 0, "rounds.size", self.size, "give 0 (= rollouts.num_rollouts) or more")
        require(self.keep == 0 or self.keep >= 2, "rounds.keep", self.keep, "give 0 (= all) or at least 2")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"rounds", "rollouts", *(("weights",) if self.keep else ())})

    def init(self, problems: ProblemSet) -> RoundsState:
        return RoundsState(problems)

    def propose(self, plan: Plan, state: RoundsState, stream: Stream) -> tuple[Plan, RoundsState]:
        stored = [request.origin is Origin.STORED for request in plan.undecided]
        plan = plan.decide(
            [Verdict(True, "exempt" if it else "round 1", None if it else self._size(plan)) for it in stored]
        )
        extended = {request.extends for request in plan.requests}
        for group in plan.in_hand:
            rounds = sum(decision.member == plan.member for decision in group.request.decisions)
            waits = group.request.ticket in extended
            # Stored groups are exempt and never in hand, so each decision was a round.
            if 0 < rounds < self.rounds and not waits and not self._enough(group):
                plan = plan.extend(group, self._size(plan), f"round {rounds + 1}")
        return plan, state

    def _size(self, plan: Plan) -> int:
        return self.size or plan.num_rollouts

    def _enough(self, group: Group) -> bool:
        left = [rollout.success for rollout, fit in zip(group.rollouts, group.trainable_N, strict=True) if fit]
        passed, half = sum(left), max(1, self.keep // 2)
        return passed >= 1 if self.stop == "positive" else min(passed, len(left) - passed) >= half

    def weigh(self, groups: Sequence[Group], state: RoundsState, stream: Stream) -> Sequence[Group]:
        return [self._down_sample(group) if 0 < self.keep < group.trainable_N.sum() else group for group in groups]

    def _down_sample(self, group: Group) -> Group:
        order_N = group.draw_order_N
        left_R = order_N[group.trainable_N[order_N]]
        chosen = left_R[choose_balanced([group.rollouts[place].success for place in left_R], self.keep)]
        return group.with_weights(np.isin(np.arange(group.size), chosen).astype(np.float64))

    def observe(self, state: RoundsState, groups: Sequence[Group], step: int) -> RoundsState:
        fresh = fresh_groups(groups, state.problems)
        return replace(
            state,
            groups=state.groups + len(fresh),
            rollouts=state.rollouts + sum(group.size for group in fresh),
            given_up=state.given_up + sum(not self._enough(group) for group in fresh),
        )

    def metrics(self, state: RoundsState) -> Mapping[str, float]:
        """rollouts: mean number per fresh group so far; given_up: share of groups that still lacked signal."""
        number = max(1, state.groups)
        return {"rollouts": state.rollouts / number, "given_up": state.given_up / number}


@dataclass(frozen=True)
class ReinforceAda(Rounds):
    """`Rounds` as in Reinforce-Ada: up to four rounds of eight, until two pass and two fail; trains on four."""

    size: int = 8


@dataclass(frozen=True)
class Ar3po(Rounds):
    """`Rounds` as in AR3PO: samples until one rollout passes, and trains on all rollouts."""

    stop: Literal["balanced", "positive"] = "positive"
    keep: int = 0


@dataclass(frozen=True)
class NguRounds(Rounds):
    """`Rounds` as in NGU, but within one step: samples four at a time until one rollout passes, without a queue.

    NGU is arXiv 2609.13443. No random draw ends a group: it is given up after 8 `rounds`, 32 rollouts. All rollouts
    train. `ngu` spreads the tries over steps.
    """

    stop: Literal["balanced", "positive"] = "positive"
    rounds: int = 8
    size: int = 4
    keep: int = 0


def choose_balanced(successes_N: Sequence[bool], keep: int) -> list[int]:
    """Indices of the first rollouts of each outcome: half of `keep` from each if there are enough (Reinforce-Ada).

    If `keep` is odd, the extra rollout is a failure if there is one.
    """
    passed = [i for i, success in enumerate(successes_N) if success]
    failed = [i for i, success in enumerate(successes_N) if not success]
    num_passed = min(len(passed), max(keep // 2, keep - len(failed)))
    return sorted(passed[:num_passed] + failed[: keep - num_passed])
