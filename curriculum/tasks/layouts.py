"""Columns of widespread data sets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from halfway.curriculum.tasks.data_files import column_names, mapping_in, value_at
from halfway.curriculum.tasks.verifiers.verify import ANY_OF

GYM_PROMPT = "responses_create_params.input"
CONVERSATIONS = ("messages", "conversations", "conversation", "context_messages", GYM_PROMPT)
"""Columns of messages, perhaps with the response of a supervised data set."""
BODY, QUESTION = "body", "question"
"""SVAMP's columns of the story and of the question about it."""
INSTRUCTION, CONTEXT, OUTPUT = "instruction", "input", "output"
"""Alpaca's columns of prompts, of texts after them, and of answers."""
PROMPTS = ("prompt", *CONVERSATIONS, "question", "problem", "query", INSTRUCTION, "input", "0.value")
VERL_ANSWER = "reward_model.ground_truth"
TARGETS, GOLDEN, VERIFIER = f"{VERL_ANSWER}.target", "golden_answers", "verifier"
"""Columns of Search-R1's answers, which are lists, and the option that they fill in."""
ANSWERS = {
    "answer": "",
    TARGETS: "Search-R1",
    VERL_ANSWER: "verl",
    "reward_spec.ground_truth": "SkyRL",
    "verification_info.ground_truth": "prime-rl",
    "verifier_metadata.expected_answer": "NeMo Gym",
    "final_answer": "",
    "expected_answer": "",
    "reference_answer": "",
    "ground_truth_answer": "",
    "ground_truth.value": "ORZ",
    "1.ground_truth.value": "ORZ",
    "ground_truth": "",
    "label": "OpenRLHF",
    GOLDEN: "",
    "answerkey": "",
    "solution": "",
    OUTPUT: "",
}
"""Columns of prompts and answers, of which the first one in a row counts; whose layout it is, if the name tells."""
FINAL = ("final_answer", "expected_answer", "reference_answer", "ground_truth_answer")
"""Columns of final answers, which count before a column "answer" of whole solutions."""
NAMES = {"prompt": "TRL", "messages": "TRL", "conversations": "ShareGPT", GYM_PROMPT: "NeMo Gym", INSTRUCTION: "Alpaca"}
"""Whose layout it is, by the column of prompts."""
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
    def context_column(self) -> str: ...
    @property
    def answer_after(self) -> str: ...
    @property
    def solution_column(self) -> str: ...
    @property
    def verifier(self) -> str: ...


@dataclass(frozen=True)
class Layout:
    """A layout's name and its options. As text, one line about how rows are read."""

    name: str
    columns: Mapping[str, Any]

    def __str__(self) -> str:
        after = self.columns.get("answer_after")
        mark = f" after {after}" if after else ""
        read = [
            self.columns[name] for name in ("prompt_column", "context_column", "answer_column") if name in self.columns
        ]
        several = "; any one of a row's answers is right" if VERIFIER in self.columns else ""
        return f"read as {self.name}: {', '.join(read)}{mark}{several}"


def recognise(rows: Sequence[Mapping[str, Any]], given: Columns) -> Layout | None:
    """Recognise the layout of a file's first rows; None if they have the given columns, or no known layout."""
    known = dict.fromkeys(name for row in rows for name in column_names(row))
    filled = {name: True for name in known if any(value_at(row, name) is not None for row in rows)}
    prompt = _first(filled, given.prompt_column, PROMPTS)
    answer = _first(known, given.answer_column, ANSWERS)
    if answer == TARGETS and not all(isinstance(value_at(row, answer), list) for row in rows):
        answer = VERL_ANSWER
    if answer == next(iter(ANSWERS)) and (texts := answers_at(rows, answer)) and all(map(_is_prose, texts)):
        answer = next((name for name in FINAL if answers_at(rows, name)), answer)
    prose = answer == SOLUTION and not all(_is_final(value_at(row, answer)) for row in rows)
    if prose or (answer == OUTPUT and prompt != INSTRUCTION):  # elsewhere, the response of a model
        answer = given.answer_column
    columns = {"prompt_column": prompt, "answer_column": answer}
    if prompt == INSTRUCTION and CONTEXT in known and not given.context_column:
        columns["context_column"] = CONTEXT
    if answer in (TARGETS, GOLDEN) and not given.verifier.startswith(ANY_OF):
        columns[VERIFIER] = f"{ANY_OF}({given.verifier})"
    story = next((name for name in known if name.casefold() == BODY), "")
    if story and prompt.casefold() == QUESTION and not given.context_column:
        columns |= {"prompt_column": story, "context_column": prompt}
    answers = answers_at(rows, answer)
    for mark in (MARK, BOX) if answer == SOLUTION else (MARK,):
        if not given.answer_after and 2 * sum(mark in value for value in answers) > len(answers):
            columns |= {"answer_after": mark, "solution_column": given.solution_column or answer}
            break
    if all(getattr(given, name) == value for name, value in columns.items()):
        return None
    return Layout(_name(known, columns), columns)


def answers_at(rows: Sequence[Mapping[str, Any]], column: str) -> list[str]:
    """The texts of a column in the rows that have one."""
    return [value for row in rows if isinstance(value := value_at(row, column), str) and value.strip()]


def unseen_options(rows: Sequence[Mapping[str, Any]], given: Columns) -> str:
    """Find the column of multiple-choice options that the prompts do not show; "" if there is none."""
    for name in OPTIONS:
        options = [(row, listed) for row in rows if (listed := _list_options(row.get(name)))]
        shown = [_shows(value_at(row, given.prompt_column), listed) for row, listed in options]
        if shown and 2 * sum(shown) < len(shown):
            return name
    return ""


def are_objects(rows: Sequence[Mapping[str, Any]], given: Columns) -> bool:
    """True if most answers are JSON objects in text, such as the tests of programs."""
    answers = answers_at(rows, given.answer_column)
    return 2 * sum(answer.startswith("{") and bool(mapping_in(answer)) for answer in answers) > len(answers)


def _list_options(value: Any) -> list[str]:
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
    return not isinstance(solution, str) or not _is_prose(solution)


def _is_prose(text: str) -> bool:
    """True if a text is long and marks no final answer."""
    return len(text) > LONGEST and MARK not in text and BOX not in text


def _first(known: Mapping[str, Any], given: str, others: Iterable[str]) -> str:
    """The given column, unless it is the usual one and missing; then the first of the others, ignoring case."""
    if given in known or given != next(iter(others)):
        return given
    return next((name for other in others for name in known if name.casefold() == other), given)


def _name(known: Mapping[str, Any], columns: Mapping[str, str]) -> str:
    if "answer_after" in columns:
        return "GSM8K" if columns["answer_after"] == MARK else "MATH"
    match columns["prompt_column"], columns["answer_column"]:
        case _, answer if name := ANSWERS.get(answer):
            return name
        case prompt, _ if name := NAMES.get(prompt):
            return name
        case "question", "final_answer":
            return "DeepMath"
        case "problem", "answer" if "llama8b_solve_rate" in known:
            return "Big-Math"
        case prompt, answer:
            return f"{prompt} and {answer}"
    raise AssertionError(columns)
