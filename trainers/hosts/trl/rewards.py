"""Wraps reward functions, so that the session records what came back."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from halfway.curriculum.support.errors import UserError
from halfway.trainers.hosts.hosting import Hosting
from halfway.trainers.hosts.outcomes import Judge, rollout_of
from halfway.trainers.hosts.rows import TICKET
from halfway.trainers.hosts.trl.late_rows import SLOT, START, START_TEXT
from halfway.trainers.hosts.trl.rollout_func import PROMPT, REPLAYED

OURS = frozenset({TICKET, START, START_TEXT, SLOT, PROMPT, REPLAYED})

Reward = Callable[..., Any]


class Observer:
    """Wraps reward functions: all of them see whole responses, and one of them decides what a success is.

    Every process records the rollouts of all processes, so that their sessions stay equal.

    Attributes:
        ends: tokens that end a response; empty until training begins.
    """

    def __init__(self, hosting: Hosting, judge: Judge):
        self.hosting, self.judge = hosting, judge
        self.ends: frozenset[int] = frozenset()

    def wrap(self, reward: Reward, judges: bool) -> Reward:
        """The reward function, wrapped so that it is shown whole responses, including what was replayed.

        Args:
            judges: whether its values decide what a success is. If so, its calls in training record the rollouts and
                commit the step.
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
        mine = [Scored(*row) for row in zip(inputs[TICKET], map(number, rewards), tokens, replayed, strict=True)]
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
    """A scored rollout, in the form that processes exchange."""

    ticket: str
    reward: float | None
    tokens: list[int]
    replayed: int


def number(reward: Any) -> float | None:
    return None if reward is None else float(reward)


def in_training(inputs: dict[str, Any]) -> bool:
    """Whether these inputs belong to training rollouts of the session; TRL calls rewards in evaluation too."""
    tickets = inputs.get(TICKET)
    return tickets is not None and len(tickets) > 0 and tickets[0] is not None


def seen(inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs that a reward function is shown: the row's own prompt, the whole response, and none of our columns."""
    shown = {name: value for name, value in inputs.items() if name not in OURS}
    if not in_training(inputs):
        return shown
    if PROMPT in inputs:
        # Changed in place, so that TRL's own log shows these prompts and not the placeholders.
        shown["prompts"][:] = inputs[PROMPT]
    if START in inputs:
        starts, texts = inputs[START], inputs[START_TEXT]
        shown["prompts"] = [
            prompt.removesuffix(text) if text else prompt for prompt, text in zip(inputs["prompts"], texts, strict=True)
        ]
        shown["completions"] = [text + rest for text, rest in zip(texts, inputs["completions"], strict=True)]
        shown["completion_ids"] = [start + rest for start, rest in zip(starts, inputs["completion_ids"], strict=True)]
    return shown


def judging(rewards: Sequence[Any], success: Any) -> int:
    """The index of the reward function that decides what a success is: the one named by `success`, or the only one.

    Raises:
        UserError: if `success` is None and there is not exactly one function, or it names none of the functions.
    """
    names = [getattr(reward, "__name__", str(reward)) for reward in rewards]
    if success is None:
        candidates = [i for i, reward in enumerate(rewards) if is_function(reward)]
        if len(candidates) == 1:
            return candidates[0]
        raise UserError(
            f"success: name the one of {', '.join(names)} that is 1 for a success and 0 otherwise, for example "
            f"success={names[0]!r}"
        )
    positions = [i for i, reward in enumerate(rewards) if success is reward or success == names[i]]
    if not positions or not is_function(rewards[positions[0]]):
        raise UserError(f"success: {success!r} is not one of the reward functions {', '.join(names)}; name one of them")
    return positions[0]


def is_function(reward: Any) -> bool:
    """Whether the reward is a function and not a reward model."""
    return callable(reward) and not hasattr(reward, "forward")
