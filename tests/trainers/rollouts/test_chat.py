"""Message prompts: read from files, rendered by a chat template, answered by an environment."""

import copy
import json
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import says
from msgspec import structs
from special_tokens import ENDS, TEMPLATE, matrix, tokenizer_that

from halfway.curriculum import Hint, Origin, Problem, Request, Stream, UserError
from halfway.curriculum.problems import Message
from halfway.curriculum.rollouts import IntArray
from halfway.curriculum.tasks.files import File, write_problems
from halfway.trainers.rollouts import template
from halfway.trainers.rollouts.chat import Prompts

ASKED = Problem("p", "2+3", "5", messages=(Message("user", "2+3"),))


@pytest.fixture
def tokenizer(tiny_tokenizer: Any) -> Any:
    chatty = copy.deepcopy(tiny_tokenizer)
    chatty.add_tokens(list("qrstuvwxyz"))
    chatty.chat_template = TEMPLATE
    return chatty


def text(tokenizer: Any, tokens: Any) -> str:
    return str(tokenizer.decode(tokens.tolist(), skip_special_tokens=False))


def response(tokenizer: Any, end: str) -> IntArray:
    return np.asarray(tokenizer.encode(f"6{end}", add_special_tokens=False), np.int32)


def test_messages_go_through_the_template_and_plain_text_does_not(tokenizer: Any) -> None:
    prompts = Prompts(tokenizer)
    assert text(tokenizer, prompts.of_problem(ASKED)) == "system:default<end>#user:2+3<end>#bot:"
    plain = Problem("p", "2+3", "5")
    assert text(tokenizer, prompts.of_problem(plain)) == "2+3"
    assert text(tokenizer, prompts.of_observation(plain, "no", response(tokenizer, "<end>"))) == "no"
    assert prompts.of_problem(ASKED).tolist()[14] == tokenizer.eos_token_id  # one token, not its characters


@matrix
def test_prompts_have_the_special_tokens_that_transformers_gives_them(
    tiny_tokenizer: Any, ends: str, template: str
) -> None:
    """Base models such as Llama and Gemma need their BOS; a template that writes one must not get a second."""
    tokenizer, (first, last) = tokenizer_that(tiny_tokenizer, ends, template), ENDS[ends]
    prompts, plain = Prompts(tokenizer), Problem("p", "2+3", "5")
    assert prompts.of_problem(plain).tolist() == tokenizer("2+3")["input_ids"]
    assert prompts.show(plain) == "".join([*first, "2+3", *last])
    asked = [{"role": "user", "content": "2+3"}]
    expected = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert prompts.of_problem(ASKED).tolist() == expected
    assert prompts.show(ASKED).count("<begin>") == (template == "writes BOS")
    # What follows in the middle of a sequence gets none.
    hint = Hint("6", 1, place="response")
    assert text(tokenizer, prompts.of_start(Request(plain, 2, Origin.HINTED, hint=hint))) == "6"
    assert text(tokenizer, prompts.of_observation(plain, "no", response(tokenizer, "<end>"))) == "no"


def test_plain_text_can_be_wrapped_with_a_system_message(tokenizer: Any) -> None:
    prompts = Prompts(tokenizer, wrap=True, system="add")
    assert text(tokenizer, prompts.of_problem(Problem("p", "2+3", "5"))) == "system:add<end>#user:2+3<end>#bot:"
    own = Problem("p", "", "", messages=(Message("system", "sum"), Message("user", "1+1")))
    assert text(tokenizer, prompts.of_problem(own)) == "system:sum<end>#user:1+1<end>#bot:"


def test_an_observation_is_what_the_template_writes_after_a_response(tokenizer: Any) -> None:
    prompts = Prompts(tokenizer)
    read = text(tokenizer, prompts.of_problem(ASKED))
    after = text(tokenizer, prompts.of_observation(ASKED, "try again", response(tokenizer, "<end>")))
    assert after == "#user:try again<end>#bot:"
    whole = [{"role": "user", "content": "2+3"}, {"role": "bot", "content": "6"}]
    whole.append({"role": "user", "content": "try again"})
    assert read + "6<end>" + after == tokenizer.apply_chat_template(whole, tokenize=False, add_generation_prompt=True)


def test_a_template_that_leaves_out_earlier_responses_is_refused(tokenizer: Any) -> None:
    """The conversation would be written twice."""
    tokenizer.chat_template = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    with pytest.raises(UserError, match=says("model.path", "leaves out earlier responses", "model.chat")):
        Prompts(tokenizer).of_observation(ASKED, "no", response(tokenizer, "<end>"))


