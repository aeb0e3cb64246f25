"""The families of reasoning-gym: their problems, and verdicts from their own scores."""

import ast
import builtins
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, partial
from itertools import count as count_up
from keyword import iskeyword
from typing import Any

import numpy as np

from halfway.curriculum import Problem, Stream, UserError, unknown
from halfway.curriculum.support.blocks import find_between
from halfway.curriculum.support.extras import load_extra, one_line
from halfway.curriculum.tasks.sources import Loaded, Source, content_id, distinct
from halfway.curriculum.tasks.verifiers import helpers
from halfway.curriculum.tasks.verifiers.exact_numeric import Batched
from halfway.curriculum.tasks.verifiers.numbers import plain_number, stated_number

CHUNK = 4096
"""Entries per reasoning-gym data set; longer sequences continue in further data sets."""

SUCCESS = 1.0
"""Lowest score of a success; partial credit is a failure."""

LITERAL = frozenset({"binary_matrix", "n_queens", "number_sorting", "spiral_matrix", "string_insertion"})
"""Families that call `eval` on an answer, for partial credit if it is a list. We give them `ast.literal_eval`."""

EVALUATING = frozenset(
    {"countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration"}
)
"""Families that parse answers and texts of the entry with sympy, which evaluates them."""

ARITHMETIC = frozenset({"bitwise_arithmetic"})
"""Families that call `eval` on a text of the entry, an expression of whole numbers."""

SLOW = frozenset({"rush_hour"})
"""Families that take minutes for an answer such as A+999999999."""

SECONDS = 30.0
"""Time limit on one answer of these families."""

UPSTREAM = ("reasoning_gym", "sympy")
"""Imported by a helper before it judges: on a busy machine their import takes longer than many a text."""

FORMULA = re.compile(r"[\w\s+\-*/%().,!^]*", re.ASCII)
ATTRIBUTE, NAME = re.compile(r"\.\s*[A-Za-z_]"), re.compile(r"[A-Za-z_]\w*", re.ASCII)
OPERATIONS = re.compile(r"[\d\s+\-*/()]*", re.ASCII)
ROOTS = ("sqrt", "cbrt", "root")


@dataclass(frozen=True)
class ReasoningGym(Source):
    """Problems of one reasoning-gym family, judged by the family itself.

    The answer of each problem is a Python literal with the family, its configuration and the whole entry, for `verify`.

    A few families (word_ladder, ransom_note, isomorphic_strings and others) depend on Python's hash seed, so each
    process draws different problems. For these, set PYTHONHASHSEED, or write the problems to a file once
    (`write_problems` of `halfway.curriculum.tasks.files`) and train from that. Equal sets have equal fingerprints
    (`fingerprint`).

    Attributes:
        family: name of the data set, for example "chain_sum".
        config: its options; seed and size are not among them.
    """

    family: str
    config: dict[str, Any] = field(default_factory=dict)

    def load(self, wanted: int | None, stream: Stream) -> Loaded:
        return distinct(f"reasoning_gym/{self.family}", wanted, self._draws(stream.integer() % 2**31))

    def _draws(self, seed: int) -> Iterator[Problem]:
        # Entry i is a function of seed + i, so chunks continue each other; families accept seeds below 2^32.
        for first in count_up(0, CHUNK):
            create = self._family()
            with self._errors():
                dataset = create(seed=seed + first, size=CHUNK)
            for i in range(CHUNK):
                with self._errors():
                    problem = self._problem(dataset[i])
                yield problem

    def _family(self) -> Callable[..., Any]:
        """A function that makes the family's data set for a seed and a size."""
        families = load_extra("reasoning_gym.factory", "source reasoning_gym").DATASETS
        if self.family not in families:
            raise unknown("source reasoning_gym: family", self.family, families)
        if self.family == "composite":
            raise UserError("source reasoning_gym: composite is not supported; use the families that it combines")
        _, config_type = families[self.family]
        options = set(config_type.__dataclass_fields__) - WITHHELD
        for name in self.config:
            if name not in options:
                raise unknown(f"source reasoning_gym: option of {self.family}", name, options)
        return partial(load_extra("reasoning_gym", "source reasoning_gym").create_dataset, self.family, **self.config)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn a family's errors into UserErrors. Families check their configuration in their own ways, some late."""
        try:
            yield
        except Exception as error:
            raise UserError(
                f"source reasoning_gym: {self.family} with config {self.config} raised {one_line(error)}; correct it"
            ) from error

    def _problem(self, entry: Mapping[str, Any]) -> Problem:
        name = f"reasoning_gym/{self.family}"
        answer = repr(_plain({"family": self.family, "config": self.config, "entry": entry}))
        ast.literal_eval(answer)  # raises for an entry that the verifier could not read back
        identity = content_id(name, entry["question"], str(entry["answer"]))
        return Problem(identity, entry["question"], answer, name, "reasoning_gym")


