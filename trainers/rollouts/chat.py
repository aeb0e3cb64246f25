"""Turns prompts and observations into tokens, as plain text or through the tokenizer's chat template."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from msgspec import structs

from halfway.curriculum import NO_TOKENS, IntArray, Message, Problem, Request, UserError
from halfway.curriculum.support.extras import blaming, one_line
from halfway.trainers.model_folder import catching_panics
from halfway.trainers.rollouts.template import render

# A placeholder response, to see the template's text after a response.
MARK = "\N{BLACK SQUARE}response\N{BLACK SQUARE}"


class Tokenizer(Protocol):
    """The part of a tokenizer that we need; tokenizers of `transformers` have it."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...
    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str: ...


@dataclass(frozen=True)
class Prompts:
    """Encodes problems and the environment's observations as the model expects them.

    A plain prompt is encoded as `tokenizer(prompt)` does, special tokens such as BOS included. Messages go through the
    tokenizer's chat template, whose text has all special tokens and gets no second BOS; an observation becomes a user
    message. The last tokens of a templated prompt open the response. If the tokenizer has no template, a single user
    message without `system` is encoded as plain text.

    Attributes:
        tokenizer: a tokenizer of `transformers`, or one like it.
        wrap: whether to make a user message of a plain-text prompt.
        system: system message for messages without one; empty = the template decides.
    """

    tokenizer: Tokenizer
    wrap: bool = False
    system: str = ""

    def of_problem(self, problem: Problem) -> IntArray:
        """Encode the problem's prompt.

        Raises:
            UserError: if the prompt is messages and the tokenizer has no chat template, or the template refuses them.
        """
        if not self._chats(problem):
            return self._encode(problem.prompt, special=True)
        return self._encode(self._render(self._messages(problem)))

    def of_request(self, request: Request) -> IntArray:
        """Encode the request's prompt: the problem's prompt, followed by the hint if it belongs in the prompt."""
        problem, hint = request.problem, request.hint
        if hint is None or hint.place == "response":
            return self.of_problem(problem)
        added = hint.opening + hint.text
        *before, last = problem.messages or (Message("user", problem.prompt),)
        messages = (*before, replace(last, content=last.content + added)) if problem.messages else ()
        return self.of_problem(structs.replace(problem, prompt=problem.prompt + added, messages=messages))

    def of_start(self, request: Request) -> IntArray:
        """Encode a hint that starts the response; no tokens if there is none."""
        hint = request.hint
        return self._encode(hint.text) if hint is not None and hint.place == "response" else NO_TOKENS

    def of_text(self, prompt: str) -> IntArray:
        """Like `of_problem`, for a prompt alone."""
        return self.of_problem(Problem("", prompt, ""))

    def show(self, problem: Problem) -> str:
        """The problem's prompt as the model reads it: its tokens decoded, special tokens included."""
        return self.tokenizer.decode(self.of_problem(problem).tolist(), skip_special_tokens=False)

    def of_observation(self, problem: Problem, text: str, response_T: IntArray) -> IntArray:
        """Encode the environment's answer to a response.

        Args:
            response_T: the response. The template's copy of its last token, the end token, is left out.

        Raises:
            UserError: if the chat template leaves out earlier responses.
        """
        if not self._chats(problem):
            return self._encode(text)
        rendered = self._render([*self._messages(problem), Message("assistant", MARK), Message("user", text)])
        if MARK not in rendered:
            raise UserError(
                "model.path: its chat template leaves out earlier responses, which episodes of several turns need; "
                "give a model whose template keeps them, or plain prompts with model.chat=messages"
            )
        ending = self.tokenizer.decode(response_T[-1:].tolist(), skip_special_tokens=False)
        return self._encode(rendered.rpartition(MARK)[2].removeprefix(ending))

    def _chats(self, problem: Problem) -> bool:
        """Whether to render a prompt with the chat template; without a template, a lone question stays plain text."""
        tokenizer: Any = self.tokenizer
        bare = len(problem.messages) == 1 and problem.messages[0].role == "user" and not self.system
        return self.wrap or (bool(problem.messages) and not (bare and tokenizer.chat_template is None))

    def _messages(self, problem: Problem) -> list[Message]:
        messages = list(problem.messages) or [Message("user", problem.prompt)]
        needed = self.system and messages[0].role != "system"
        return [Message("system", self.system), *messages] if needed else messages

    def _render(self, messages: Sequence[Message]) -> str:
        tokenizer: Any = self.tokenizer
        if tokenizer.chat_template is None:
            raise UserError(
                "model.path: its tokenizer has no chat template, which model.chat=all, model.system and conversations "
                "need; give a model with one, or prompts of one question"
            )
        plain = [{"role": message.role, "content": message.content} for message in messages]
        return render(tokenizer, plain)

    def _encode(self, text: str, special: bool = False) -> IntArray:
        what = f"problems: the model's tokenizer cannot encode {one_line(text)}"
        # It panics at a costly pattern, and without an unknown token raises an exception of its library.
        with blaming(what, "change the prompt, or take another model.path", Exception), catching_panics():
            return np.asarray(self.tokenizer.encode(text, add_special_tokens=special), np.int32)
