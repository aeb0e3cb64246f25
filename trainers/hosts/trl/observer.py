"""Wraps reward functions so that the session records the rollouts."""

import functools
import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from halfway.curriculum import UserError
from halfway.trainers.hosts.hosting import Hosting
from halfway.trainers.hosts.outcomes import Judge, rollout_of
from halfway.trainers.hosts.rows import TICKET
from halfway.trainers.hosts.trl.late_rows import SLOT, START, START_TEXT
from halfway.trainers.hosts.trl.rollout_func import PROMPT, REPLAYED

OURS = frozenset({TICKET, START, START_TEXT, SLOT, PROMPT, REPLAYED})

Reward = Callable[..., Any]


class Observer:
    """Wraps reward functions: all see whole responses, and one decides success.

    When all functions have judged a batch, the rollouts are recorded and the step is committed. Every process records
    the rollouts of all processes, so that their sessions stay equal.

    Attributes:
        rewards: TRL's rewards: functions, and models, whose values Halfway does not see.
        judging: index of the function that decides success.
        weights: TRL's weight of each reward.
        summed: whether TRL sums rewards before it normalises them.
        ends: tokens that end a response; empty until training begins.
    """

    def __init__(
        self,
        hosting: Hosting,
        judge: Judge,
        rewards: Sequence[Any],
        judging: int,
        weights: Sequence[float] | None = None,
        summed: bool = True,
    ):
        self.hosting, self.judge, self.rewards, self.judging = hosting, judge, rewards, judging
        self.weights, self.summed = list(weights or [1.0] * len(rewards)), summed
        self.ends: frozenset[int] = frozenset()
        self._values: dict[int, list[float | None]] = {}

    def wrapped(self) -> list[Any]:
        """The rewards for TRL; wrapped functions see whole responses, replayed tokens included."""
        return [self._wrap(i, reward) if is_function(reward) else reward for i, reward in enumerate(self.rewards)]

    def _wrap(self, position: int, reward: Reward) -> Reward:
        async def wait(**inputs: Any) -> Any:
            rewards = await reward(**seen(inputs))
            self._take(position, rewards, inputs)
            return rewards

        def call(**inputs: Any) -> Any:
            rewards = reward(**seen(inputs))
            self._take(position, rewards, inputs)
            return rewards

        chosen: Any = wait if is_async(reward) else call
        functools.update_wrapper(chosen, reward)
        chosen.__name__ = name_of(reward)
        return chosen  # type: ignore[no-any-return]

    def _take(self, position: int, rewards: Any, inputs: dict[str, Any]) -> None:
        """Keep a function's rewards of a training batch; after the last function, record the batch.

        Raises:
            UserError: if a function did not return one reward per response.
        """
        if not in_training(inputs):
            return
        name, wanted = name_of(self.rewards[position]), len(inputs["completion_ids"])
        if len(rewards) != wanted:
            raise UserError(f"reward {name}: returned {len(rewards)} values; return {wanted}, one per response")
        self._values[position] = [number(reward) for reward in rewards]
        if len(self._values) == sum(map(is_function, self.rewards)):
            self._record(inputs)
            self._values.clear()

    def _record(self, inputs: dict[str, Any]) -> None:
        from accelerate.utils import gather_object

        num = len(inputs["completion_ids"])
        starts = inputs.get(START, [[]] * num)
        replayed = inputs.get(REPLAYED) or [len(start) for start in starts]
        tokens = [start + done for start, done in zip(starts, inputs["completion_ids"], strict=True)]
        judged = self._values[self.judging]
        mine = [
            Scored(*row) for row in zip(inputs[TICKET], judged, tokens, replayed, self._list_trained(num), strict=True)
        ]
        version = int(inputs["trainer_state"].global_step)
        trained_of: defaultdict[str, list[tuple[float, ...]]] = defaultdict(list)
        for scored in gather_object(mine):
            success = self.judge.success(scored.reward)
            if success is None:
                self.hosting.record(scored.ticket, None)
                continue
            rollout = rollout_of(scored.tokens, success, scored.reward, self.ends, version, scored.replayed)
            self.hosting.record(scored.ticket, rollout)
            trained_of[scored.ticket].append(scored.trained)
        seen_whole = all(map(is_function, self.rewards))
        outcomes = {
            ticket: "trained" if varies(rows) or not seen_whole else "zero_variance"
            for ticket, rows in trained_of.items()
        }
        self.hosting.commit(version, outcomes)
        for name, value in self.hosting.metrics().items():
            inputs["log_metric"](name, value)

    def _list_trained(self, num: int) -> list[tuple[float, ...]]:
        """The values that TRL trains each response on: the sum of its weighted rewards, or each by itself."""
        rows = []
        for i in range(num):
            parts = [
                0.0 if (value := values[i]) is None or math.isnan(value) else self.weights[position] * value
                for position, values in sorted(self._values.items())
            ]
            rows.append((sum(parts),) if self.summed else tuple(parts))
        return rows


def varies(rows: Sequence[tuple[float, ...]]) -> bool:
    """True if the trained values of a group's responses differ by more than TRL's tolerance."""
    return any(max(values) - min(values) > 1e-8 for values in zip(*rows, strict=True))


class Scored(NamedTuple):
    """A scored rollout, as the processes exchange it."""

    ticket: str
    reward: float | None
    tokens: list[int]
    replayed: int
    trained: tuple[float, ...]


def name_of(reward: Any) -> str:
    """The name under which TRL logs a reward: the function's, a partial's function's, or an instance's class."""
    while isinstance(reward, functools.partial):
        reward = reward.func
    return str(getattr(reward, "__name__", type(reward).__name__))


def is_async(reward: Any) -> bool:
    """True if calling the reward returns a coroutine, for functions, partials and instances with `__call__`."""
    while isinstance(reward, functools.partial):
        reward = reward.func
    return inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(type(reward).__call__)


def number(reward: Any) -> float | None:
    return None if reward is None else float(reward)


def in_training(inputs: dict[str, Any]) -> bool:
    """True if these inputs belong to training rollouts of the session; TRL calls rewards in evaluation too."""
    tickets = inputs.get(TICKET)
    return tickets is not None and len(tickets) > 0 and tickets[0] is not None


def seen(inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs of a user's reward function: the row's own prompt, the whole response, and none of our columns."""
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


def find_judge(rewards: Sequence[Any], success: Any) -> int:
    """Index of the reward function that decides success: the one named by `success`, or the only one.

    Raises:
        UserError: if `success` is None and there is not exactly one function, or it names none of the functions.
    """
    names = [name_of(reward) for reward in rewards]
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
    """True if the reward is a function and not a reward model."""
    return callable(reward) and not hasattr(reward, "forward")
