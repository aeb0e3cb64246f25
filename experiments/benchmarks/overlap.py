"""Measures how much of a verifier's time is hidden by judging responses while others are still sampled.

    python -m halfway.experiments.benchmarks.overlap [--problems 200] [--rounds 5]

The task is function induction: every response is a program that runs in the sandbox, in separate processes, while the
policy samples on one thread. Prints the median seconds of judging alone, of sampling and judging one after the other,
and of both at once.
"""

import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from halfway.curriculum.environments.single_turn import SingleTurn
from halfway.curriculum.groups import Request
from halfway.curriculum.problems import Problem
from halfway.curriculum.rollouts import Origin
from halfway.curriculum.streams import Stream
from halfway.curriculum.tasks import function_induction
from halfway.experiments.config.paths import REPOSITORY
from halfway.experiments.scripts import script, script_parser
from halfway.trainers.engines.base import Completion, Engine, Finished
from halfway.trainers.engines.transformers.engine import TransformersEngine
from halfway.trainers.policy import ModelOptions, load_policy
from halfway.trainers.propel.domains import functions
from halfway.trainers.propel.domains.base import Invalid
from halfway.trainers.propel.domains.induction import FunctionInduction

SOLVER = REPOSITORY / "experiments" / "starting_models" / "induction_solver"
DOMAIN = FunctionInduction(syntax="short", input_range=(0, 12), result_range=(-40, 160), distinct_results=2)
MAX_TOKENS, GROUP_SIZE = 18, 8


@dataclass
class AtTheEnd:
    """An engine that reports no sequence before all of them have ended."""

    engine: Engine
    serves_all: bool = False
    replicas: int = 1

    def generate(self, contexts: Any, limits: Any, seeds: Any, finished: Finished | None = None) -> list[Completion]:
        completions = self.engine.generate(contexts, limits, seeds)
        for i, completion in enumerate(completions):
            if finished is not None:
                finished(i, completion)
        return completions

    def sync(self, policy: Any, version: int) -> None:
        self.engine.sync(policy, version)


def pose(count: int) -> list[Problem]:
    """The valid problems among `count` that the lab's author writes."""
    rng = random.Random(0)
    texts = [functions.write_function(functions.FunctionAuthor(flawed=0.0), rng) for _ in range(count)]
    tasks = DOMAIN.check([task for task in map(DOMAIN.parse, texts) if not isinstance(task, Invalid)])
    return [DOMAIN.problem(task) for task in tasks if not isinstance(task, Invalid)]


def seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


@script
def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    policy = load_policy(ModelOptions(path=str(SOLVER)), str(SOLVER))
    engine = TransformersEngine(policy.model.eval(), policy.end_tokens, policy.padding)
    together = policy.collector(engine, SingleTurn(), MAX_TOKENS)
    in_turn = policy.collector(AtTheEnd(engine), SingleTurn(), MAX_TOKENS)
    problems = pose(options.problems)
    requests = [Request(problem, GROUP_SIZE, Origin.FRESH) for problem in problems]
    each = [problem for problem in problems for _ in range(GROUP_SIZE)]
    times: dict[str, list[float]] = {}
    for number in range(options.rounds + 1):
        stream = Stream(number)
        texts = [
            policy.tokenizer.decode(rollout.turns[0].tokens_T.tolist(), skip_special_tokens=True)
            for group in in_turn.run(requests, stream)
            for rollout in group.rollouts
        ]
        acts: dict[str, Callable[[], object]] = {
            "judging alone": partial(function_induction.judge, each, texts),
            "one after the other": partial(in_turn.run, requests, stream),
            "both at once": partial(together.run, requests, stream),
        }
        for name, act in acts.items():
            function_induction._memory.cache_clear()  # otherwise the verdicts would be remembered
            taken = seconds(act)
            if number:  # the first round starts the sandbox
                times.setdefault(name, []).append(taken)
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"{len(each)} responses, medians of {options.rounds} rounds, seconds:")
    for name, value in medians.items():
        print(f"  {name:20} {value:6.2f}")
    print(f"  at once / in turn    {medians['both at once'] / medians['one after the other']:6.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
