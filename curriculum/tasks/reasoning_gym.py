"""The families of reasoning-gym: their problems, and their own scores as verdicts."""

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import count as count_up
from typing import Any

import numpy as np

from halfway.curriculum.problems import Problem
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.blocks import between
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import load_extra, one_line
from halfway.curriculum.support.registry import unknown
from halfway.curriculum.tasks.sources import Loaded, Source, content_id, distinct

CHUNK = 4096
"""Number of entries in one reasoning-gym data set; longer sequences continue in further data sets."""

SUCCESS = 1.0
"""Smallest score of a family that is a success; partial credit is a failure."""


@dataclass(frozen=True)
class ReasoningGym(Source):
    """Problems of one reasoning-gym family, judged by the family itself.

    The answer of each problem is a Python literal with the family, its configuration and the whole entry, which is
    what `verify` reads.

    A few families (word_ladder, ransom_note, isomorphic_strings and others) depend on Python's hash seed, so each
    process draws different problems. Set PYTHONHASHSEED for them, or write the problems to a file once
    (`write_problems` of `halfway.curriculum.tasks.files`) and train from that. `fingerprint` tells whether two sets are
    equal.

    Attributes:
        family: name of the data set, for example "chain_sum".
        config: its options; seed and size are not among them.
    """

    family: str
    config: dict[str, Any] = field(default_factory=dict)

    def load(self, wanted: int | None, stream: Stream) -> Loaded:
        return distinct(f"reasoning_gym/{self.family}", wanted, self._draws(stream.integer() % 2**31))

    def _draws(self, seed: int) -> Iterator[Problem]:
        # Entry i is a function of seed + i, so that chunks continue each other; families take seeds below 2^32.
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
        _, config_type = families[self.family]
        options = set(config_type.__dataclass_fields__) - {"seed", "size"}
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
    """The same value without NumPy scalars, whose text is not a literal."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {_plain(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(_plain(item) for item in value)
    return value


def verify(problem: Problem, response: str) -> bool:
    """Whether the score from the family's own `score_answer` is at least `SUCCESS`.

    The text between the last <answer> tags is judged, or the whole response, stripped, if there are no tags. Some
    families raise on text that they cannot read. Such a response fails, as long as the family can still score the
    entry's own answer; if it cannot, the entry is broken and the exception is passed on.
    """
    tags = between(response, "<answer>", "</answer>")
    entry, score_answer = _entry(problem.answer)
    try:
        score = score_answer((tags[-1] if tags else response).strip(), entry)
    except Exception:
        score_answer(entry["answer"], entry)
        return False
    return bool(score >= SUCCESS)


@lru_cache(maxsize=4096)
def _entry(answer: str) -> tuple[dict[str, Any], Callable[[str, dict[str, Any]], float]]:
    carried = ast.literal_eval(answer)
    return carried["entry"], _family(carried["family"], repr(carried["config"])).score_answer


@lru_cache(maxsize=64)
def _family(family: str, config: str) -> Any:
    module = load_extra("reasoning_gym", "the reasoning_gym verifier")
    return module.create_dataset(family, **ast.literal_eval(config), seed=0)
