"""Prefix Sampling: start new rollouts inside earlier rollouts, so that skewed groups pass about half of the time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Literal

from halfway.controllers.laws.feedback import Effect, Knob, RatioLaw, damp_gain, floor_product
from halfway.controllers.laws.slots import slots_left
from halfway.controllers.prefixes.control_loops import Loop, Saved, Side, bucket_of, save_one, side_of
from halfway.curriculum import Group, Origin, PassRateController, Plan, ProblemSet, Request, Stream, require
from halfway.curriculum.prefix import ParentCount

Variant = Literal["buckets", "categories"]

# Options that belong to one variant; the other refuses any value but the default.
VARIANT_OF: Mapping[str, Variant] = {
    "initial_ratio": "buckets",
    "update_unit": "buckets",
    "cooldown_steps": "buckets",
    "remaining_ratio": "categories",
    "prefix_ratio": "categories",
    "remaining_cap": "categories",
    "prefix_cap": "categories",
}

INITIAL_BELIEF = 0.5
"""The pass rate of children that is believed before the first of them."""

COUNTS = (
    "saved",
    "used",
    "dropped_truncated",
    "dropped_too_short",
    "dropped_empty_prefix",
    "dropped_expired",
    "unscored_children",
)


@dataclass(frozen=True, slots=True, eq=False)
class PrefixSamplingState:
    """Saved rollouts, control loops and event counts, after Prefix Sampling.

    Attributes:
        pool: saved rollouts waiting for a slot, oldest first.
        loops: control loop of each bucket or category that has had children, by name.
        counts: how often each of `COUNTS` has happened.
        size: N of the latest plan; 0 before the first.
    """

    problems: ProblemSet
    pool: tuple[Saved, ...] = ()
    loops: Mapping[str, Loop] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    size: int = 0


@dataclass(frozen=True)
class PrefixSampling(PassRateController[PrefixSamplingState]):
    """Replays part of a success of a mostly failing problem, and part of a failure of a mostly passing problem.

    A fresh group with pass rate below `thresholds[0]` (hard) or above `thresholds[1]` (easy) saves one rollout of its
    rarer outcome. In the next step N rollouts (the children) start from its first units, in the slot of a fresh
    problem. Feedback from the children's pass rate moves the replayed ratio until half of them pass. At N <= 3 no pass
    rate is skewed, and nothing happens ("steerable_counts" is 0). Two published variants, never mixed:

    - "buckets", the paper (Rollout Pass-Rate Control, arXiv 2605.05112, section 2.2): one ratio for each bucket of
      parent pass counts (1, 2, 6 and 7 at N = 8); floor(ratio x length) units are replayed, at least 1 and at most
      length - 1. A larger ratio is easier for hard buckets and harder for easy ones.
    - "categories", the blog (Prefix Sampling, 17 March 2026): one ratio for all hard, and one for all easy parents.
      Hard: all but min(int(length x remaining_ratio), remaining_cap) units are replayed, and at least one is left to
      generate. Easy: min(int(length x prefix_ratio), prefix_cap) are replayed; an empty prefix is dropped, since it
      would be a fresh task. A larger ratio is harder in both. One update per step, by the mean over its children.

    Attributes:
        variant: "buckets" or "categories".
        control: "adaptive" = feedback moves the ratios; "fixed" = constant ratios (the paper's PS-fix, the blog's 14B
            run).
        sides: "both", "hard" (the paper's ablation) or "easy" parents only.
        thresholds: pass rates below and above which a group is skewed; a rate equal to one of them is balanced.
        alpha: weight of the newest pass rate in the moving average over the children.
        deadzone, step: the ratio moves by `step` when the belief is outside the dead zone, by less on late evidence
            (`halfway.controllers.laws.feedback.damp_gain`; ours).
        bounds: range of every ratio; ours.
        cooldown: updates of the bucket ("buckets"), or steps ("categories"), without a move after each move.
        max_share: largest share of a plan that starts from prefixes, newest saved rollouts first; ours.
        max_age: steps after which an unused saved rollout is dropped; 1 = for the next step only, as published.
        initial_ratio: buckets: initial value of every ratio. The paper's value is unknown to us; 0.25 is the blog's.
        update_unit: buckets: a belief is updated by each child "group" (the paper), or once per "step" by their mean.
        cooldown_steps: buckets: minimum number of training steps between two moves of a ratio; 0 = no such bound.
        remaining_ratio: categories, hard parents: share of the rollout left to generate.
        remaining_cap: categories, hard parents: maximum number of units left to generate; null = no cap, as in the
            blog.
        prefix_ratio: categories, easy parents: replayed share of the rollout.
        prefix_cap: categories, easy parents: maximum number of replayed units; null = no cap, as in the blog.
    """

    REMOVED: ClassVar = {
        "chain_prefixes": (False, "prefixes of prefixes learned less"),
        "initial_belief": (0.5, "no recipe used it"),
        "bucket_by": ("rate", "no recipe used it"),
    }

    variant: Variant = "buckets"
    control: Literal["adaptive", "fixed"] = "adaptive"
    sides: Literal["both", "hard", "easy"] = "both"
    thresholds: tuple[float, float] = (0.3, 0.7)
    alpha: float = 0.05
    deadzone: tuple[float, float] = (0.47, 0.53)
    step: float = 0.05
    bounds: tuple[float, float] = (0.05, 0.95)
    cooldown: int = 5
    max_share: float = 0.5
    max_age: int = 1
    initial_ratio: float = 0.25
    update_unit: Literal["group", "step"] = "group"
    cooldown_steps: int = 0
    remaining_ratio: float = 0.25
    prefix_ratio: float = 0.25
    remaining_cap: int | None = None
    prefix_cap: int | None = None

    claims = frozenset({"prefixes"})
    needs = frozenset({"prefixes", "tokens"})

    def __post_init__(self) -> None:
        default = {option.name: option.default for option in fields(self)}
        for name, owner in VARIANT_OF.items():
            remedy = f"it belongs to variant={owner}; set that variant, or remove the option"
            require(self.variant == owner or vars(self)[name] == default[name], _path(name), vars(self)[name], remedy)
        for name in ("thresholds", "deadzone", "bounds"):
            low, high = vars(self)[name]
            require(0 < low <= high < 1, _path(name), (low, high), "give two numbers with 0 < low <= high < 1")
        low, high = self.bounds
        for name in ("initial_ratio", "remaining_ratio", "prefix_ratio"):
            inside = low <= vars(self)[name] <= high
            require(inside or self.variant != VARIANT_OF[name], _path(name), vars(self)[name], f"give {low} to {high}")
        for name in ("alpha", "step", "max_share"):
            require(0 < vars(self)[name] <= 1, _path(name), vars(self)[name], "give a number above 0, at most 1")
        for name in ("cooldown", "cooldown_steps"):
            require(vars(self)[name] >= 0, _path(name), vars(self)[name], "give 0 or more")
        require(self.max_age >= 1, _path("max_age"), self.max_age, "give at least 1 step")
        for name in ("remaining_cap", "prefix_cap"):
            cap = vars(self)[name]
            require(cap is None or cap >= 1, _path(name), cap, "give at least 1, or null for no cap")

    def init(self, problems: ProblemSet) -> PrefixSamplingState:
        return PrefixSamplingState(problems)

    def propose(self, plan: Plan, state: PrefixSamplingState, stream: Stream) -> tuple[Plan, PrefixSamplingState]:
        slots = slots_left(plan, self.max_share, Origin.PREFIX)
        counts, taken = Counter(state.counts), set()
        held = {request.problem.id for request in plan.requests}
        for saved in reversed(state.pool):  # newest first
            if slots <= 0:
                break
            if saved.step >= plan.step or saved.problem_id in held:
                continue
            taken.add(id(saved))
            action, length = self._cut_point(state, saved)
            if length == 0:
                counts["dropped_empty_prefix"] += 1
                continue
            problem = state.problems[state.problems.position(saved.problem_id)]
            plan = plan.add([Request(problem, plan.num_rollouts, Origin.PREFIX, saved.prefix(length))], action)
            counts["used"] += 1
            held.add(saved.problem_id)
            slots -= 1
        pool = tuple(saved for saved in state.pool if id(saved) not in taken)
        return plan, replace(state, pool=pool, counts=dict(counts), size=plan.num_rollouts)

    def observe(self, state: PrefixSamplingState, groups: Sequence[Group], step: int) -> PrefixSamplingState:
        counts = Counter(state.counts)
        children: dict[str, list[Group]] = {}
        pool = [saved for saved in state.pool if step + 1 - saved.step <= self.max_age]
        counts["dropped_expired"] += len(state.pool) - len(pool)
        for group in groups:
            prefix = group.request.prefix
            if group.request.origin is Origin.PREFIX and prefix is not None:
                name = self._name(prefix.parent_passed, prefix.parent_size)
                if group.size == 0:
                    counts["unscored_children"] += 1
                elif name is not None:
                    children.setdefault(name, []).append(group)
            if group.request.origin is not Origin.FRESH:
                continue
            state.problems.position(group.request.problem.id)  # raises for a problem of another set
            side = self._side(group.num_passed, group.size)
            if side is None:
                continue
            saved = save_one(group, side == "hard", step)
            if isinstance(saved, Saved):
                pool.append(saved)
            counts["saved" if isinstance(saved, Saved) else f"dropped_{saved}"] += 1
        loops = dict(state.loops)
        for name, grown in children.items():
            loops[name] = self._learn(state, name, grown, step)
        return replace(state, pool=tuple(pool), loops=loops, counts=dict(counts))

    def metrics(self, state: PrefixSamplingState) -> Mapping[str, float]:
        """Pool size, `COUNTS`, and for each loop the outcomes of its children.

        ratio_k_of_N: currently replayed share of a parent with k of N, in both variants. Per bucket or category:
        belief_; children_, child_pass_rate_ and zero_variance_share_ since the start; latest_children_ and
        latest_pass_rate_, of the latest step with children.
        """
        steerable = {k: side for k in range(1, state.size) if (side := self._side(k, state.size))}
        values: dict[str, float] = {"pool": len(state.pool), "steerable_counts": len(steerable), **state.counts}
        for k, side in steerable.items():
            name = self._name(k, state.size)
            assert name is not None
            ratio = self._loop(state, name, side == "hard").knob.ratio
            left_over = self.variant == "categories" and side == "hard"
            values[ParentCount(k, state.size).metric("ratio")] = 1 - ratio if left_over else ratio
        for name, loop in state.loops.items():
            values[f"belief_{name}"] = loop.belief
            values[f"children_{name}"] = loop.children
            values[f"child_pass_rate_{name}"] = loop.total_rate / loop.children
            values[f"zero_variance_share_{name}"] = loop.zero_variance / loop.children
            values[f"latest_children_{name}"] = loop.latest_children
            values[f"latest_pass_rate_{name}"] = loop.latest_rate
        return {name: float(value) for name, value in values.items()}

    def _side(self, passed: int, size: int) -> Side | None:
        side = side_of(passed, size, self.thresholds)
        return side if self.sides in ("both", side) else None

    def _name(self, passed: int, size: int) -> str | None:
        """Name of the loop that the children of a parent with k of N belong to."""
        side = self._side(passed, size)
        if side is None or self.variant == "categories":
            return side
        return bucket_of(passed, size, side)

    def _loop(self, state: PrefixSamplingState, name: str, head_start: bool) -> Loop:
        if name in state.loops:
            return state.loops[name]
        start = self.remaining_ratio if head_start else self.prefix_ratio
        return Loop(Knob(self.initial_ratio if self.variant == "buckets" else start), INITIAL_BELIEF)

    def _learn(self, state: PrefixSamplingState, name: str, children: Sequence[Group], step: int) -> Loop:
        prefix = children[0].request.prefix
        assert prefix is not None
        categories = self.variant == "categories"
        effect: Effect = 1 if prefix.parent_success and not categories else -1
        cooldown, floor = (0, self.cooldown + 1) if categories else (self.cooldown, self.cooldown_steps)
        step_size = damp_gain(self.step, children)
        law = RatioLaw(self.deadzone, step_size, self.bounds, cooldown, floor) if self.control == "adaptive" else None
        pooled = categories or self.update_unit == "step"
        return self._loop(state, name, prefix.parent_success).after(children, self.alpha, law, effect, step, pooled)

    def _cut_point(self, state: PrefixSamplingState, saved: Saved) -> tuple[str, int]:
        """Text for the decision log, and units to replay: 0 (only for a short easy parent) to length - 1."""
        name = self._name(saved.passed, saved.size)
        assert name is not None, "a saved rollout comes from a skewed group"
        ratio = self._loop(state, name, saved.success).knob.ratio
        units = floor_product(ratio, saved.length)
        if self.variant == "buckets":
            length = min(max(units, 1), saved.length - 1)
        elif saved.success:
            remaining = min(units, saved.length if self.remaining_cap is None else self.remaining_cap)
            length = saved.length - min(max(remaining, 1), saved.length - 1)
        else:
            length = min(units, saved.length if self.prefix_cap is None else self.prefix_cap)
        return f"{'head start' if saved.success else 'handicap'} {name} {ratio:.2f}", length


def _path(name: str) -> str:
    return f"prefix_sampling.{name}"
