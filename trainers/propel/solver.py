"""The solver, and what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass

from halfway.curriculum.groups import Request
from halfway.curriculum.problems import Problem
from halfway.curriculum.rollouts import Origin
from halfway.curriculum.streams import Stream
from halfway.trainers.contracts import Rollouts
from halfway.trainers.propel.options import Band

LEAST_ENDED = 2
"""Number of attempts that have to end for a label if some are lost (PROPEL, section 4.2, on bugs)."""


@dataclass(frozen=True)
class Solver:
    """A fixed policy that tries generated problems, through the same rollouts as in training.

    Attributes:
        attempts: K, trials per problem.
        band: the pass rates that are wanted.
    """

    rollouts: Rollouts
    attempts: int
    band: Band

    def passes(self, problems: Sequence[Problem], stream: Stream) -> list[int]:
        """How many of the attempts at each problem pass. A problem that is given twice is tried twice as often.

        An attempt that was lost, since its tests never ran, is neither a pass nor a failure. The remaining attempts
        count as if all had ended: none passed, all passed, or a number in the band if they differ. With fewer than two
        of them nothing is known, and the result is -1.
        """
        requests = [Request(problem, self.attempts, Origin.GENERATED) for problem in problems]
        groups = self.rollouts.run(requests, stream) if requests else []
        return [self.count(group.num_passed, group.size) for group in groups]

    def count(self, passed: int, ended: int) -> int:
        """The number of passes that stands for `passed` of `ended` attempts; -1 = too few ended."""
        if ended == self.attempts:
            return passed
        if ended < LEAST_ENDED:
            return -1
        if passed in (0, ended):
            return self.attempts if passed else 0
        fewest, most = self.band.counts(self.attempts)
        return min(max(round(passed / ended * self.attempts), fewest), most)

    def useful(self, passed: int) -> bool:
        """Whether this many passes lie in the band."""
        return self.band.holds(passed, self.attempts)
