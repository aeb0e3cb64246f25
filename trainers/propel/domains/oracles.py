"""Reference answers for problems without one: an answer on which all attempts of several models agree.

PROPEL, section 4.2: two models make two attempts each, and a task is scored only if all four answers agree.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from msgspec import structs

from halfway.curriculum import Problem
from halfway.curriculum.tasks.verifiers.symbolic import equivalent
from halfway.trainers.propel.domains.domain import Invalid

BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")


class Oracle(Protocol):
    """A model whose answer counts if other models agree."""

    @property
    def attempts(self) -> int:
        """Number of responses to each problem."""
        ...

    def answer(self, problems: Sequence[Problem]) -> list[tuple[str, ...]]:
        """Write `attempts` responses to each problem, in order; a truncated response is "". The result is a function of
        the problem, so a verdict does not depend on earlier calls."""
        ...


@dataclass(frozen=True, slots=True)
class PanelVerdict:
    """The oracles' verdict on one problem.

    Attributes:
        outcome: the problem with its answer, or why it has none.
        answers: the final answers as written, oracle by oracle and attempt by attempt; "" = none.
        attempts: oracle attempts that this verdict cost; 0 if the same problem came earlier in the same call.
    """

    outcome: Problem | Invalid
    answers: tuple[str, ...]
    attempts: int


@dataclass(frozen=True)
class Panel:
    """A problem's oracles; its answer counts only if they agree."""

    oracles: tuple[Oracle, ...]

    def settle(self, problems: Sequence[Problem]) -> list[PanelVerdict]:
        """Return one verdict per problem, in order. Equal problems are asked once."""
        different = list({problem.id: problem for problem in problems}.values())
        responses = [oracle.answer(different) for oracle in self.oracles] if different else []
        verdicts = {
            problem.id: _verdict(problem, [response for of_oracle in of_problem for response in of_oracle])
            for problem, *of_problem in zip(different, *responses, strict=True)
        }
        found = []
        for problem in problems:
            found.append(verdicts[problem.id])
            verdicts[problem.id] = replace(verdicts[problem.id], attempts=0)
        return found


def _verdict(problem: Problem, responses: Sequence[str]) -> PanelVerdict:
    answers = tuple(final_answer(response) for response in responses)
    return PanelVerdict(_outcome(problem, answers), answers, len(responses))


def _outcome(problem: Problem, answers: Sequence[str]) -> Problem | Invalid:
    said = " | ".join(answer or "-" for answer in answers)
    if not all(answers):
        return Invalid("oracles: no answer", said)
    agreed = equivalent(answers)
    if agreed is None:
        return Invalid("oracles: unreadable answer", said)
    return structs.replace(problem, answer=f"\\boxed{{{answers[0]}}}") if agreed else Invalid("oracles: disagree", said)


def final_answer(response: str) -> str:
    """The content of the last \boxed{} in a response; "" if there is none or it is not closed."""
    boxes = list(BOX.finditer(response))
    if not boxes:
        return ""
    start, depth = boxes[-1].end(), 1
    for place in range(start, len(response)):
        if response[place] in "{}" and (place == 0 or response[place - 1] != "\\"):
            depth += 1 if response[place] == "{" else -1
            if depth == 0:
                return response[start:place].strip()
    return ""
