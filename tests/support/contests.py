"""Comparisons in memory: runs with given curves, and contests drawn from a known population."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halfway.curriculum.decision_log import GroupRecord
from halfway.experiments.report.records import Comparison, EvaluationRecord, Run, StepRecord

SAMPLES = 8


def run_of(
    arm: str,
    seed: int,
    passed_EP: Sequence[Sequence[int]] | None = None,
    scores: Sequence[float] | None = None,
    tokens: int = 10,
    groups: Sequence[GroupRecord] = (),
) -> Run:
    """A run that is evaluated before the first step and after each step of 100 rollouts.

    Args:
        passed_EP: passes of each problem, out of 8, at each evaluation. Give this or `scores`.
        scores: pass@1 at each evaluation, if problems need not be told apart.
        tokens: tokens generated per rollout; half as many are trained.
    """
    heights = [sum(passed) / len(passed) / SAMPLES for passed in passed_EP] if passed_EP is not None else scores
    spent = [
        {"rollouts": 100 * i, "tokens": 100 * i * tokens, "trained_tokens": 50 * i * tokens}
        for i in range(len(heights))
    ]
    evaluations = [
        EvaluationRecord(
            step=i,
            seconds=float(i),
            pass_at_1=height,
            stderr=0.02,
            samples=SAMPLES,
            passed=tuple(passed_EP[i]) if passed_EP is not None else (),
            **spent[i],
        )
        for i, height in enumerate(heights)
    ]
    steps = [
        StepRecord(step=i, seconds=i + 1.0, groups={"trained": 4}, **spent[i + 1]) for i in range(len(heights) - 1)
    ]
    return Run(arm, seed, Path(f"{arm}/seed-{seed}"), "finished", {}, groups, [], steps, evaluations, 0)


def comparison_of(runs: Sequence[Run], **config: Any) -> Comparison:
    """A comparison of the runs, by arm, in the order given; `config` holds entries of comparison.yaml."""
    arms = list(dict.fromkeys(run.arm for run in runs))
    found: Mapping[str, Sequence[Run]] = {arm: [run for run in runs if run.arm == arm] for arm in arms}
    return Comparison(Path("."), {"arms": {arm: {} for arm in arms}, **config}, found)


def contest(
    generator: np.random.Generator,
    skills: Mapping[str, float],
    seeds: int = 8,
    problems: int = 64,
    spread: float = 0.15,
    **config: Any,
) -> Comparison:
    """Arms whose runs learn problems of random difficulty; each run strays by `spread` logits from its arm's skill.

    Runs of one seed share half of the variance of these deviations, as runs that see the same data would.
    """
    ease_P = generator.normal(0, 1.5, problems)
    common_S = generator.normal(0, spread, seeds) / 2**0.5
    runs = []
    for arm, skill in skills.items():
        for seed in range(seeds):
            strayed = common_S[seed] + generator.normal(0, spread) / 2**0.5
            own_P = generator.normal(0, 0.3, problems)  # what this run happens to learn better than others
            heights = [-1.5, -0.5, skill + strayed]
            rates_EP = [1 / (1 + np.exp(-(ease_P + own_P + height))) for height in heights]
            runs.append(run_of(arm, seed, [generator.binomial(SAMPLES, rates_P).tolist() for rates_P in rates_EP]))
    return comparison_of(runs, **config)