def test_the_token_that_ended_a_response_is_not_written_again_whichever_it_is(tokenizer: Any) -> None:
    """Gemma's turns end with another token than its eos_token."""
    tokenizer.add_special_tokens({"additional_special_tokens": ["<turn>"]})
    tokenizer.chat_template = TEMPLATE.replace("<end>", "<turn>")
    after = Prompts(tokenizer).of_observation(ASKED, "try again", response(tokenizer, "<turn>"))
    assert text(tokenizer, after) == "#user:try again<turn>#bot:"


def test_a_tokenizer_without_a_template_or_a_template_that_refuses_costs_one_line(
    tokenizer: Any, tiny_tokenizer: Any
) -> None:
    with pytest.raises(UserError, match=says("model.path", "chat template")):
        Prompts(tiny_tokenizer, system="add").of_problem(ASKED)
    tokenizer.chat_template = "{{ raise_exception('no user here') }}"
    with pytest.raises(UserError, match=says("chat template", "no user here")):
        Prompts(tokenizer).of_problem(ASKED)
    tokenizer.chat_template = "{{ '+' * 2000000 }}"
    with pytest.raises(UserError, match=says("chat template", "2,000,000 characters")):
        Prompts(tokenizer).of_problem(ASKED)


def test_a_base_model_reads_the_question_of_a_lone_message(tokenizer: Any, tiny_tokenizer: Any) -> None:
    """Files made for verl and TRL ask in messages, and the tokenizers of many base models have no template."""
    tokenizer.chat_template = None
    for prompts in (Prompts(tiny_tokenizer), Prompts(tokenizer)):
        assert text(tokenizer, prompts.of_problem(ASKED)) == "2+3"
        assert text(tokenizer, prompts.of_observation(ASKED, "no", response(tokenizer, "<end>"))) == "no"
    for messages in (
        (Message("system", "add"), Message("user", "2+3")),
        (Message("user", "2+3"), Message("assistant", "6"), Message("user", "no")),
    ):
        with pytest.raises(UserError, match=says("model.path", "chat template")):
            Prompts(tiny_tokenizer).of_problem(structs.replace(ASKED, messages=messages))


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("{{ '%3000000000d' % 1 }}", "too much memory"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "more than 2 s"),
    ],
)
def test_a_template_that_never_ends_or_fills_the_memory_costs_one_line(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, written: str, reason: str
) -> None:
    monkeypatch.setattr(template, "SECONDS", 2.0)
    tokenizer.chat_template = written
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=says("model.path", "chat template", reason)):
        Prompts(tokenizer).of_problem(ASKED)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 256 * 1024
    tokenizer.chat_template = TEMPLATE
    assert text(tokenizer, Prompts(tokenizer).of_problem(ASKED)).startswith("system:")


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_hold_messages(tmp_path: Path) -> None:
    turns = [{"role": "system", "content": "add"}, {"role": "user", "content": "2+3"}]
    path = write(
        tmp_path / "rows.jsonl", {"prompt": turns, "answer": "5"}, {"prompt": turns[1:], "answer": "5"},
        {"prompt": "2+4", "answer": "6"},
    )  # fmt: skip
    problems = {p.prompt: p for p in File(str(path)).load(None, Stream(0)).problems}
    assert set(problems) == {"system: add\n\nuser: 2+3", "2+3", "2+4"}
    assert problems["2+3"].messages == (Message("user", "2+3"),)
    assert problems["2+4"].messages == ()
    copied = str(tmp_path / "copy.jsonl")
    write_problems(problems.values(), copied)
    again = File(copied, name="rows", id_column="id", verifier_column="verifier").load(None, Stream(0)).problems
    assert {p.prompt: p for p in again} == problems


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([{"role": "user"}], "role.*content"),
        (["2+3", "4"], "prompt is not text"),
        ([], "prompt.*end"),
        ([{"role": "assistant", "content": "5"}], "prompt.*end"),
    ],
)
def test_bad_messages_are_refused(tmp_path: Path, prompt: Any, message: str) -> None:
    path = write(tmp_path / "rows.jsonl", {"prompt": prompt, "answer": "5"}, {"prompt": "1", "answer": "1"})
    with pytest.raises(UserError, match=message):
        File(str(path)).load(None, Stream(0))
