"""Turns generated texts into problems, and records why others are not valid."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic

from halfway.curriculum import Problem
from halfway.trainers.propel.domains.domain import Domain, Invalid, Task
from halfway.trainers.propel.domains.oracles import Panel, PanelVerdict


@dataclass(frozen=True, slots=True)
class Candidate(Generic[Task]):
    """One generated text with its task and problem, or why it is not valid.

    Attributes:
        text: the generator's text.
        task: the parsed task; None if the text could not be parsed.
        problem: None if the text is not valid.
        invalid: None if the text is valid.
        topic: "" if the text could not be parsed.
        answers: the oracles' answers, if they were asked; "" = no answer.
        oracle_attempts: oracle attempts that this text cost; 0 if its problem came earlier in the same call.
    """

    text: str
    task: Task | None
    problem: Problem | None
    invalid: Invalid | None
    topic: str
    answers: tuple[str, ...] = ()
    oracle_attempts: int = 0

    @property
    def valid(self) -> bool:
        return self.problem is not None

    @property
    def well_formed(self) -> bool:
        """True if it follows the domain's rules; oracles do not matter."""
        return self.valid or bool(self.answers)


def read(
    domain: Domain[Task], texts: Sequence[str], panel: Panel | None = None, prompts: Sequence[str] | None = None
) -> list[Candidate[Task]]:
    """Parse and check texts, and make problems of them, in order. One call checks all texts that parse.

    Args:
        panel: gives answers to the problems of an open domain; None = they get none, and a text that follows the
            domain's rules is valid.
        prompts: the prompt of each text; None = not known.
    """
    candidates = _by_rules(domain, texts, prompts or [""] * len(texts))
    if panel is None or not domain.open:
        return candidates
    verdicts = iter(panel.settle([one.problem for one in candidates if one.problem is not None]))
    return [one if one.problem is None else _settled(one, next(verdicts)) for one in candidates]


def _settled(candidate: Candidate[Task], verdict: PanelVerdict) -> Candidate[Task]:
    invalid = verdict.outcome if isinstance(verdict.outcome, Invalid) else None
    problem = verdict.outcome if isinstance(verdict.outcome, Problem) else None
    return replace(
        candidate, problem=problem, invalid=invalid, answers=verdict.answers, oracle_attempts=verdict.attempts
    )


def _by_rules(domain: Domain[Task], texts: Sequence[str], prompts: Sequence[str]) -> list[Candidate[Task]]:
    parsed = [domain.parse(text, prompt) for text, prompt in zip(texts, prompts, strict=True)]
    checked = iter(domain.check([task for task in parsed if not isinstance(task, Invalid)]))
    candidates: list[Candidate[Task]] = []
    for text, task in zip(texts, parsed, strict=True):
        if isinstance(task, Invalid):
            candidates.append(Candidate(text, None, None, task, ""))
            continue
        result = next(checked)
        if isinstance(result, Invalid):
            candidates.append(Candidate(text, task, None, result, domain.topic(task)))
        else:
            candidates.append(Candidate(text, result, domain.problem(result), None, domain.topic(result)))
    return candidates
