"""Columns of widespread data sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from halfway.curriculum.tasks.data_files import column_names, value_at

CONVERSATION = "messages"
PROMPTS = ("prompt", CONVERSATION, "question", "problem", "input")
VERL_ANSWER = "reward_model.ground_truth"
PRIME_ANSWER = "verification_info.ground_truth"
ANSWERS = ("answer", VERL_ANSWER, PRIME_ANSWER, "final_answer", "expected_answer", "ground_truth", "label", "solution")
"""Columns of prompts and answers; the first one in a row counts."""
OPTIONS = ("choices", "options")
SOLUTION, LONGEST = "solution", 64
"""The column that may have a whole solution, and the most characters of its answer proper."""
MARK = "####"
"""The mark before the answer proper, at the end of GSM8K's solutions."""
BOX = "\\boxed"
"""The mark of the answer proper in MATH's solutions, which stands in braces."""


class Columns(Protocol):
    """Options of a source that a layout fills in if they have their defaults."""

    @property
    def prompt_column(self) -> str: ...
    @property
    def answer_column(self) -> str: ...
    @property
    def answer_after(self) -> str: ...
    @property
    def solution_column(self) -> str: ...


@dataclass(frozen=True)
class Layout:
    """A layout's name and its options. As text, one line about how rows are read."""

    name: str
    columns: Mapping[str, Any]

    def __str__(self) -> str:
        after = self.columns.get("answer_after")
        mark = f" after {after}" if after else ""
        return f"read as {self.name}: {self.columns['prompt_column']}, {self.columns['answer_column']}{mark}"


def recognised(rows: Sequence[Mapping[str, Any]], given: Columns) -> Layout | None:
    """Recognise the layout of a file's first rows; None if they have the given columns, or no known layout."""
    known = dict.fromkeys(name for row in rows for name in column_names(row))
    filled = {name: True for name in known if any(value_at(row, name) is not None for row in rows)}
    prompt = _first(filled, given.prompt_column, PROMPTS)
    answer = _first(known, given.answer_column, ANSWERS)
    if answer == SOLUTION != given.answer_column and not all(_is_final(value_at(row, answer)) for row in rows):
        answer = given.answer_column
    columns = {"prompt_column": prompt, "answer_column": answer}
    answers = [value for row in rows if isinstance(value := value_at(row, answer), str) and value.strip()]
    for mark in (MARK, BOX) if answer == SOLUTION else (MARK,):
        if not given.answer_after and 2 * sum(mark in value for value in answers) > len(answers):
            columns |= {"answer_after": mark, "solution_column": given.solution_column or answer}
            break
    if all(getattr(given, name) == value for name, value in columns.items()):
        return None
    return Layout(_name(known, columns), columns)


def unseen_options(rows: Sequence[Mapping[str, Any]], given: Columns) -> str:
    """Find the column of multiple-choice options that the prompts do not show; "" if there is none."""
    for name in OPTIONS:
        options = [(row, listed) for row in rows if (listed := _listed(row.get(name)))]
        shown = [_shows(value_at(row, given.prompt_column), listed) for row, listed in options]
        if shown and 2 * sum(shown) < len(shown):
            return name
    return ""


def _listed(value: Any) -> list[str]:
    """Options as texts, from a list, or a mapping by letters or with {"text": [...]}; otherwise empty."""
    if isinstance(value, Mapping):
        value = value["text"] if "text" in value else list(value.values())
    listed = isinstance(value, list) and len(value) > 1 and all(isinstance(each, str) for each in value)
    return value if listed else []


def _shows(prompt: Any, listed: Sequence[str]) -> bool:
    if isinstance(prompt, list):
        prompt = "\n".join(str(each.get("content")) for each in prompt if isinstance(each, Mapping))
    return isinstance(prompt, str) and all(each.strip() in prompt for each in listed)


def _is_final(solution: Any) -> bool:
    """True if the final answer of a solution is marked."""
    return not isinstance(solution, str) or len(solution) <= LONGEST or MARK in solution or BOX in solution


def _first(known: Mapping[str, Any], given: str, others: Sequence[str]) -> str:
    """The given column, unless it is the usual one and missing; then the first of the others, ignoring case."""
    if given in known or given != others[0]:
        return given
    return next((name for other in others for name in known if name.casefold() == other), given)


def _name(known: Mapping[str, Any], columns: Mapping[str, str]) -> str:
    if "answer_after" in columns:
        return "GSM8K" if columns["answer_after"] == MARK else "MATH"
    match columns["prompt_column"], columns["answer_column"]:
        case _, answer if answer == VERL_ANSWER:
            return "verl"
        case _, answer if answer == PRIME_ANSWER:
            return "prime-rl"
        case _, "label":
            return "OpenRLHF"
        case "question", "final_answer":
            return "DeepMath"
        case "problem", "answer" if "llama8b_solve_rate" in known:
            return "Big-Math"
        case (("prompt" | "messages"), _):
            return "TRL"
        case prompt, answer:
            return f"{prompt} and {answer}"
    raise AssertionError(columns)
