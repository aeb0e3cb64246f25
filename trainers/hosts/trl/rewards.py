"""Reward functions that tell the session what came back."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from halfway.curriculum.support.errors import UserError
from halfway.trainers.hosts.hosting import Hosting
from halfway.trainers.hosts.outcomes import Judge, rollout_of
from halfway.trainers.hosts.rows import TICKET
from halfway.trainers.hosts.trl.late_rows import SLOT, START, START_TEXT
from halfway.trainers.hosts.trl.rollouts import PROMPT, REPLAYED

OURS = frozenset({TICKET, START, START_TEXT, SLOT, PROMPT, REPLAYED})

Reward = Callable[..., Any]


class Observer:
    """Wraps reward functions: they see whole responses, and one of them tells what a success is.

    All processes learn all outcomes, so that their sessions stay equal.

    Attributes:
        ends: tokens with which a response ends; known once training begins.
    """

    def __init__(self, hosting: Hosting, judge: Judge):
        self.hosting, self.judge = hosting, judge
        self.ends: frozenset[int] = frozenset()

    def wrap(self, reward: Reward, judges: bool) -> Reward:
        """The same function of whole responses.

        Args:
            judges: whether its values say what a success is.
        """
        if inspect.iscoroutinefunction(reward):

            @functools.wraps(reward)
            async def waited(**inputs: Any) -> Any:
                rewards = await reward(**seen(inputs))
                self._observe(rewards, inputs, judges)
                return rewards

            return waited

        @functools.wraps(reward)
        def wrapped(**inputs: Any) -> Any:
            rewards = reward(**seen(inputs))
            self._observe(rewards, inputs, judges)
            return rewards

        return wrapped

    def _observe(self, rewards: Sequence[float | None], inputs: dict[str, Any], judges: bool) -> None:
        if not judges or not in_training(inputs):
            return
        from accelerate.utils import gather_object

        num = len(rewards)
        starts = inputs.get(START, [[]] * num)
        replayed = inputs.get(REPLAYED) or [len(start) for start in starts]
        tokens = [start + done for start, done in zip(starts, inputs["completion_ids"], strict=True)]
        mine = [Scored(*each) for each in zip(inputs[TICKET], map(number, rewards), tokens, replayed, strict=True)]
        version = int(inputs["trainer_state"].global_step)
        for scored in gather_object(mine):
            success = self.judge.success(scored.reward)
            if success is None:
                self.hosting.record(scored.ticket, None)
                continue
            rollout = rollout_of(scored.tokens, success, scored.reward, self.ends, version, scored.replayed)
            self.hosting.record(scored.ticket, rollout)
        self.hosting.commit(version)
        for name, value in self.hosting.metrics().items():
            inputs["log_metric"](name, value)


class Scored(NamedTuple):
    """A rollout as it travels between processes."""

    ticket: str
    reward: float | None
    tokens: list[int]
    replayed: int


def number(reward: Any) -> float | None:
    return None if reward is None else float(reward)


def in_training(inputs: dict[str, Any]) -> bool:
    """Whether these are rollouts of the session: TRL asks for rewards in evaluation too."""
    tickets = inputs.get(TICKET)
    return tickets is not None and len(tickets) > 0 and tickets[0] is not None


def seen(inputs: dict[str, Any]) -> dict[str, Any]:
    """What a reward function is given: the row's own prompt and the whole response, and no column of ours."""
    given = {name: value for name, value in inputs.items() if name not in OURS}
    if not in_training(inputs):
        return given
    if PROMPT in inputs:
        # In place, so that TRL's own log shows these prompts and not the placeholders.
        given["prompts"][:] = inputs[PROMPT]
    if START in inputs:
        starts, texts = inputs[START], inputs[START_TEXT]
        given["prompts"] = [
            prompt.removesuffix(text) if text else prompt for prompt, text in zip(inputs["prompts"], texts, strict=True)
        ]
        given["completions"] = [text + rest for text, rest in zip(texts, inputs["completions"], strict=True)]
        given["completion_ids"] = [start + rest for start, rest in zip(starts, inputs["completion_ids"], strict=True)]
    return given


def judging(rewards: Sequence[Any], success: Any) -> int:
    """Which reward says what a success is: the one that is named, or the only one.

    Raises:
        UserError: if there are several and none is named, or the one named is none of them.
    """
    names = [getattr(reward, "__name__", str(reward)) for reward in rewards]
    if success is None:
        candidates = [i for i, reward in enumerate(rewards) if is_function(reward)]
        if len(candidates) == 1:
            return candidates[0]
        raise UserError(
            f"success: say which of {', '.join(names)} is 1 for a success and 0 else, such as success={names[0]!r}"
        )
    found = [i for i, reward in enumerate(rewards) if success is reward or success == names[i]]
    if not found or not is_function(rewards[found[0]]):
        raise UserError(f"success: {success!r} is none of the reward functions {', '.join(names)}; name one of them")
    return found[0]


def is_function(reward: Any) -> bool:
    """Whether it is a function, and no reward model."""
    return callable(reward) and not hasattr(reward, "forward")
