"""Ledger: a stateful task of several turns, with an account in the environment.

The prompt states the balance, the target and the number of turns allowed:

    @37>52:4=           balance 37, reach 52 within 4 turns

Each turn the policy gives one command and sees its effect:

    +9 -> 46|    -3 -> 43|    +0 or nonsense -> ?|    ! ends the episode

The episode succeeds if the balance equals the target when the policy says "!". The turn of the "!" counts too, and
balances outside 0..99 are refused. A wasted turn hurts but is not fatal: the policy can recover from a bad start.
"""

import random
import re
from dataclasses import dataclass
from typing import NamedTuple

from halfway.curriculum import UserError

PROMPT = re.compile(r"@(\d\d)>(\d\d):(\d)=")
COMMAND = re.compile(r"([+-])([1-9])")
REFUSED = "?|"
DONE = "!"


class Account(NamedTuple):
    """The state of an episode: balance, target and turns left."""

    balance: int
    target: int
    turns_left: int


class Outcome(NamedTuple):
    """The effect of a command. `success` is None until the episode ends."""

    account: Account
    observation: str
    success: bool | None


@dataclass(frozen=True)
class LedgerOptions:
    """Options of the problems to draw.

    Attributes:
        min_distance, max_distance: bounds on the absolute difference between target and start, drawn uniformly.
        min_slack, max_slack: bounds on the number of turns beyond the fewest that suffice, drawn uniformly.
        highest: largest start or target balance; a policy soon memorises a small number of balances.
    """

    min_distance: int = 2
    max_distance: int = 14
    min_slack: int = 0
    max_slack: int = 2
    highest: int = 29

    def __post_init__(self) -> None:
        if not 1 <= self.min_distance <= self.max_distance <= self.highest <= 99:
            raise UserError(
                f"ledger: min_distance {self.min_distance}, max_distance {self.max_distance}, highest {self.highest}; "
                "they must increase, from 1 to at most 99"
            )
        if not 0 <= self.min_slack <= self.max_slack:
            raise UserError(f"ledger: min_slack {self.min_slack}, max_slack {self.max_slack}; give 0 <= min <= max")
        if (turns := least_turns(0, self.max_distance) + self.max_slack) > 9:
            raise UserError(
                f"ledger: problems may need {turns} turns, and a prompt can express at most 9; lower max_distance or "
                "max_slack"
            )


@dataclass(frozen=True)
class LedgerTeacher:
    """The flawed teacher of the warm start.

    Attributes:
        stride: largest amount it uses, below the allowed nine, so that it cannot pass the tightest problems.
        misjudge: chance of an amount that is off by one or two.
        wrong_way: chance of the wrong sign.
        give_up: chance of ending at a wrong balance when it is within two of the target.
    """

    stride: int = 5
    misjudge: float = 0.4
    wrong_way: float = 0.07
    give_up: float = 0.4


def least_turns(start: int, target: int) -> int:
    """Fewest turns from start to target, in commands of at most nine, with the final "!"."""
    return -(-abs(target - start) // 9) + 1


def make_account(options: LedgerOptions, rng: random.Random) -> Account:
    """Draw one problem."""
    distance = rng.randint(options.min_distance, options.max_distance)
    low = rng.randrange(options.highest + 1 - distance)
    start, target = (low, low + distance) if rng.random() < 0.5 else (low + distance, low)
    return Account(start, target, least_turns(start, target) + rng.randint(options.min_slack, options.max_slack))


def render(account: Account) -> str:
    """Write the prompt of an episode."""
    return f"@{account.balance:02d}>{account.target:02d}:{account.turns_left}="


def parse(prompt: str) -> Account:
    """The inverse of `render`. Raises ValueError for text that is not a prompt of this task."""
    match = PROMPT.fullmatch(prompt)
    if match is None:
        raise ValueError(f"not a ledger prompt: {prompt!r}")
    return Account(*(int(number) for number in match.groups()))


def execute(account: Account, command: str) -> Outcome:
    """Execute one command. A pure function: equal accounts and commands give equal outcomes."""
    turns_left = account.turns_left - 1
    if command == DONE:
        return Outcome(account._replace(turns_left=turns_left), "", account.balance == account.target)
    match = COMMAND.fullmatch(command)
    balance = account.balance + int(command) if match else -1
    accepted = 0 <= balance <= 99
    after = Account(balance if accepted else account.balance, account.target, turns_left)
    if turns_left == 0:
        return Outcome(after, "", False)
    return Outcome(after, f"{balance:02d}|" if accepted else REFUSED, None)


def demonstrate(account: Account, teacher: LedgerTeacher, rng: random.Random) -> list[tuple[str, str]]:
    """Play an episode like the teacher: one (command, observation) per turn."""
    turns: list[tuple[str, str]] = []
    success: bool | None = None
    while success is None:
        command = _command(account, teacher, rng)
        account, observation, success = execute(account, command)
        turns.append((command, observation))
    return turns


def _command(account: Account, teacher: LedgerTeacher, rng: random.Random) -> str:
    difference = account.target - account.balance
    near = abs(difference) <= 2
    if difference == 0 or (near and rng.random() < teacher.give_up):
        return DONE
    amount = min(teacher.stride, abs(difference))
    if rng.random() < teacher.misjudge:
        amount += rng.choice((-2, -1, 1))
    sign = "+" if (difference > 0) != (rng.random() < teacher.wrong_way) else "-"
    return f"{sign}{max(1, min(9, amount))}"
