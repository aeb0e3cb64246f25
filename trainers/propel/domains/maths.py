"""Competition-style mathematics as text: the generator writes a problem, oracles agree on its answer.

PROPEL, section 4.2. The paper publishes neither prompts nor rules for a valid problem nor topics; these are ours.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

from halfway.curriculum import Problem, Stream, UserError, require
from halfway.curriculum.support.blocks import find_between
from halfway.curriculum.support.extras import blaming, one_line
from halfway.curriculum.tasks.sources import content_id
from halfway.trainers.propel.domains.domain import Invalid

BEGIN = "!"
ASK = """\
Write a new competition-style mathematics problem, in the style of these two:

<problem>
{first}
</problem>

<problem>
{second}
</problem>

The new problem stands alone, without a picture, and asks for one exact value, a number or a closed expression, not \
for a proof. Write only the problem, without a solution, between <problem> and </problem>.
"""
INSTRUCTION = "Reason step by step, and put the final answer in \\boxed{}."

# Three pools in the styles that the paper names: school exercises, competitions, invitational competitions.
POOLS: Mapping[str, tuple[str, ...]] = {
    "school": (
        "A bakery sells rolls in bags of 6 and bags of 10. Mira buys 4 small bags and 3 large ones, and gives a third "
        "of all rolls to her neighbour. How many rolls does she keep?",
        "A train leaves at 9:40 and travels 84 km at 56 km per hour. It then waits 15 minutes. How many minutes after "
        "9:40 does the waiting end?",
        "Tickets cost 8 dollars for adults and 5 dollars for children. A group of 11 pays 70 dollars. How many "
        "children are in the group?",
    ),
    "competition": (
        "Find the sum of all real numbers $x$ with $|x-3| = 2|x+1|$.",
        "A fair die is rolled three times. What is the probability that the three results are strictly increasing?",
        "What is the largest integer $n$ for which $n^2 - 10n + 21$ is negative?",
    ),
    "invitational": (
        "Find the number of ordered pairs of positive integers $(a, b)$ with $a + b = 360$ and $\\gcd(a, b) = 12$.",
        "In triangle $ABC$ we have $AB = 13$, $BC = 14$ and $CA = 15$. A circle through $A$ touches $BC$ at its "
        "midpoint. Find the square of its radius.",
        "Let $S$ be the set of integers from 1 to 100 whose binary digits alternate. Find the sum of the elements of "
        "$S$.",
    ),
}

ANSWERED = re.compile(r"\\boxed|\b(?:answer|solution)\s*[:=]", re.IGNORECASE)
PROOF = re.compile(r"\b(?:dis)?prove\b|\bshow that\b|\bgive a proof\b", re.IGNORECASE)
PICTURE = re.compile(
    r"\[asy\]|\\includegraphics|\b(?:in|see|from) the (?:figure|diagram|picture|image)\b"
    r"|\b(?:figure|diagram|picture|image|graph) (?:above|below|shown)\b",
    re.IGNORECASE,
)
QUESTION = re.compile(
    r"\?|\b(?:find|compute|determine|evaluate|calculate|simplify|solve|express|factor|expand)\b", re.IGNORECASE
)
DOLLAR = re.compile(r"(?<!\\)\$")
NUMBER = re.compile(r"\d+(?:\.\d+)?")

# Word stems by topic; the topic with most hits wins, the first at a tie.
TOPICS: Mapping[str, re.Pattern[str]] = {
    topic: re.compile(rf"\b(?:{stems})", re.IGNORECASE)
    for topic, stems in {
        "geometry": "triang|circl|radi(?:us|i)|angle|polygon|rectang|squares? with|perimeter|area|volume|sphere|cube",
        "probability": r"probabilit|random|dice?\b|coin|expected|cards?\b",
        "counting": "how many ways|arrang|permut|combinat|subset|ordered pairs|number of ways|choose",
        "number theory": "integer|divis|prime|gcd|lcm|remainder|modulo|digit|factors?|multiple",
        "calculus": "derivativ|integral|limit|differentia|maximi[sz]e|minimi[sz]e",
        "sequences": "sequence|series|arithmetic progression|geometric progression|recurren|fibonacci",
        "rates": "per (?:hour|minute|day|week)|speed|mph|km/h|travel|minutes|hours|miles",
        "trade": r"cost|price|dollar|sells?\b|buys?\b|profit|discount|percent|cents?",
        "algebra": "equation|polynomial|roots?|function|real numbers?|variable|matrix|logarithm|inequal",
    }.items()
}


@dataclass(frozen=True, slots=True)
class MathsTask:
    """A mathematics problem as text; its answer comes from oracles."""

    question: str


@dataclass(frozen=True)
class Maths:
    """Competition-style text tasks, whose answers oracles give (see `halfway.trainers.propel.domains.oracles`).

    Attributes:
        syntax: "tagged" = the problem is between tags, for a pretrained generator with a prompt in words; "plain" = the
            text is the problem, for a model trained from scratch.
        examples_path: JSONL file of example problems, with rows {"prompt": text, "pool": text}. The generator's prompt
            shows two from one pool, and every pool is used equally often. Empty = nine problems of our own ("tagged"
            only).
        instruction: the text after the problem, for the solver and the oracles.
        min_characters, max_characters: bounds on a problem's length.
    """

    name: ClassVar[str] = "maths"
    open: ClassVar[bool] = True
    syntax: Literal["tagged", "plain"] = "tagged"
    examples_path: str = ""
    instruction: str = INSTRUCTION
    min_characters: int = 20
    max_characters: int = 2_000

    def __post_init__(self) -> None:
        fewest, most = self.min_characters, self.max_characters
        require(fewest >= 1, "maths.min_characters", fewest, "give at least 1")
        require(most >= fewest, "maths.max_characters", most, f"give at least {fewest}, which is min_characters")
        tagged = self.syntax == "tagged" or not self.examples_path
        require(tagged, "maths.examples_path", self.examples_path, "leave it out; syntax=plain shows no examples")

    def prompt(self, stream: Stream) -> str:
        if self.syntax == "plain":
            return BEGIN
        pools = example_pools(self.examples_path)
        pool = pools[sorted(pools)[stream.at("pool").integer() % len(pools)]]
        first, second = stream.at("examples").generator().choice(len(pool), 2, replace=False).tolist()
        return ASK.format(first=pool[first], second=pool[second])

    def parse(self, text: str, prompt: str = "") -> MathsTask | Invalid:
        """Parse the text and apply the rules; none of them runs code."""
        question = self._question(text)
        if isinstance(question, Invalid):
            return question
        if len(question) < self.min_characters:
            return Invalid("too short", f"{len(question)} characters, at least {self.min_characters}")
        if len(question) > self.max_characters:
            return Invalid("too long", f"{len(question)} characters, at most {self.max_characters}")
        return _broken_rule(question) or self._copied(question) or MathsTask(question)

    def _question(self, text: str) -> str | Invalid:
        if self.syntax == "plain":
            return text.strip()
        blocks = find_between(text.rpartition("</think>")[2], "<problem>", "</problem>")
        if not blocks:
            return Invalid("unreadable", one_line(text))
        return blocks[0].strip() if len(blocks) == 1 else Invalid("not one problem", f"{len(blocks)} blocks")

    def _copied(self, question: str) -> Invalid | None:
        known = () if self.syntax == "plain" else _known(self.examples_path)
        return Invalid("copies an example", one_line(question)) if _plain(question) in known else None

    def check(self, tasks: Sequence[MathsTask]) -> list[MathsTask | Invalid]:
        return list(tasks)

    def problem(self, task: MathsTask) -> Problem:
        """Make the problem, without an answer. Its id comes from the question, which has at most one answer."""
        prompt = f"{task.question}\n\n{self.instruction}" if self.instruction else task.question
        features: dict[str, float | str] = {
            "characters": len(task.question),
            "numbers": len(NUMBER.findall(task.question)),
            "topic": self.topic(task),
        }
        return Problem(content_id(self.name, prompt, ""), prompt, "", self.name, "symbolic", features)

    def topic(self, task: MathsTask) -> str:
        """The topic whose words occur most, such as "geometry"; "other" if none does."""
        hits = {topic: len(stems.findall(task.question)) for topic, stems in TOPICS.items()}
        best = max(hits, key=lambda topic: hits[topic])
        return best if hits[best] else "other"


def _broken_rule(question: str) -> Invalid | None:
    for reason, pattern in (("gives its answer", ANSWERED), ("asks for a proof", PROOF), ("needs a picture", PICTURE)):
        found = pattern.search(question)
        if found is not None:
            return Invalid(reason, found[0])
    if QUESTION.search(question) is None:
        return Invalid("asks nothing", one_line(question))
    bare = question.replace("\\{", "").replace("\\}", "")
    # Without a command or a brace, an odd number of dollars is money.
    odd = len(DOLLAR.findall(question)) % 2 == 1 and any(mark in question for mark in "\\{}")
    if odd or bare.count("{") != bare.count("}"):
        return Invalid("broken LaTeX", one_line(question))
    return None


def _plain(question: str) -> str:
    """Keep letters and digits only: other spacing or punctuation does not make a new problem."""
    return "".join(character for character in question.casefold() if character.isalnum())


@lru_cache(maxsize=16)
def _known(path: str) -> frozenset[str]:
    return frozenset(_plain(text) for pool in example_pools(path).values() for text in pool)


@lru_cache(maxsize=16)
def example_pools(path: str) -> Mapping[str, Sequence[str]]:
    """Read the example problems for the generator's prompt, by pool.

    Args:
        path: path of a JSONL file; "" = the questions in this module.

    Raises:
        UserError: if the file cannot be read, a row has no prompt, or a pool has fewer than two problems.
    """
    if not path:
        return POOLS
    pools: dict[str, list[str]] = {}
    with blaming(f"maths.examples_path: {path!r} cannot be read", "give a JSONL file", OSError, UnicodeDecodeError):
        lines = Path(path).read_text().splitlines()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            pool, text = _row(line, f"maths.examples_path: {path}:{number}")
            pools.setdefault(pool, []).append(text)
    for name, texts in pools.items():
        require(len(texts) >= 2, "maths.examples_path", path, f"pool {name!r} has {len(texts)} problem; give two")
    require(bool(pools), "maths.examples_path", path, "the file holds no problem; give at least two")
    return pools


def _row(line: str, where: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
        pool, text = row.get("pool", ""), row["prompt"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f'{where}: {one_line(line)} is not an example; give {{"prompt": text, "pool": text}}') from None
    if not isinstance(pool, str) or not isinstance(text, str) or not text.strip():
        raise UserError(f"{where}: {one_line(line)} is not an example; prompt and pool are text")
    return pool, text.strip()
