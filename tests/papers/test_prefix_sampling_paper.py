"""Prefix Sampling beside its two sources' procedures, written out here from the texts and run on the same outcomes.

`Paper` is the four-bucket controller (arXiv 2605.05112, section 2.2), `Blog` the two categories of the post of 17 March
2026. Both see what was rolled out and say what the next batch must hold; where a source leaves a number out, it is the
controller's default.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from controller_harness import group, problem_set, rollout

from halfway.controllers.prefix_sampling import PrefixSampling
from halfway.controllers.uniform import Uniform
from halfway.curriculum import Group, Origin, PassRateController, Request, Stream, Turn, chain, propose_until_full
from halfway.curriculum import Plan as Batch

N, BATCH, STEPS = 8, 16, 60
ALPHA, TARGET_LOW, TARGET_HIGH, MOVE, COOLDOWN, LOW, HIGH = 0.05, 0.47, 0.53, 0.05, 5, 0.05, 0.95


class Task(NamedTuple):
    """A prefix task: its problem, what is replayed, and how many of its parent's eight rollouts passed."""

    problem: str
    tokens: tuple[int, ...]
    parent_passed: int


class Paper:
    """Four buckets by the parent's passes. Head starts: a larger ratio is easier; handicaps: harder."""

    def __init__(self, control: str = "adaptive") -> None:
        self.control = control
        self.ratio = {1: 0.25, 2: 0.25, 6: 0.25, 7: 0.25}
        self.average = dict.fromkeys(self.ratio, 0.5)
        self.wait = dict.fromkeys(self.ratio, 0)

    def after_children(self, children: Sequence[tuple[int, int]], step: int) -> None:
        """Learn from the groups behind prefixes: (passes of the parent, passes of the child), in order."""
        for bucket, passed in children:
            m = self.average[bucket] = (1 - ALPHA) * self.average[bucket] + ALPHA * passed / N
            if self.control == "fixed":
                continue
            if self.wait[bucket]:
                self.wait[bucket] -= 1
                continue
            head_start = bucket <= 2
            too_hard, too_easy = m < TARGET_LOW, m > TARGET_HIGH
            longer = too_hard if head_start else too_easy
            shorter = too_easy if head_start else too_hard
            before = self.ratio[bucket]
            moved = min(max(before + MOVE * (longer - shorter), LOW), HIGH)
            if not math.isclose(moved, before):
                self.ratio[bucket], self.wait[bucket] = moved, COOLDOWN

    def length(self, passed: int, total: int) -> int:
        """How much of a rollout of a parent is replayed: something, and not all of it."""
        return min(max(math.floor(self.ratio[passed] * total + 1e-6), 1), total - 1)


class Blog:
    """Two categories: the part of a success left to do, the part of a failure replayed. Larger is harder in both."""

    def __init__(self, control: str = "adaptive") -> None:
        self.control = control
        self.ratio = {"hard": 0.25, "easy": 0.25}
        self.average = dict.fromkeys(self.ratio, 0.5)
        self.moved = dict.fromkeys(self.ratio, -100)

    def after_children(self, children: Sequence[tuple[int, int]], step: int) -> None:
        for name in self.ratio:
            rates = [passed / N for parent, passed in children if (parent < 4) == (name == "hard")]
            if not rates:
                continue
            m = self.average[name] = (1 - ALPHA) * self.average[name] + ALPHA * sum(rates) / len(rates)
            if self.control == "fixed" or step - self.moved[name] <= COOLDOWN:
                continue
            before = self.ratio[name]
            moved = min(max(before + MOVE * ((m > TARGET_HIGH) - (m < TARGET_LOW)), LOW), HIGH)
            if not math.isclose(moved, before):
                self.ratio[name], self.moved[name] = moved, step

    def length(self, passed: int, total: int) -> int:
        if passed < 4:
            return total - max(int(self.ratio["hard"] * total + 1e-6), 1)
        return int(self.ratio["easy"] * total + 1e-6)


