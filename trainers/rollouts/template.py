"""Renders chat templates. A template is a program from the model's author, so it runs in a process with limits.

The process imports only this module of the run.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from halfway.curriculum import UserError
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.tasks.verifiers.helpers import Unjudged, get_helpers

SECONDS = 20.0
MODULES = (__name__, "transformers.utils.chat_template_utils")
LIMITS = {"processes": 1, "memory_mib": 512, "max_reply": 2**24}
MOST_ADDED, MOST_TIMES = 1 << 18, 10
"""Characters that a template may add to the messages, and how often it may repeat the messages."""


def render(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> str:
    """Render messages with the tokenizer's chat template, up to the start of the response.

    Raises:
        UserError: if the template refuses the messages, or takes too much time, memory or text.
    """
    try:
        task = (tokenizer.get_chat_template(), messages, tokenizer.special_tokens_map)
        (text,) = get_helpers(*MODULES, **LIMITS).map(f"{__name__}:write", [task], SECONDS)
    except ValueError as error:
        raise UserError(f"model.path: its chat template refuses a prompt: {error}") from error
    if isinstance(text, Unjudged):
        why = f"more than {SECONDS:.0f} s" if text.reason == "time" else "too much memory"
        raise UserError(f"model.path: its chat template needs {why}; give another model")
    return str(text)


def write(template: str, messages: list[dict[str, str]], special: dict[str, Any]) -> str:
    """Like `render`, inside the limited process."""
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        rendered: Any = render_jinja_template([messages], chat_template=template, add_generation_prompt=True, **special)
    except MemoryError:
        raise
    except Exception as error:  # a template may raise anything
        raise ValueError(one_line(error)) from error
    ((text,), _) = rendered
    if len(text) > MOST_ADDED + MOST_TIMES * sum(len(message["content"]) for message in messages):
        raise ValueError(f"it wrote {len(text):,} characters")
    return str(text)
