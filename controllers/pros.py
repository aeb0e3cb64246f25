"""PROS: reuses prefixes of correct rollouts, and chooses problems and prefixes by believed pass rate (ICLR 2026)."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from typing import Literal

import numpy as np

from halfway.controllers.beliefs.calibration import EDGE, Calibration, Line, Residual, guesses_of
from halfway.controllers.beliefs.forest import Floats, enforce_caps, grow
from halfway.controllers.beliefs.forest_beliefs import PassRateBelief
from halfway.controllers.beliefs.hierarchical_bayes import with_offsets
from halfway.controllers.laws.choose_nodes import (
    Ties,
    by_update_mass,
    distance_to_band,
    in_random_order,
    nearest,
    pick,
    tree_of,
)
from halfway.controllers.prefixes.reuse import Start, prefix_of, start_of
from halfway.controllers.prefixes.trees import (
    Outcome,
    ProsState,
    children_of,
    evict,
    figures,
    find_taken,
    node_of,
    track_errors,
)
from halfway.curriculum import Group, Origin, PassRateController, Plan, ProblemSet, Request, Stream, require


@dataclass(frozen=True)
class Pros(PassRateController[ProsState]):
    """Tries the problems and the prefixes of correct rollouts that are believed to pass about half of the time.

    Each correct rollout yields a new problem: to continue it from the point where the policy was least certain (see
    `halfway.controllers.prefixes.reuse.cut_point`). Problems (roots) and the prefixes cut from their rollouts
    (children) form a forest. Each node has its own counts, from which a belief estimates its pass rate, and a plan
    takes the nodes nearest the target. Tokens of a prefix are context: never trained on, never counted as generated.

    Our source, a third-party summary, gives the model, the cut and the criterion |rate - 0.5|; the rest and every
    number are ours. At mu = 0 an untried root has the target rate, so untried roots come first.

    Attributes:
        selection: "target" = nodes nearest the target; "random" = all nodes equally likely (the source's ablation);
            "mass" = drawn in proportion to the expected update mass under MaxRL (ours).
        target: target range (low, high) of pass rates, all equally good.
        ties: order of equally distant nodes, see `halfway.controllers.laws.choose_nodes.nearest`.
        exploration: share of the plan drawn uniformly from all nodes, so that every node is eventually tried again.
        per_tree: maximum number of groups of one tree in a step, including those of other members; null = no quota, as
            in the source.
        reuse: true = correct rollouts yield children; false = selection only, and another member may attach prefixes.
        grandchildren: true = correct rollouts of a child yield children too. They belong to its root, as the model has
            two layers.
        leak_tokens: refuse a prefix that already contains this many last tokens of its rollout; 0 = no check.
        top_values: cut only within this share of the window that has the highest critic values (the source's PPO: 0.1);
            needs learner.advantage=gae. null = anywhere in the window.
        tree_children, total_children: maximum number of children of one tree and of all trees; null = no cap. Each plan
            first evicts the excess: the children believed furthest from the target, oldest first among ties; under
            random selection the oldest.
        belief: estimates pass rates from counts, and discounts the counts; see `PassRateBelief`.
        prior: "same" = the prior mean of every root is mu; "probed" = mu plus a probe's estimate of the problem's
            log-odds, which the problem brings, calibrated by a line fitted to the outcomes of the roots, see
            `halfway.controllers.beliefs.calibration`.
        calibration: options of that fit.
    """

    selection: Literal["target", "random", "mass"] = "target"
    target: tuple[float, float] = (0.5, 0.5)
    ties: Ties = "random"
    exploration: float = 0.1
    per_tree: int | None = 1
    reuse: bool = True
    grandchildren: bool = True
    leak_tokens: int = 4
    top_values: float | None = None
    tree_children: int | None = 8
    total_children: int | None = 65536
    belief: PassRateBelief = field(default_factory=PassRateBelief)
    prior: Literal["same", "probed"] = "same"
    calibration: Calibration = field(default_factory=Calibration)

    def __post_init__(self) -> None:
        probed, bayes = self.prior == "probed", self.belief.bayes
        fits = self.belief.kind == "hierarchical" and bayes.hyperparameters == "fixed"
        require(
            fits or not probed,
            "pros.prior",
            self.prior,
            "it needs belief.kind=hierarchical, fixed hyperparameters",
        )
        # The deviation of a root from the line is read from its believed rate, so that must be the rate at the mean
        # logit.
        apt = bayes.estimate == "mean_logit" or not probed
        require(apt, "pros.belief.bayes.estimate", bayes.estimate, "with prior=probed use mean_logit")
        moot = self.calibration == Calibration() or probed
        require(moot, "pros.calibration", self.calibration, "it belongs to prior=probed; set that, or remove it")
        low, high = self.target
        require(0 <= low <= high <= 1, "pros.target", self.target, "give two numbers with 0 <= low <= high <= 1")
        require(0 <= self.exploration <= 1, "pros.exploration", self.exploration, "give a share between 0 and 1")
        require(self.leak_tokens >= 0, "pros.leak_tokens", self.leak_tokens, "give 0 or more")
        share = self.top_values
        require(share is None or 0 < share <= 1, "pros.top_values", share, "give a share above 0, at most 1, or null")
        for name in ("per_tree", "tree_children", "total_children"):
            value = vars(self)[name]
            require(value is None or value >= 1, f"pros.{name}", value, "give at least 1, or null for no limit")

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({"problems", "prefixes"}) if self.reuse else frozenset({"problems"})

    @property
    def needs(self) -> frozenset[str]:
        reuse = {"prefixes", "tokens", "entropies"} if self.reuse else set()
        values = {"values"} if self.reuse and self.top_values is not None else set()
        return frozenset(reuse | values) | self.belief.needs

    def init(self, problems: ProblemSet) -> ProsState:
        """Raises UserError if the prior is "probed" and a problem has no guess."""
        forest = self.belief.init(len(problems))
        if self.prior == "same":
            return ProsState(problems, forest)
        line = self.calibration.start()
        return ProsState(problems, with_offsets(forest, line.logits(_guesses(problems))), line=line)

    def propose(self, plan: Plan, state: ProsState, stream: Stream) -> tuple[Plan, ProsState]:
        if plan.missing == 0:
            return plan, state
        state = self._refresh(state, plan.step, stream)
        if state.offered_in != plan.step:
            state = replace(state, offered=(), offered_in=plan.step)
        counts = Counter(state.counts)
        chosen = self._select(plan, state, stream.at("select").generator())
        asked = [self._request(state, node, why, plan.num_rollouts) for node, why in chosen]
        counts["used"] += sum(request.prefix is not None for request, _ in asked)
        plan = plan.add([request for request, _ in asked], [action for _, action in asked])
        return plan, replace(state, counts=dict(counts), offered=(*state.offered, *(node for node, _ in chosen)))

    def observe(self, state: ProsState, groups: Sequence[Group], step: int) -> ProsState:
        state.forest.check_counts()
        counts = Counter(state.counts)
        known = children_of(state, [group.request for group in groups])
        outcomes = []
        for group in groups:
            node = node_of(state, group, known)
            if node is None:
                counts["foreign"] += group.request.origin is Origin.PREFIX
            elif group.size == 0:
                counts["unscored"] += 1
            else:
                outcomes.append(Outcome(node, tree_of(state.forest, node), group))
        trees, starts = self._seeds(outcomes, known, counts)
        counted = [(o.node, o.group.num_passed, o.group.size) for o in outcomes]
        nodes, passed, tried = zip(*counted, strict=True) if counted else ((), (), ())
        line = self._recalibrate(state, outcomes)
        grown = grow(state.forest, trees)
        forest = self.belief.learn(grown, nodes, passed, tried, in_place=grown is not state.forest)
        if line is not None:
            forest = with_offsets(forest, line.logits(_guesses(state.problems)))
        turns = [turn for outcome in outcomes for rollout in outcome.group.rollouts for turn in rollout.turns]
        replayed, tokens = sum(map(_num_replayed, turns)), sum(map(len, map(_tokens, turns)))
        return replace(
            track_errors(state, outcomes),
            line=line,
            forest=forest,
            starts=(*state.starts, *starts),
            counts=dict(counts),
            replayed=state.replayed + replayed,
            generated=state.generated + tokens - replayed,
        )

    def _recalibrate(self, state: ProsState, outcomes: Sequence[Outcome]) -> Line | None:
        """Update the line by the outcomes of roots, each compared with its believed rate, its residual included."""
        line, forest = state.line, state.forest
        roots = [outcome for outcome in outcomes if outcome.node < forest.num_trees]
        if line is None or not roots:
            return line
        guesses_R = _guesses(state.problems)
        rates_R = np.clip(forest.rate_M[: forest.num_trees], EDGE, 1 - EDGE)
        residuals_R = np.log(rates_R / (1 - rates_R)) - line.logits(guesses_R)
        line = line.drift(self.calibration.drift)
        for node, _, group in roots:
            own = Residual(float(residuals_R[node]), self.belief.bayes.tau**2)
            line, _ = line.learn(float(guesses_R[node]), own, group.num_passed, group.size)
        return line

    def inform(self, state: ProsState, rates_P: Floats) -> ProsState:
        return replace(state, forest=self.belief.inform(state.forest, rates_P))

    def predict(self, state: ProsState, groups: Sequence[Group]) -> Floats:
        known = children_of(state, [group.request for group in groups if group.request.prefix is not None])
        nodes = [node_of(state, group, known) for group in groups]
        return np.array([np.nan if node is None else state.forest.rate_M[node] for node in nodes])

    def metrics(self, state: ProsState) -> Mapping[str, float]:
        """`COUNTS`, the errors of `ProsState`, and of the pool:

        children, trees_with_children, mean_rate_roots, mean_rate_children, in_band (share of nodes with believed rates
        of 0.3 to 0.7); share_replayed: share of all tokens so far that were replayed, not generated; the
        hyperparameters; and offset and slope of the line from a probe's guesses.
        """
        return figures(state)

    def _refresh(self, state: ProsState, step: int, stream: Stream) -> ProsState:
        """Bring the beliefs up to date and enforce the caps."""
        forest = self.belief.refresh(state.forest, step, stream)
        distance_C = distance_to_band(forest.rate_M[forest.num_trees :], self.target)
        if self.selection == "random":
            distance_C = np.zeros_like(distance_C)
        keep_C, from_tree, from_total = enforce_caps(forest, distance_C, self.tree_children, self.total_children)
        if from_tree + from_total == 0:
            return replace(state, forest=forest)
        return evict(state, forest, keep_C, from_tree, from_total)

    def _select(self, plan: Plan, state: ProsState, generator: np.random.Generator) -> list[tuple[int, str]]:
        """Choose nodes for the missing requests; returns them with the reason for each."""
        forest, taken = state.forest, find_taken(plan, state)
        shuffled = in_random_order(forest, generator)
        if self.selection == "random":
            return [(node, "random") for node in pick(shuffled, forest, plan.missing, self.per_tree, taken)]
        explored = int(generator.binomial(plan.missing, self.exploration))
        mass = self.selection == "mass"
        ranking = (
            by_update_mass(forest, plan.num_rollouts, generator)
            if mass
            else nearest(forest, self.target, self.ties, generator)
        )
        near = pick(ranking, forest, plan.missing - explored, self.per_tree, taken)
        others = pick(shuffled, forest, explored, self.per_tree, taken)
        return [(node, "mass" if mass else "near") for node in near] + [(node, "explored") for node in others]

    def _request(self, state: ProsState, node: int, why: str, size: int) -> tuple[Request, str]:
        tree, forest = tree_of(state.forest, node), state.forest
        problem, action = state.problems[tree], f"{why} {forest.rate_M[node]:.2f}"
        if node < forest.num_trees:
            return Request(problem, size), action
        start = state.starts[node - forest.num_trees]
        return Request(problem, size, Origin.PREFIX, prefix_of(start)), f"{action} #{tag(start.text)}"

    def _seeds(
        self, outcomes: Sequence[Outcome], known: Mapping[tuple[int, bytes], int], counts: Counter[str]
    ) -> tuple[list[int], list[Start]]:
        """Trees and starts of the new children; counts every correct rollout by its fate."""
        trees: list[int] = []
        starts: list[Start] = []
        texts = set(known)
        for _, tree, group in outcomes:
            if not self.reuse or (group.request.prefix is not None and not self.grandchildren):
                continue
            for rollout in group.rollouts:
                if not rollout.success:
                    continue
                start = start_of(rollout, group, self.leak_tokens, self.top_values)
                if isinstance(start, Start) and (tree, start.text) in texts:
                    start = "duplicate"
                if isinstance(start, str):
                    counts[f"dropped_{start}"] += 1
                    continue
                counts["seeded"] += 1
                texts.add((tree, start.text))
                trees.append(tree)
                starts.append(start)
        return trees, starts


_num_replayed, _tokens = attrgetter("num_replayed"), attrgetter("tokens_T")  # for thousands of turns a step


@lru_cache(maxsize=4)
def _guesses(problems: ProblemSet) -> Floats:
    return guesses_of(problems, "problems.source")


def tag(text: bytes) -> str:
    """Eight digits that identify a child in the decision log."""
    return hashlib.blake2b(text, digest_size=4).hexdigest()
