"""Tokenizers that add special tokens to plain text, beside chat templates that write a BOS or none."""

import copy
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

TEMPLATE = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}system:default<end>#{% endif %}"
    "{{ m.role }}:{{ m.content }}<end>#{% endfor %}{% if add_generation_prompt %}bot:{% endif %}"
)
TEMPLATES = {"writes BOS": "{{ bos_token }}" + TEMPLATE, "writes none": TEMPLATE}
ENDS: dict[str, tuple[list[str], list[str]]] = {
    "none": ([], []),
    "BOS": (["<begin>"], []),
    "EOS": ([], ["<end>"]),
    "BOS and EOS": (["<begin>"], ["<end>"]),
}
"""What a tokenizer puts before plain text, and what behind it."""


def matrix(test: Any) -> Any:
    """Run a test with each of them: `ends` of ENDS, `template` of TEMPLATES."""
    return pytest.mark.parametrize("ends", ENDS)(pytest.mark.parametrize("template", TEMPLATES)(test))


def tokenizer_that(tiny_tokenizer: Any, ends: str, template: str) -> Any:
    """A copy of the tests' tokenizer that knows small letters, with a BOS token."""
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.add_tokens(list("qrstuvwxyz"))
    tokenizer.add_special_tokens({"bos_token": "<begin>"})
    first, last = ENDS[ends]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=[*first, "$A", *last],
        special_tokens=[(token, tokenizer.convert_tokens_to_ids(token)) for token in ("<begin>", "<end>")],
    )
    tokenizer.chat_template = TEMPLATES[template]
    return tokenizer
