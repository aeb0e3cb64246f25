"""Measures the time of the same rollouts with and without waiting for the commands of other attempts."""

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfway.curriculum.environments.base import StepResult
from halfway.curriculum.groups import Request
from halfway.curriculum.problems import Problem
from halfway.curriculum.rollouts import Unit
from halfway.curriculum.streams import Stream
from halfway.trainers.engines.base import Completion
from halfway.trainers.rollouts.collector import Collector


@dataclass(frozen=True)
class Waiting:
    """Episodes of `max_turns` turns, whose tools take an exponential time that is the same in every run."""

    slow_tools: bool
    max_turns: int = 8
    unit: Unit = "steps"

    def start(self, problems: Sequence[Problem]) -> list[tuple[int, int]]:
        return [(i, 0) for i, _ in enumerate(problems)]

    def step(self, episodes: Sequence[tuple[int, int]], responses: Sequence[str]) -> list[StepResult[tuple[int, int]]]:
        with ThreadPoolExecutor(len(episodes)) as pool:
            list(pool.map(lambda episode: time.sleep(self.seconds(*episode)), episodes))
        over = [turn + 1 == self.max_turns for _, turn in episodes]
        return [
            StepResult((number, turn + 1), "" if last else "ok", True if last else None)
            for (number, turn), last in zip(episodes, over, strict=True)
        ]

    def seconds(self, number: int, turn: int) -> float:
        return -0.5 * math.log(1 - Stream(0).at(number, turn).uniform())


@dataclass
class Sleeping:
    """An engine that takes 0.2 s for every call."""

    serves_all: bool = False
    replicas: int = 1

    def generate(
        self, contexts: Sequence[Any], max_new_tokens: Sequence[int], seeds: Sequence[int], finished: Any = None
    ) -> list[Completion]:
        time.sleep(0.2)
        zeros_T = np.zeros(1, np.float32)
        completions = [Completion(np.ones(1, np.int32), zeros_T, zeros_T, "end", 0) for _ in contexts]
        for i, completion in enumerate(completions):
            finished(i, completion)
        return completions

    def sync(self, policy: Any, version: int) -> None:
        pass


class Letters:
    """A tokenizer whose tokens are code points."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return list(map(ord, text))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return "".join(map(chr, token_ids))


def barrier() -> None:
    """Time 64 attempts of 8 turns, with 0.2 s of generation per batch and 0.5 s of tools per turn on average."""
    environment = Waiting(False)
    alone = [sum(0.2 + environment.seconds(i, turn) for turn in range(8)) for i in range(64)]
    for slow in (False, True):
        collector = Collector(Sleeping(), Waiting(slow), Letters(), 100)
        began = time.perf_counter()
        collector.run([Request(Problem(str(i), "x", ""), 8) for i in range(8)], Stream(0))
        print(f"{'own tool' if slow else 'barrier'}: {time.perf_counter() - began:.1f} s")
    print(f"an attempt alone takes {sum(alone) / 64:.1f} s on average, the longest {max(alone):.1f} s")
