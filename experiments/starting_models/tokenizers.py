"""The tokenizers of the lab's policies: one character per token, or one integer per token."""

from collections.abc import Sequence
from typing import Any

from halfway.curriculum.tasks.lab import operators, sums
from halfway.trainers.propel.domains import functions

PAD, END = "_", "$"
VOCABULARY = (*(PAD + END + "^@0123456789+-=/>:?|!" + sums.LABELS),)
"""The tokens of running sums and the ledger."""

OPERATORS = (*(PAD + END + "^/=01234567" + operators.LABELS + operators.OPERATORS),)
"""The tokens of operator sheets."""

LARGEST = functions.RESULTS[-1]
MARKS = "!x+-*/%()<>=ie,:"
INTEGERS = (
    *(PAD, END, *MARKS),
    *(str(number) for number in range(LARGEST + 1)),
    *(f",{number}" for number in functions.INPUTS),
    *(f":{number}" for number in functions.RESULTS),
)
"""The tokens of function induction. In the ranges of the lab, a number is one token, with or without a comma or colon
before it; any other number is several tokens. Equal texts have equal tokens, which joined restore the text."""


def by_character() -> Any:
    """A character-level tokenizer for running sums and the ledger; "$" ends a turn."""
    return _tokenizer(VOCABULARY, ".")


def by_operator() -> Any:
    """A character-level tokenizer for operator sheets; "$" ends a turn."""
    return _tokenizer(OPERATORS, ".")


def by_integer() -> Any:
    """A tokenizer for short function induction; "$" ends a turn."""
    # The first alternative that matches is taken, so longer alternatives come first.
    words = sorted((word for word in INTEGERS if len(word) > 1), key=lambda word: (-len(word), word))
    return _tokenizer(INTEGERS, "|".join([*words, "."]))


def _tokenizer(vocabulary: Sequence[str], pattern: str) -> Any:
    import transformers
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast: Any = transformers.PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)
