"""Diversity of a set of texts (PROPEL, section 4.1). The paper names no tokeniser, so ours is an option."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

Units = Literal["words", "characters"]
Gram = tuple[str, ...]

WORD = re.compile(r"\w+|[^\w\s]")
ORDER = 3
BLOCK = 16


def units(text: str, kind: Units) -> list[str]:
    """Split a text into the units of n-grams: words and punctuation marks, or characters."""
    return list(text) if kind == "characters" else WORD.findall(text)


def grams(parts: Sequence[str], order: int) -> Counter[Gram]:
    """Count each n-gram."""
    return Counter(tuple(parts[i : i + order]) for i in range(len(parts) - order + 1))


def distinct_3(texts: Sequence[str], kind: Units) -> float:
    """Different trigrams / all trigrams, over all texts together; NaN without trigrams.

    It falls with the number of texts, so compare sets of equal size.
    """
    found: Counter[Gram] = Counter()
    for text in texts:
        found.update(grams(units(text, kind), ORDER))
    return len(found) / found.total() if found else math.nan


def self_bleu_3(texts: Sequence[str], kind: Units) -> float:
    """Mean over texts of BLEU-3 with all other texts as references; NaN for fewer than two texts.

    BLEU of Papineni et al. 2002: geometric mean of the clipped precisions of 1- to 3-grams, times the brevity penalty
    by the nearest length. A text without a match of some order, or shorter than that order, scores 0.

    It grows with the number of texts, and saturates: among hundreds of short texts of one format nearly every trigram
    occurs somewhere, so the figure is near 1 even if the texts do not repeat each other. See `block_self_bleu_3`.
    """
    if len(texts) < 2:
        return math.nan
    parts = [units(text, kind) for text in texts]
    lengths = Counter(map(len, parts))
    counts = [[grams(part, order) for part in parts] for order in range(1, ORDER + 1)]
    most = [_two_largest(of_order) for of_order in counts]
    scores = []
    for i, part in enumerate(parts):
        precisions = [_precision(counts[n][i], most[n], i) for n in range(ORDER)]
        scores.append(_brevity(len(part), lengths) * _geometric_mean(precisions))
    return sum(scores) / len(scores)


def block_self_bleu_3(texts: Sequence[str], kind: Units, size: int = BLOCK) -> float:
    """Mean Self-BLEU-3 of consecutive blocks of `size` texts, without a shorter last block; NaN with fewer texts.

    Ours: every text has size - 1 references, so the figure does not grow with the number of texts and saturates later.
    """
    blocks = [texts[i : i + size] for i in range(0, len(texts) - size + 1, size)]
    return sum(self_bleu_3(block, kind) for block in blocks) / len(blocks) if blocks else math.nan


def top_share(topics: Sequence[str]) -> float:
    """Share of the commonest topic among all texts; "" = no topic, which is never the commonest."""
    found = Counter(topic for topic in topics if topic)
    return max(found.values(), default=0) / len(topics) if topics else math.nan


Largest = dict[Gram, tuple[int, int, int]]


def _two_largest(counts: Sequence[Counter[Gram]]) -> Largest:
    """For every n-gram: its largest count in a text, that text, and its largest count in another text."""
    found: Largest = {}
    for i, of_text in enumerate(counts):
        for gram, count in of_text.items():
            first, holder, second = found.get(gram, (0, -1, 0))
            found[gram] = (count, i, first) if count > first else (first, holder, max(second, count))
    return found


def _precision(own: Counter[Gram], most: Largest, i: int) -> float:
    """Share of a text's n-grams that also occur in another text, each counted at most as often as it occurs there."""
    matched = 0
    for gram, count in own.items():
        first, holder, second = most[gram]
        matched += min(count, second if holder == i else first)
    return matched / own.total() if own else 0.0


def _brevity(length: int, lengths: Counter[int]) -> float:
    others = lengths - Counter([length])
    nearest = min(others, key=lambda other: (abs(other - length), other))
    return 1.0 if length >= nearest else math.exp(1 - nearest / length) if length else 0.0


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if all(values) else 0.0