def prefix_tasks(groups: Sequence[Group], law: Paper | Blog) -> list[Task]:
    """What the fresh groups of a step save for the next batch; a handicap of nothing would be a fresh task."""
    tasks = []
    for made in groups:
        passed = sum(one.success for one in made.rollouts)
        if made.request.origin is not Origin.FRESH or passed not in (1, 2, 6, 7):
            continue
        rarer = [one for one in made.rollouts if one.success == (passed < 4) and not one.truncated]
        if not rarer:
            continue
        tokens = [int(token) for turn in rarer[0].turns for token in turn.tokens_T]
        length = law.length(passed, len(tokens))
        if length:
            tasks.append(Task(made.request.problem.id, tuple(tokens[:length]), passed))
    return tasks


def tokens_of(turns: Sequence[Turn]) -> tuple[int, ...]:
    return tuple(int(token) for turn in turns for token in turn.tokens_T)


def task_of(request: Request) -> Task:
    assert request.prefix is not None
    return Task(request.problem.id, tokens_of(request.prefix.turns), request.prefix.parent_passed)


def rolled_out(request: Request, rng: np.random.Generator, easier: float) -> Group:
    """A group of rollouts of different lengths, some cut off; the more of a success is replayed, the more pass."""
    chance, prefix = rng.uniform(0.05, 0.95), request.prefix
    if prefix is not None:
        slope = 0.04 if prefix.parent_success else -0.03
        chance = min(max(0.5 + easier + slope * (prefix.length - 8), 0.02), 0.98)
    passed = int(rng.binomial(N, chance))
    made = [
        rollout(place < passed, int(rng.integers(4, 40)), truncated=bool(rng.random() < 0.1), first=1000 * place)
        for place in rng.permutation(N).tolist()
    ]
    return group(request.problem, passed, N, request.origin, prefix, made)


def play(controller: PassRateController[Any], law: Paper | Blog, easier: float, seed: int = 0) -> int:
    """Step by step: the batch that the controller plans holds the tasks that the law wants. Returns how many."""
    problems = problem_set(200)
    both = chain(("prefix_sampling", controller), ("uniform", Uniform()))
    state, rng, wanted, seen = both.init(problems), np.random.default_rng(seed), list[Task](), 0
    for step in range(STEPS):
        plan, state = propose_until_full(both, Batch(step, BATCH, N), state, Stream(seed).at(step, "propose"))
        found = [task_of(request) for request in plan.requests if request.prefix is not None]
        assert sorted(found) == sorted(wanted), f"step {step}"
        assert len(plan.requests) == BATCH, "prefix tasks take slots of fresh ones"
        groups = [rolled_out(request, rng, easier) for request in plan.requests]
        state = both.observe(state, groups, step)
        pairs = [(g.request.prefix.parent_passed, g.num_passed) for g in groups if g.request.prefix is not None]
        law.after_children(pairs, step)
        wanted = prefix_tasks(groups, law)
        seen += len(found)
    return seen


def adaptive(**options: Any) -> PrefixSampling:
    return PrefixSampling(max_share=1.0, **options)


@pytest.mark.parametrize("easier", [-0.3, 0.0, 0.3])
@pytest.mark.parametrize("control", ["adaptive", "fixed"])
def test_every_batch_is_that_of_the_papers_procedure(control: Any, easier: float):
    assert play(adaptive(control=control), Paper(control), easier) > 150


@pytest.mark.parametrize("easier", [-0.3, 0.0, 0.3])
@pytest.mark.parametrize("control", ["adaptive", "fixed"])
def test_every_batch_is_that_of_the_blogs_procedure(control: Any, easier: float):
    assert play(adaptive(variant="categories", control=control), Blog(control), easier) > 150


@pytest.mark.parametrize("other", [{"alpha": 0.1}, {"cooldown": 4}, {"deadzone": (0.4, 0.6)}, {"control": "fixed"}])
def test_the_comparison_can_fail(other: dict[str, Any]):
    for law in (Paper(), Blog()):
        variant: Any = "buckets" if isinstance(law, Paper) else "categories"
        with pytest.raises(AssertionError, match="step"):
            play(adaptive(variant=variant, **other), law, 0.3)
