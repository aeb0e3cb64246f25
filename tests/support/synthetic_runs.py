"""Writes run directories without training: a scripted policy that improves, in the loop's formats."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from halfway.curriculum.prefix import ParentCount

N = 8
BUCKETS = {1: 0.75, 2: 0.6, 6: 0.4, 7: 0.25}
STRATA = ("0 trivial", "1 easy", "2 hard", "10 hopeless")
# How much easier than the average each held-out problem is, in logits: the same problems for all runs.
EASE = np.sort(np.random.default_rng(5).normal(0, 1.5, 64))[::-1]


@dataclass(frozen=True)
class Script:
    """An arm's behaviour: requests per round, groups wanted, and whether it refills, skips and replays prefixes."""

    request: int = 32
    wanted: int = 32
    refill: bool = False
    skip: float = 0.0
    prefixes: bool = False
    speed: float = 1.0


ARMS = {
    "grpo": Script(),
    "dynamic_sampling": Script(request=48, refill=True),
    "greso": Script(request=40, refill=True, skip=0.4, speed=1.1),
    "prefix_sampling": Script(prefixes=True, speed=0.95),
}


def write_comparison(directory: Path, arms=ARMS, seeds=(0, 1, 2), steps=40, plan="") -> Path:
    """Write a comparison directory of finished runs; `plan` holds further lines of comparison.yaml."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "comparison.yaml").write_text(
        f"name: synthetic\narms:\n{''.join(f'  {arm}: {{}}' + chr(10) for arm in arms)}"
        f"seeds: {list(seeds)}\nbudget: {{rollouts: {256 * steps}}}\n{plan}"
    )
    for arm, script in arms.items():
        for seed in seeds:
            write_run(directory / arm / f"seed-{seed}", script, seed, steps)
    return directory


def write_run(folder: Path, script: Script, seed: int, steps: int = 40, state: str = "finished") -> Path:
    """Write one run directory."""
    folder.mkdir(parents=True)
    writer = _Writer(script, np.random.default_rng([seed, script.request, script.prefixes]))
    while writer.rollouts < 256 * steps:
        writer.step(len(writer.steps), steps)
    write_records(folder, writer.decisions, writer.steps, writer.evaluations, seed, state)
    return folder


def write_records(folder: Path, decisions, steps, evaluations, seed=0, state="finished") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, records in (("decisions", decisions), ("steps", steps), ("evaluations", evaluations)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "config.yaml").write_text(f"seed: {seed}\nbudget: {{rollouts: 10240, tokens: null, steps: null}}\n")
    (folder / "status.json").write_text(json.dumps({"state": state}))
    return folder


def decision(step=0, k=4, n=N, outcome="trained", origin="fresh", parent_passed=None, **other):
    """A record of decisions.jsonl."""
    prefixed = origin == "prefix"
    return {
        "step": step,
        "round": 0,
        "problem": f"p{step}",
        "parent": "p0" if prefixed else None,
        "origin": origin,
        "prefix_length": 10 if prefixed else 0,
        "prefix_unit": "tokens" if prefixed else None,
        "prefix_tokens": 10 if prefixed else 0,
        "parent_passed": parent_passed,
        "parent_size": N if prefixed else None,
        "parent_success": parent_passed < N / 2 if prefixed else None,
        "decisions": [["uniform", "added"]],
        "k": k,
        "n": n,
        "tokens": 25 * (n or 0),
        "policy_version": step,
        "outcome": outcome,
        "reason": "greso: easy streak of 2" if outcome == "skipped" else None,
        "dropped": {},
        **other,
    }


def step_record(step=0, rollouts=64, trained=4, **other):
    """A record of steps.jsonl."""
    return {
        "step": step,
        "policy_version": step,
        "rollouts": rollouts,
        "tokens": rollouts * 25,
        "trained_tokens": rollouts * 20,
        "seconds": rollouts / 100,
        "rounds": 1,
        "starved": False,
        "groups": {"rolled_out": 8, "trained": trained, "zero_variance": 2, "surplus": 0, "carried": 0, "empty": 0},
        "skipped": 0,
        "timing": {"propose": 0.01, "rollout": 1.5, "observe": 0.01, "update": 0.4, "sync": 0.08, "evaluate": 9.0},
        "fresh_counts": [0] * (N + 1),
        "prefix_counts": [0] * (N + 1),
        "learner": {"entropy": 1.0},
        "controllers": {},
        **other,
    }


def evaluation_record(step=0, rollouts=0, pass_at_1=0.5, stderr=0.02, **other):
    """A record of evaluations.jsonl in the format before passes were recorded for each problem."""
    return {
        "step": step,
        "rollouts": rollouts,
        "tokens": rollouts * 25,
        "seconds": rollouts / 100,
        "pass_at_1": pass_at_1,
        "stderr": stderr,
        "problems": 128,
        "samples": 8,
        "pass_counts": [0] * 9,
        **other,
    }


def problem_records(passed, samples=N):
    """The entries of an evaluations.jsonl record about its problems, which are spread evenly over the strata."""
    parts = np.array_split(np.asarray(passed), len(STRATA))
    strata = {name: {"problems": len(p), "passed": int(p.sum())} for name, p in zip(STRATA, parts, strict=True)}
    rates = np.asarray(passed) / samples
    stderr = float(rates.std(ddof=1) / len(rates) ** 0.5)
    found = {"pass_at_1": float(rates.mean()), "stderr": stderr, "problems": len(rates), "samples": samples}
    return {**found, "passed": [int(k) for k in passed], "strata": strata}


class _Writer:
    """Plays a script with a policy whose skill grows with the groups on which it is trained."""

    def __init__(self, script: Script, rng: np.random.Generator):
        self.script, self.rng = script, rng
        self.skill = -0.8
        self.rollouts = self.tokens = self.trained_tokens = 0
        self.seconds = 0.0
        self.decisions, self.steps, self.evaluations, self.parents = [], [], [], []
        self.evaluate(0)

    def evaluate(self, step):
        ease = EASE + self.skill + self.rng.normal(0, 0.05)
        passed = self.rng.binomial(N, 1 / (1 + np.exp(-ease)))
        spent = {"tokens": self.tokens, "trained_tokens": self.trained_tokens, "seconds": self.seconds}
        self.evaluations.append(evaluation_record(step, self.rollouts) | problem_records(passed) | spent)

    def step(self, step, steps):
        groups, skipped, rounds = [], 0, 0
        parents, self.parents = self.parents, []
        while True:
            rounds += 1
            request = self.script.request
            for parent_k in parents[: request // 2] if rounds == 1 else []:
                groups.append(self.prefixed(step, parent_k))
                request -= 1
            groups += [self.fresh(step) for _ in range(request)]
            skips = self.rng.binomial(request, self.script.skip * step / steps)
            self.decisions += [decision(step, None, None, "skipped") for _ in range(skips)]
            skipped += int(skips)
            valid = sum(0 < group["k"] < N for group in groups)
            if not self.script.refill or valid >= self.script.wanted or rounds == 10:
                break
        self.finish(step, groups, skipped, rounds)
        if self.rollouts >= 256 * steps / 12 * len(self.evaluations):
            self.evaluate(step + 1)

    def fresh(self, step):
        rate = 1 / (1 + np.exp(-(self.skill + self.rng.normal(0, 2))))
        if self.rng.random() < self.script.skip * 0.5:
            rate = np.clip(rate, 0.1, 0.9)
        return decision(step, int(self.rng.binomial(N, rate)))

    def prefixed(self, step, parent_k):
        rate = np.clip(self.rng.beta(2, 2) + (0.5 - parent_k / N) * 0.3 * np.exp(-step / 10), 0, 1)
        return decision(step, int(self.rng.binomial(N, rate)), origin="prefix", parent_passed=parent_k)

    def finish(self, step, groups, skipped, rounds):
        counts = dict.fromkeys(("trained", "zero_variance", "surplus", "carried", "empty"), 0)
        histograms = {"fresh": [0] * (N + 1), "prefix": [0] * (N + 1)}
        for group in groups:
            fits = not self.script.refill or counts["trained"] < self.script.wanted
            group["outcome"] = "zero_variance" if group["k"] in (0, N) else "trained" if fits else "surplus"
            group["tokens"] = int(N * (30 - 5 * step / 40 - 0.5 * group["prefix_tokens"]))
            counts[group["outcome"]] += 1
            histograms[group["origin"]][group["k"]] += 1
            if self.script.prefixes and group["origin"] == "fresh" and group["k"] in BUCKETS:
                self.parents.append(group["k"])
        self.decisions += groups
        rollouts = len(groups) * N
        self.rollouts += rollouts
        self.tokens += sum(group["tokens"] for group in groups)
        trained = [group for group in groups if group["outcome"] == "trained"]
        self.trained_tokens += sum(group["tokens"] + N * (12 + group["prefix_tokens"]) for group in trained)
        timing = {
            "propose": 0.004 * rounds,
            "rollout": rollouts / 300,
            "observe": 0.002,
            "update": 0.3,
            "sync": 0.02,
            "evaluate": 0.1,
            "checkpoint": 0.05,
        }
        self.seconds += sum(timing.values()) - 0.15
        self.skill += 0.0018 * counts["trained"] * self.script.speed
        controllers = {"greso/explore_easy": 0.5 - 0.005 * step} if self.script.skip else {}
        if self.script.prefixes:
            drift = 1 - np.exp(-step / 10)
            for k, end in BUCKETS.items():
                controllers[f"prefix_sampling/{ParentCount(k, N).metric('ratio')}"] = 0.25 + (end - 0.25) * drift
        self.steps.append(
            {
                **step_record(step, self.rollouts),
                "tokens": self.tokens,
                "trained_tokens": self.trained_tokens,
                "seconds": self.seconds,
                "rounds": rounds,
                "groups": {"rolled_out": len(groups), **counts},
                "skipped": skipped,
                "timing": timing,
                "fresh_counts": histograms["fresh"],
                "prefix_counts": histograms["prefix"],
                "controllers": controllers,
                "learner": {
                    "entropy": float(0.9 * np.exp(-step / 60) + self.rng.normal(0, 0.02)),
                    "grad_norm": float(abs(self.rng.normal(0.5, 0.1))),
                    "loss": float(self.rng.normal(0, 0.01)),
                    "clip_share": float(abs(self.rng.normal(0.01, 0.003))),
                },
            }
        )
