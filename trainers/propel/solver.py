"""The solver, and what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass

from halfway.curriculum.groups import Request
from halfway.curriculum.problems import Problem
from halfway.curriculum.rollouts import Origin
from halfway.curriculum.streams import Stream
from halfway.trainers.contracts import Rollouts
from halfway.trainers.propel.options import Band


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
        """How many of the attempts at each problem pass. A problem that is given twice is tried twice as often."""
        requests = [Request(problem, self.attempts, Origin.GENERATED) for problem in problems]
        groups = self.rollouts.run(requests, stream) if requests else []
        return [group.num_passed for group in groups]

    def useful(self, passed: int) -> bool:
        """Whether this many passes lie in the band."""
        return self.band.holds(passed, self.attempts)
