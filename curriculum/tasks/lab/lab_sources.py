"""The lab's tasks as problem sources, drawn endlessly from a stream."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from halfway.curriculum import Problem, Stream, require
from halfway.curriculum.tasks.lab import ledger, operators, sums
from halfway.curriculum.tasks.sources import Loaded, Source, content_id, distinct

Facts = Mapping[str, float | str | tuple[float, ...]]


class LabSource(Source):
    """Problems of one of the lab's tasks, whose verifier or environment has the task's name."""

    task: ClassVar[str]

    def load(self, wanted: int | None, stream: Stream) -> Loaded:
        return distinct(self.task, wanted, self._draws(random.Random(stream.integer())))

    def _draws(self, rng: random.Random) -> Iterator[Problem]:
        raise NotImplementedError

    def _problem(self, prompt: str, answer: str, facts: Facts, solution: str = "") -> Problem:
        identifier = content_id(self.task, prompt, answer)
        return Problem(identifier, prompt, answer, self.task, self.task, facts, solution=solution)


@dataclass(frozen=True)
class RunningSums(sums.SumsOptions, LabSource):
    """Sheets of running sums, the single-turn lab task, with the task's own options.

    Answer and reference solution are a sheet without a wrong line; the marker accepts others too.
    """

    task: ClassVar[str] = "running_sums"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_lines(self.task, self.min_lines, self.max_allowed)

    def _draws(self, rng: random.Random) -> Iterator[Problem]:
        while True:
            sheet = sums.make_sheet(self, rng)
            prompt, answer = sums.render(sheet), sums.demonstrate(sheet, sums.FLAWLESS, rng)
            yield self._problem(prompt, answer, sums.facts(sheet), answer)


@dataclass(frozen=True)
class OperatorSheets(operators.OperatorOptions, LabSource):
    """Operator sheets, the lab task of many skills, with the task's own options.

    The strata take turns, so that the first problems, which are held out, contain equally many of each, and so does the
    training set. Answer and reference solution are the sheet without a wrong line; the marker accepts others too. The
    features:

    - `stratum`: the stratum of the sheet's central operator, such as "A-D"; easiest first in alphabetical order.
    - `category`: the stratum and the number of lines, such as "A-D/5".
    - `lines`, `allowed`: as in the prompt.
    - `teacher_rate`: the exact chance that the teacher of the starting policy passes.
    - `expert_rate`: the same chance for a teacher with a third of its errors.
    - `operators`: a vector, the number of lines with operator A, B, ...
    - `table`: number of the operators' table, unless it is 0.
    """

    task: ClassVar[str] = "operator_sheets"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_lines(self.task, self.min_lines, self.max_allowed)

    def _draws(self, rng: random.Random) -> Iterator[Problem]:
        seen: set[str] = set()
        while True:
            stratum = self.strata[len(seen) % len(self.strata)]  # a repeated sheet does not count as a turn
            sheet = operators.make_sheet(self, stratum, rng)
            prompt, answer = operators.render(sheet), operators.solve(sheet, self.table)
            seen.add(prompt)
            yield self._problem(prompt, answer, operators.facts(sheet, stratum, self.table), answer)


@dataclass(frozen=True)
class LedgerAccounts(ledger.LedgerOptions, LabSource):
    """Accounts for the ledger environment, which judges them itself, with the task's own options."""

    task: ClassVar[str] = "ledger"

    def _draws(self, rng: random.Random) -> Iterator[Problem]:
        while True:
            account = ledger.make_account(self, rng)
            prompt, answer = ledger.render(account), f"{account.target:02d}"
            slack = account.turns_left - ledger.least_turns(account.balance, account.target)
            distance = abs(account.target - account.balance)
            facts: dict[str, float | str] = {"stratum": f"slack {slack}", "distance": distance, "slack": slack}
            yield self._problem(prompt, answer, facts)


def _require_lines(task: str, least: int, allowed: int) -> None:
    require(allowed < least, f"{task}.max_allowed", allowed, "stay below min_lines, or an empty sheet would pass")
