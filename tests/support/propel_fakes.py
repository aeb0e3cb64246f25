"""Task generators without a model: a domain, texts in it, and an engine that writes them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from halfway.curriculum.tasks.lab.sums import SumsOptions
from halfway.trainers.engines.base import Completion
from halfway.trainers.propel.domains.sheets import Sums

DOMAIN = Sums(SumsOptions(2, 4, 0, 1))

TEXTS = ["^1/0a1b1=", "^1/0a2b1=", "^1/0a4b1=", "nonsense", "^1/0a3b1c1=", "^1/0a4b1c2="]


class FakeEngine:
    """An engine that writes the given texts, chosen by each sequence's seed, and counts its calls."""

    serves_all = False
    replicas = 1

    def __init__(self, tokenizer: Any, texts: Sequence[str], cut: frozenset[str] = frozenset()):
        self.tokenizer, self.texts, self.cut, self.calls = tokenizer, texts, cut, 0

    def generate(self, contexts: Sequence[Any], limits: Sequence[int], seeds: Sequence[int]) -> list[Completion]:
        self.calls += 1
        found = []
        for seed in seeds:
            text = self.texts[seed % len(self.texts)]
            tokens_T = np.asarray(self.tokenizer.encode(text, add_special_tokens=False), np.int32)
            zeros_T = np.zeros(len(tokens_T), np.float32)
            found.append(Completion(tokens_T, zeros_T, zeros_T, "length" if text in self.cut else "end", 0))
        return found

    def sync(self, policy: Any, version: int) -> None: ...