def _plain(value: Any) -> Any:
    """Replace NumPy scalars and fractions in a value: their texts are not literals."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, Mapping):
        return {_plain(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(_plain(item) for item in value)
    return value


def judge(problems: Sequence[Problem], responses: Sequence[str]) -> list[bool]:
    """Judge responses by the family's own `score_answer`: at least `SUCCESS` passes.

    The text between the last <answer> tags counts, or the whole response, stripped, if there are no tags. Some families
    raise on text that they cannot read. Such a response fails if the family can still score the entry's own answer;
    otherwise the entry is broken, and the exception is raised.

    Families that evaluate their input run in `helpers`.
    """
    verdicts: dict[int, bool] = {}
    tasks: list[tuple[str, str]] = []
    for row, (problem, response) in enumerate(zip(problems, responses, strict=True)):
        if _unpack_answer(problem.answer)["family"] in EVALUATING | LITERAL | ARITHMETIC | SLOW:
            tasks.append((problem.answer, response))
        else:
            verdicts[row] = passes(problem.answer, response)
    if tasks:
        load_extra("reasoning_gym", "the reasoning_gym verifier")
    found = iter(helpers.get_helpers(__name__, *UPSTREAM).map(f"{__name__}:passes", tasks, SECONDS) if tasks else ())
    return [verdicts[row] if row in verdicts else next(found) is True for row in range(len(problems))]


verify = Batched(judge)
"""The verifier `reasoning_gym`."""


def passes(answer: str, response: str) -> bool:
    """Judge one response, see `judge`."""
    tags = find_between(response, "<answer>", "</answer>")
    said = (tags[-1] if tags else response).strip()
    carried = _unpack_answer(answer)
    entry, score_answer = carried["entry"], _family(carried["family"], _decimals(carried["config"])).score_answer
    if carried["family"] in EVALUATING and not is_formula(said):
        return False
    if carried["family"] in ("countdown", "puzzle24"):  # sympy would accept sign(9), and puzzle24 any four numbers
        numbers = sorted(re.findall(r"\d+", said))  # texts: int() refuses 5,000 digits
        if not OPERATIONS.fullmatch(said) or "**" in said or numbers != sorted(map(str, entry["metadata"]["numbers"])):
            return False
    if carried["family"] == "complex_arithmetic" and "nan" in said.lower():  # min(1.0, nan) is 1.0
        return False
    if carried["family"] == "game_of_life_halting":  # which compares bool(text), true of "False"
        return said == str(entry["answer"])
    if carried["family"] == "gsm_symbolic":  # which drops the sign, so that -348 is 348
        return stated_number(said) == plain_number(entry["answer"])
    if carried["family"] == "coin_flip":  # which accepts a prefix such as 0 for 0.27, and takes minutes for 1e999999999
        number, reference = plain_number(said), plain_number(entry["answer"])
        return number is not None and reference is not None and abs(number - reference) <= Fraction(1, 10_000)
    try:
        score = score_answer(said, entry)
    except Exception:
        score_answer(entry["answer"], entry)
        return False
    return bool(score >= SUCCESS)


WITHHELD = frozenset({"data_file", "seed", "size"})
"""Options of families that no recipe may set: a path, and numbers that the caller sets."""


def require_harmless(family: str, entry: Mapping[str, Any]) -> None:
    """Raise ValueError if a family that evaluates texts of its entries would evaluate anything but a formula.

    Entries come from problem files, which may be a stranger's.
    """
    if family == "composite":  # its members would escape these rules, and those for answers
        raise ValueError("it is of the family composite; use the families that it combines, each by itself")
    metadata = entry.get("metadata") if isinstance(entry, Mapping) else None
    if not isinstance(metadata, Mapping):
        raise ValueError(f"its entry of {family} has no metadata")
    if family in EVALUATING:
        # Some of the family's own answers contain integrals that sympy could not solve.
        found = (
            text for text in _texts([entry.get("answer"), metadata]) if not is_formula(text.replace("Integral", ""))
        )
    elif family in ARITHMETIC:
        found = (text for text in _texts(metadata.get("problem")) if not is_arithmetic(text))
    else:
        return
    for text in found:
        raise ValueError(f"its entry of {family} holds {one_line(text, 60)}, which is not a formula")


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in nested lists and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _texts(item)


def is_arithmetic(text: str) -> bool:
    """True if a text is an expression of whole numbers and operators, with no names, calls or powers."""
    try:
        nodes = ast.walk(ast.parse(text, mode="eval"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    allowed = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    return all(
        (isinstance(node, allowed) and not isinstance(node, ast.Pow))
        or (isinstance(node, ast.Constant) and type(node.value) is int)
        for node in nodes
    )


def is_formula(text: str) -> bool:
    """True if a text contains only numbers, symbols and mathematical functions.

    sympy evaluates its input as Python, so it would execute `__import__("os")`.
    """
    if not FORMULA.fullmatch(text) or ATTRIBUTE.search(text):
        return False
    return all(_is_mathematical(name) for name in NAME.findall(text))


def _is_mathematical(name: str) -> bool:
    sympy = load_extra("sympy", "the reasoning_gym verifier", "tasks")
    value = getattr(sympy, name, None)
    if name in vars(builtins) or name.startswith("_") or iskeyword(name):  # "a or b" is a
        return False
    return value is None or name in ROOTS or isinstance(value, sympy.FunctionClass | sympy.Basic)


@lru_cache(maxsize=4096)
def _unpack_answer(answer: str) -> dict[str, Any]:
    carried: dict[str, Any] = ast.literal_eval(answer)
    require_harmless(carried["family"], carried["entry"])
    return carried


def _decimals(config: Mapping[str, Any]) -> int:
    """The one option that changes which answers a family accepts.

    The others only change how entries are generated. A stranger's could name any file, or a number that fills the
    memory, so the data set that judges never gets them.
    """
    return min(int(config.get("max_num_decimal_places", 3)), 100)


@lru_cache(maxsize=256)
def _family(family: str, decimals: int) -> Any:
    module = load_extra("reasoning_gym", "the reasoning_gym verifier")
    lengths = {"min_word_length": 3, "max_word_length": 5} if family == "word_ladder" else {}  # all that there are
    dataset = module.create_dataset(family, **lengths, seed=0)
    if family == "decimal_arithmetic":
        dataset.config.max_num_decimal_places = decimals
    names = vars(sys.modules[type(dataset).__module__])
    names["print"] = lambda *_, **__: None  # tower_of_hanoi prints each wrong move of an answer
    if family in LITERAL:
        names["eval"] = ast.literal_eval
    return dataset
