"""VCRL: train on groups whose successes vary enough (arXiv 2509.19803)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from halfway.controllers.beliefs.counts import fresh_groups
from halfway.controllers.laws.sampling import variance_score
from halfway.curriculum.controller import PassRateController
from halfway.curriculum.groups import Group
from halfway.curriculum.problems import ProblemSet
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.errors import require


@dataclass(frozen=True, slots=True, eq=False)
class VcrlState:
    """The step, and how the latest groups scored.

    Attributes:
        step: the next training step.
        score: mean score of the latest step's groups.
        kept: share of those groups whose score was high enough.
    """

    problems: ProblemSet
    step: int = 0
    score: float = 0.0
    kept: float = 0.0


@dataclass(frozen=True)
class Vcrl(PassRateController[VcrlState]):
    """Declines groups whose variance score is below a threshold, which rises after the first steps.

    The score (`variance_score`) is 1 for a group of which half passed, and 0 for one without variance; at N = 8 the
    late threshold keeps 3 to 5 successes, and the early one 1 to 7. Declined groups have been rolled out all the same,
    so use fill.policy=refill for full batches. The score is the paper's; no code was found against which its
    thresholds, 0.3 for 20 steps and then 0.8, could be checked. Its memory bank of high-variance problems is not
    implemented; `replay` keeps groups.

    Attributes:
        early, late: lowest score at which a group trains, in the first `early_steps` steps and afterwards.
    """

    early: float = 0.3
    late: float = 0.8
    early_steps: int = 20

    needs = frozenset({"weights"})

    def __post_init__(self) -> None:
        for name in ("early", "late"):
            require(0 < vars(self)[name] <= 1, f"vcrl.{name}", vars(self)[name], "give a score above 0, at most 1")
        require(self.early_steps >= 0, "vcrl.early_steps", self.early_steps, "give 0 or more")

    def init(self, problems: ProblemSet) -> VcrlState:
        return VcrlState(problems)

    def weigh(self, groups: Sequence[Group], state: VcrlState, stream: Stream) -> Sequence[Group]:
        return [group if self._varied(group, state.step) else group.weighed([0.0] * group.size) for group in groups]

    def _varied(self, group: Group, step: int) -> bool:
        least = self.early if step < self.early_steps else self.late
        return variance_score(group.num_passed, group.size) >= least - 1e-9

    def observe(self, state: VcrlState, groups: Sequence[Group], step: int) -> VcrlState:
        fresh_groups(groups, state.problems)  # raises for a problem of another set
        state = replace(state, step=step + 1)
        if not groups:
            return state
        scores = [variance_score(group.num_passed, group.size) for group in groups]
        num_varied = sum(self._varied(group, step) for group in groups)
        return replace(state, score=sum(scores) / len(scores), kept=num_varied / len(groups))

    def metrics(self, state: VcrlState) -> Mapping[str, float]:
        """score, kept: see `VcrlState`."""
        return {"score": state.score, "kept": state.kept}
