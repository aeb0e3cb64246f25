"""A request with its outcome: the unit that controllers learn from and the learner trains on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from halfway.curriculum.plan import Request
from halfway.curriculum.rollouts import IntArray, Rollout, Unit


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A request with its scored rollouts. All of them start from the same state.

    Attributes:
        prompt_tokens_P: the prompt as the policy read it, without any prefix.
        policy_version: number of learner updates behind the weights that generated the group.
        unit: what a prefix of these rollouts is counted in.
        dropped: reason -> number of rollouts that were lost (for example a replay that diverged).
    """

    request: Request
    prompt_tokens_P: IntArray
    rollouts: tuple[Rollout, ...]
    policy_version: int
    unit: Unit = "tokens"
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """N: the number of scored rollouts."""
        return len(self.rollouts)

    @property
    def num_passed(self) -> int:
        """k: the number of successes."""
        return sum(rollout.success for rollout in self.rollouts)

    @property
    def pass_rate(self) -> float:
        """k / N. Raises ValueError for a group that lost all its rollouts: it says nothing, so look at `size` first."""
        if not self.rollouts:
            raise ValueError(f"the group of problem {self.request.problem.id!r} has no rollouts, so no pass rate")
        return self.num_passed / self.size

    @property
    def degenerate(self) -> bool:
        """True if all rollouts passed or none did, so that no advantage is defined. An empty group is degenerate."""
        return self.num_passed in (0, self.size)

    @property
    def num_generated(self) -> int:
        return sum(rollout.num_generated for rollout in self.rollouts)
