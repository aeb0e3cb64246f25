"""Task sets of the package verifiers: their tasks become problems, their rewards verdicts.

A task set is code of an installed package, so it runs only with a word in HALFWAY_ACCEPT: in this process to load
tasks, in a helper to score responses.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Any

from halfway.curriculum import Message, Problem, Stream, UserError
from halfway.curriculum.support.acceptance import require_accepted
from halfway.curriculum.support.extras import one_line
from halfway.curriculum.tasks.data_files import Bad
from halfway.curriculum.tasks.files import keep_and_count, message_text
from halfway.curriculum.tasks.sources import Loaded, Source
from halfway.curriculum.tasks.verifiers.task_rewards import build_taskset, require_one_response


@dataclass(frozen=True)
class TaskSet(Source):
    """Single-response tasks of a task set of the package verifiers (0.4, `verifiers.v1`).

    A response passes if the weighted sum of the task's rewards is at least `passes_at`. A rollout whose rewards raise
    is lost, not failed. Task sets with tools, judges, hooks or rewards that need a runtime, containers or their own
    environment are refused. Needs HALFWAY_ACCEPT=taskset:NAME.

    A text prompt stays text, subject to `model.chat`; a system prompt or a list of messages needs a chat template.

    Attributes:
        name: name of the installed package for verifiers.
        config: options of the task set.
        heldout_config: options that replace some of these for the held-out problems; empty = one set for both.
        passes_at: lowest sum of rewards of a success.
    """

    name: str
    config: dict[str, Any] = field(default_factory=dict)
    heldout_config: dict[str, Any] = field(default_factory=dict)
    passes_at: float = 1.0

    def heldout(self) -> Source | None:
        changed = {**self.config, **self.heldout_config}
        return TaskSet(self.name, changed, passes_at=self.passes_at) if self.heldout_config else None

    def load(self, wanted: int | None, stream: Stream) -> Loaded:
        """Load all tasks of a finite task set, in an order by the stream and their keys; the first of an infinite one.

        Raises:
            UserError: if the task set is not accepted, missing or refused, raises, or has no task for one response.
        """
        with _errors(self.name):
            taskset = _open_taskset(self.name, json.dumps(self.config))
            if not taskset.bounded and wanted is None:
                raise UserError(f"source taskset: {self.name} is infinite; set problems.train to a number")
            tasks = iter(taskset) if taskset.bounded else islice(taskset, wanted)
            loaded = keep_and_count((f"{self.name}, task {i}", self._problem(task)) for i, task in enumerate(tasks))
        if not loaded.problems:
            why = loaded.report.examples[0] if loaded.report.examples else f"{self.name}: there is no task"
            raise UserError(f"source taskset: {why}; give another task set")
        key = stream.integer().to_bytes(8, "little")
        in_order = sorted(loaded.problems, key=lambda each: blake2b(each.id.encode(), key=key).digest())
        return Loaded(tuple(in_order) if taskset.bounded else loaded.problems, loaded.report)

    def _problem(self, task: Any) -> Problem | Bad:
        require_one_response(self.name, task)
        messages = _messages(task.data)
        if isinstance(messages, Bad):
            return messages
        data = task.data.model_dump(mode="json", exclude_defaults=True)
        if type(task.data).model_validate(data) != task.data:
            return Bad("task that JSON cannot hold")
        carried = {"taskset": self.name, "config": self.config, "passes_at": self.passes_at, "data": data}
        plain = len(messages) == 1 and isinstance(task.data.prompt, str)
        prompt, source = message_text(messages), f"taskset/{self.name}"
        answer = json.dumps(carried, sort_keys=True)
        shown = () if plain else messages
        return Problem(f"{self.name}-{task.key[:16]}", prompt, answer, source, "taskset", messages=shown)


def _messages(data: Any) -> tuple[Message, ...] | Bad:
    """The messages of a task: its system prompt, if it has one, and its prompt."""
    if not data.prompt:
        return Bad("task without a prompt")
    asked = [("user", data.prompt)] if isinstance(data.prompt, str) else [(m.role, m.content) for m in data.prompt]
    found = [Message("system", data.system_prompt)] if data.system_prompt else []
    for role, content in asked:
        parts: list[Any] = [content] if isinstance(content, str) else [getattr(each, "text", None) for each in content]
        if role == "tool" or not parts or None in parts:
            return Bad("task whose prompt is more than text", role)
        found.append(Message(role, "".join(parts)))
    return tuple(found)


@lru_cache(maxsize=8)
def _open_taskset(name: str, config: str) -> Any:
    """Load the task set of an accepted package. Raises UserError if it needs more than a response."""
    require_accepted(f"taskset:{name}", f"source taskset: {name}", "runs the code of that package")
    return build_taskset(name, config)


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """Turn a task set's exceptions while it loads into a UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"source taskset: {name} raised {one_line(error)}; correct its name or its config") from error
