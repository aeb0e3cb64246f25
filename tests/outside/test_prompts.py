"""Public reports about prompts: what a policy should read, with tokenizers and templates made here."""

from typing import Any

import numpy as np
import pytest
from special_tokens import tokenizer_that

from halfway.curriculum import Problem
from halfway.curriculum.problems import Message
from halfway.trainers.rollouts.chat import Prompts

ASKED = Problem("p", "2+3", "5", messages=(Message("user", "2+3"),))
LATE_BOS = (
    "{% set state = namespace(begun=false) %}{% for m in messages %}{% if not state.begun %}{{ bos_token }}"
    "{% set state.begun = true %}{% endif %}{{ m.role }}:{{ m.content }}{% endfor %}bot:"
)


@pytest.fixture
def tokenizer(tiny_tokenizer: Any) -> Any:
    """Adds BOS to plain text; its template writes BOS, an end token and a separator."""
    return tokenizer_that(tiny_tokenizer, "BOS", "writes BOS")


@pytest.mark.parametrize("template", [None, LATE_BOS])
def test_nemo_rl_855_open_r1_462_a_template_that_writes_bos_gives_one(template: str | None, tokenizer: Any) -> None:
    """One that writes it inside a loop, too, where no text of the template begins with it."""
    tokenizer.chat_template = template or tokenizer.chat_template
    ids = Prompts(tokenizer).of_problem(ASKED).tolist()
    assert ids.count(tokenizer.bos_token_id) == 1 and ids[0] == tokenizer.bos_token_id


def test_trl_3644_a_prompt_keeps_the_special_tokens_of_its_template(tokenizer: Any) -> None:
    assert Prompts(tokenizer).show(ASKED) == "<begin>system:default<end>#user:2+3<end>#bot:"


def test_verl_6501_verifiers_476_a_second_turn_has_separator_and_header(tokenizer: Any) -> None:
    """What a policy reads in its second turn is the template's text of the whole conversation, token for token."""
    prompts, response = Prompts(tokenizer), "6<end>"
    written = np.asarray(tokenizer.encode(response, add_special_tokens=False), np.int32)
    read = [*prompts.of_problem(ASKED), *written, *prompts.of_observation(ASKED, "no", written)]
    whole = [("user", "2+3"), ("bot", "6"), ("user", "no")]
    messages = [{"role": role, "content": content} for role, content in whole]
    wanted = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert list(map(int, read)) == wanted


def test_visualthinker_6_a_base_model_without_a_template_reads_the_question(tokenizer: Any) -> None:
    tokenizer.chat_template = None
    assert Prompts(tokenizer).show(ASKED) == "<begin>2+3"
