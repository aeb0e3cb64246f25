"""Hints: cut points of reference solutions, laws of hint lengths, and retries with a hint in the same step."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from halfway.controllers.beliefs.forest import Floats
from halfway.controllers.beliefs.item_response import Trial
from halfway.curriculum import Group, Hint, Origin, Plan, Problem, hint_of
from halfway.curriculum.prefix import Place

PARTS = 16
"""Without a separator or width, hints grow by 1 / PARTS of the solution."""


@lru_cache(maxsize=65536)
def cut_points(solution: str, separator: str = "", width: int = 0) -> tuple[int, ...]:
    """Find the lengths in characters at which a hint may end, shortest first; a part of the solution is always left.

    Args:
        separator: text after which a hint may end; empty = hints end by `width`.
        width: without a separator, a hint's length is a multiple of this many characters; 0 = a sixteenth of the
            solution, rounded up.
    """
    if separator:
        ends, at = [], solution.find(separator)
        while at >= 0:
            ends.append(at + len(separator))
            at = solution.find(separator, at + len(separator))
        return tuple(end for end in ends if solution[end:].strip())
    step = width or -(-len(solution) // PARTS)
    return tuple(range(step, len(solution), step)) if solution else ()


@dataclass(frozen=True)
class Cuts:
    """Options for cutting hints from solutions.

    Attributes:
        place: where the hint goes, see `halfway.curriculum.prefix.Hint`.
        separator, width: see `cut_points`.
        shortest: minimum number of characters of a hint.
    """

    place: Place
    separator: str
    width: int
    shortest: int

    def points(self, problem: Problem) -> tuple[int, ...]:
        """Find the lengths in characters at which a hint of this problem may end."""
        return cut_points(problem.solution, self.separator, self.width)

    def shares(self, problem: Problem) -> list[float]:
        """Shares of the whole solution in hints of 0, 1, 2 ... units."""
        return [0.0, *(point / len(problem.solution) for point in self.points(problem))]

    def units(self, problem: Problem, share: float) -> int:
        """Units of the longest hint that contains at most this share of the solution."""
        return sum(point <= share * len(problem.solution) + 1e-9 for point in self.points(problem))

    def next_length(self, group: Group, low: float, high: float) -> int:
        """Length of a problem's next hint, in units, after one of its groups; see `step_length`."""
        points, hint = self.points(group.request.problem), group.request.hint
        length = sum(point <= len(hint.text) for point in points) if hint else 0
        return step_length(length, len(points), group.pass_rate, low, high)

    def hint(self, problem: Problem, units: int) -> Hint | None:
        """Cut the hint of this many units; None if there is none."""
        characters = self.points(problem)[units - 1] if units else 0
        return hint_of(problem, characters, self.place) if characters >= self.shortest else None


def step_length(length: int, longest: int, pass_rate: float, low: float, high: float) -> int:
    """Length of a problem's next hint, in units, after rollouts with one of `length` (0 = without a hint).

    A reverse curriculum, from the end of the solution to its beginning. At a pass rate of `low` or less the hint grows
    by one unit, or by half of the rest if no rollout passed; at `high` or more it shrinks by one unit, or to half if
    all passed.

    Args:
        longest: units of the longest hint.
    """
    if pass_rate <= low:
        return min(longest, length + (max(1, (longest + 1 - length) // 2) if pass_rate == 0 else 1))
    if pass_rate >= high and length > 0:
        return length // 2 if pass_rate == 1 else length - 1
    return length


def units_left(
    left_C: Floats, trials: Sequence[tuple[int, float]], target: float, gain: float, most: float, least: float = 1.0
) -> Floats:
    """Update by some groups the part of a solution that each category leaves to the policy, in units or as a share.

    Integral control, group by group: left <- left + gain (pass rate - target), clipped to `least` and `most`.

    Args:
        trials: category and pass rate of each group with its category's part left, in the order of drawing.
        most: the value at which no problem has a hint, such as the units of the longest solution.
    """
    after_C = left_C.copy()
    for category, pass_rate in trials:
        after_C[category] = min(max(after_C[category] + gain * (pass_rate - target), least), most)
    return after_C


def trial_of(group: Group) -> Trial:
    """Turn a group into evidence on the help that its problem needs."""
    hint = group.request.hint
    return Trial(hint.share if hint else 0.0, float(group.num_passed), float(group.size))


def zero_variance_tries(group: Group, plan: Plan, most: int) -> list[Group]:
    """The problem's fresh and hinted groups in hand that the plan's member has decided on, if `group` is the latest and
    the problem should be tried again; otherwise none.

    It should if `group` has zero variance, the plan has no other request for the problem, and there are fewer than
    `most` groups.
    """
    problem = group.request.problem
    own = [g for g in plan.in_hand if g.request.origin in (Origin.FRESH, Origin.HINTED)]
    tried = [g for g in own if g.request.problem.id == problem.id and g.request.decided_by(plan.member)]
    waits = any(request.problem.id == problem.id for request in plan.requests)
    over = not tried or tried[-1] is not group or len(tried) >= most or not group.size
    return [] if waits or over or not group.zero_variance else tried
