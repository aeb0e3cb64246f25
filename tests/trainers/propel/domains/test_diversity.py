"""Diversity metrics against values worked out by hand."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfway.trainers.propel.domains.diversity import block_self_bleu_3, distinct_3, self_bleu_3, top_share, units


def test_units_are_words_and_marks_or_characters() -> None:
    assert units("a+b = 12", "words") == ["a", "+", "b", "=", "12"]
    assert units("a+b", "characters") == ["a", "+", "b"]


def test_distinct_3_by_hand() -> None:
    assert distinct_3(["abcd", "abce"], "characters") == 3 / 4  # abc, bcd, abc, bce
    assert distinct_3(["abc"] * 10, "characters") == 1 / 10
    assert math.isnan(distinct_3(["ab"], "characters"))


def test_self_bleu_of_copies_and_of_strangers() -> None:
    assert self_bleu_3(["one two three four"] * 3, "words") == pytest.approx(1.0)
    assert self_bleu_3(["abcd", "efgh"], "characters") == 0.0
    assert math.isnan(self_bleu_3(["alone"], "words"))


def test_self_bleu_by_hand() -> None:
    # "abcde" against "abcxyz": 1-grams abc of 5, 2-grams ab bc of 4, 3-gram abc of 3; shorter: exp(1 - 6/5).
    first = math.exp(1 - 6 / 5) * (3 / 5 * 2 / 4 * 1 / 3) ** (1 / 3)
    second = (3 / 6 * 2 / 5 * 1 / 4) ** (1 / 3)
    assert self_bleu_3(["abcde", "abcxyz"], "characters") == pytest.approx((first + second) / 2)


def test_self_bleu_clips_by_the_reference_with_most() -> None:
    # "aaaa" matches at most the three a of "aaab": 3/4, 2/3, 1/2. "aaab": aaa 3/4, aa 2/3, aaa 1/2.
    expected = (3 / 4 * 2 / 3 * 1 / 2) ** (1 / 3)
    assert self_bleu_3(["aaaa", "aaab"], "characters") == pytest.approx(expected)


@given(st.lists(st.text("abc", min_size=3, max_size=8), min_size=2, max_size=6))
def test_self_bleu_against_the_plain_definition(texts: list[str]) -> None:
    def bleu(text: str, references: list[str]) -> float:
        product = 1.0
        for order in (1, 2, 3):
            own = [text[i : i + order] for i in range(len(text) - order + 1)]
            kinds = set(own)
            most = {g: max(sum(r[i : i + order] == g for i in range(len(r))) for r in references) for g in kinds}
            product *= sum(min(own.count(g), most[g]) for g in kinds) / len(own)
        nearest = min((abs(len(r) - len(text)), len(r)) for r in references)[1]
        return product ** (1 / 3) * (1.0 if len(text) >= nearest else math.exp(1 - nearest / len(text)))

    expected = sum(bleu(text, texts[:i] + texts[i + 1 :]) for i, text in enumerate(texts)) / len(texts)
    assert self_bleu_3(texts, "characters") == pytest.approx(expected)


def test_self_bleu_of_blocks_is_the_mean_over_whole_blocks() -> None:
    texts = ["abcde", "abcxyz", "aaaa", "aaab", "left over"]
    expected = (self_bleu_3(texts[:2], "characters") + self_bleu_3(texts[2:4], "characters")) / 2
    assert block_self_bleu_3(texts, "characters", size=2) == pytest.approx(expected)
    assert math.isnan(block_self_bleu_3(texts, "characters", size=6))


def test_self_bleu_saturates_where_that_of_blocks_does_not() -> None:
    rng = random.Random(0)
    texts = ["".join(rng.choices("abcdef", k=20)) for _ in range(480)]
    repeated = [rng.choice(texts[:8]) for _ in range(480)]
    assert self_bleu_3(texts, "characters") > 0.99  # and cannot tell these
    of_few, of_many = (block_self_bleu_3(those, "characters") for those in (texts[:96], texts))
    assert of_few == pytest.approx(of_many, abs=0.02) and of_many < 0.9
    assert block_self_bleu_3(repeated, "characters") > of_many + 0.05


def test_top_share_is_that_of_the_commonest_topic_among_all_texts() -> None:
    assert top_share(["a", "b", "a", ""]) == 0.5
    assert top_share(["", "", "a"]) == pytest.approx(1 / 3)
    assert top_share(["", ""]) == 0.0
