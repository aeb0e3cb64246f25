"""Collects columns of rollouts into groups, keeping 33 bytes per rollout and the beginnings of some prompts."""

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfway.experiments.audit.history import UNKNOWN, Flags, History, Measure, Reading

EQUAL = 1e-6
"""Rewards that differ by no more than this count as equal: trainers add more than this to the standard deviation."""

ENOUGH = 20
"""In a log with this many groups, at least one silent group is to be expected."""

Keys = Sequence[bytes] | Sequence[str]

_UNSAID = np.int8(UNKNOWN).tobytes()
MOST_STEPS, MOST_TOKENS = 2**53, 2**31 - 1

MOST_TEXTS, TEXT_CHARACTERS = 20_000, 600


@dataclass(slots=True)
class RolloutColumns:
    """Rollouts from one batch of lines, by column; columns that a format does not have are None.

    Attributes:
        steps: training step of each rollout.
        problems: each rollout's problem: the prompt as it stands in the file, or the trainer's key.
        rewards: each rollout's reward; rollouts whose reward is None or not finite are counted and left out.
        answers: the reference answer as it stands in the file. Equal prompts with different references count as
            different problems, and are reported as suspicious.
        groups: the key of each rollout's group; None = all rollouts of one problem in one step form a group.
        responses: what the policy wrote, as it stands in the file.
        tokens: number of generated tokens.
        categories: the kind of problem.
        passed: whether the rollout passed according to the log itself, if the log says so apart from the reward; None
            for rollouts without this information.
    """

    steps: Sequence[int] | NDArray[Any]
    problems: Keys
    rewards: Sequence[float | None] | NDArray[Any]
    answers: Sequence[bytes] | None = None
    groups: Sequence[Hashable] | None = None
    responses: Sequence[bytes] | None = None
    tokens: Sequence[int] | None = None
    categories: Sequence[str] | None = None
    passed: Sequence[bool | None] | None = None


@dataclass(slots=True)
class KeptColumns:
    """What is kept about every rollout, by column; groups and responses are kept as hashes."""

    steps: "array[int]" = field(default_factory=lambda: array("q"))
    problems: "array[int]" = field(default_factory=lambda: array("i"))
    groups: "array[int]" = field(default_factory=lambda: array("q"))
    rewards: "array[float]" = field(default_factory=lambda: array("f"))
    responses: "array[int]" = field(default_factory=lambda: array("q"))
    tokens: "array[int]" = field(default_factory=lambda: array("i"))
    passed: "array[int]" = field(default_factory=lambda: array("b"))


class HistoryBuilder:
    """Takes rollouts as they are read, in any order, and makes a `History` from them.

    Attributes:
        named: whether problems have the trainer's own keys; otherwise their prompts are hashed.
        guesses, traps, dropped: as in `Reading`; the reader adds to them.
        identified, keeps_silent: as in `Reading`; the reader may correct them.
        texts: the beginning of each problem's prompt, by problem id.
        conflicts: contradictions in a problem's rewards, in words, by problem id.
        measure: the unit in which generated tokens were counted so far.
    """

    def __init__(self, reading: Reading, named: bool = False):
        """
        Args:
            reading: what is true of every log in the format.
            named: whether problems are given by the trainer's own keys rather than by prompts.
        """
        self.named = named
        self._reading = reading
        self.identified, self.keeps_silent = reading.identified, reading.keeps_silent
        self.guesses: dict[str, None] = dict.fromkeys(reading.guesses)
        self.traps: dict[str, None] = dict.fromkeys(reading.traps)
        self.dropped: Counter[str] = Counter()
        self.texts: dict[str, str] = {}
        self.conflicts: dict[str, str] = {}
        self._columns = KeptColumns()
        self._place: dict[int, int] = {}
        self._named: dict[bytes | str, int] = {}  # positions by the trainer's own keys, which need not be hashed
        self._ids: list[str] = []
        self._categories: list[str] = []
        self._prompts: dict[int, int] = {}
        self._grouped_by_problem = False
        self.measure: Measure = "nothing"

    def __len__(self) -> int:
        return len(self._columns.steps)

    def guess(self, text: str) -> None:
        """Note an assumption; repeating it changes nothing."""
        self.guesses[text] = None

    def trap(self, text: str) -> None:
        """Note something that the log hides; repeating it changes nothing."""
        self.traps[text] = None

    def drop(self, reason: str, count: int = 1) -> None:
        self.dropped[reason] += count

    def add(self, rows: RolloutColumns) -> None:
        """Add the rollouts of one batch; those without a finite reward are counted as dropped."""
        reward_R = _floats(rows.rewards)
        good_R = np.isfinite(reward_R)
        if not good_R.all():
            self.drop("rollout without a finite reward", int((~good_R).sum()))
            self._add(_picked(rows, np.flatnonzero(good_R).tolist()))
        else:
            self._add(rows)

    def _add(self, rows: RolloutColumns) -> None:
        try:
            step_R = np.asarray(rows.steps, np.int64)
            tokens_R = self._tokens(rows)
        except OverflowError:
            sane = [i for i in range(len(rows.steps)) if _sane(rows, i)]
            self.drop("rollout with a number that no trainer writes", len(rows.steps) - len(sane))
            self._add(_picked(rows, sane))
            return
        if not len(step_R):
            return
        places = self._places(rows.problems, rows.answers)
        place_R = np.asarray(places, np.int32)
        if rows.categories is not None:
            for place, category in zip(places, rows.categories, strict=True):
                self._categories[place] = category
        if rows.groups is None:
            self._grouped_by_problem = True
            group_R = (step_R << 32) ^ place_R  # two steps of one problem are two groups
        else:
            group_R = np.fromiter(map(hash, rows.groups), np.int64, len(places))
        columns, responses, said = self._columns, rows.responses, rows.passed
        columns.steps.frombytes(step_R.tobytes())
        columns.problems.frombytes(place_R.tobytes())
        columns.groups.frombytes(group_R.tobytes())
        columns.rewards.frombytes(_floats(rows.rewards).tobytes())
        if responses is None:
            columns.responses.frombytes(bytes(columns.responses.itemsize * len(places)))
        else:
            columns.responses.extend(map(hash, responses))
        columns.tokens.frombytes(tokens_R.tobytes())
        if said is None:
            columns.passed.frombytes(_UNSAID * len(places))
        else:
            columns.passed.extend(UNKNOWN if passed is None else int(passed) for passed in said)

    def _places(self, keys: Keys, answers: Sequence[bytes] | None) -> list[int]:
        """The position of each rollout's problem; a new problem gets the next position."""
        if self.named and answers is None:
            found = list(map(self._named.get, keys))
            for i in _missing(found):
                if (place := self._named.get(keys[i])) is None:
                    place = self._named[keys[i]] = self._position(hash(keys[i]), _encoded(keys[i]), b"")
                found[i] = place
        else:
            marks = list(map(hash, keys if answers is None else zip(keys, answers, strict=True)))
            found = list(map(self._place.get, marks))
            for i in _missing(found):
                found[i] = self._position(marks[i], _encoded(keys[i]), answers[i] if answers else b"")
        return found  # type: ignore[return-value]  # no position is None any more

    def _tokens(self, rows: RolloutColumns) -> NDArray[np.int32]:
        if rows.tokens is not None:
            self.measure = "tokens"
            return np.asarray(rows.tokens, np.int32)
        if rows.responses is not None:
            self.measure = "bytes" if self.measure == "nothing" else self.measure
            return np.fromiter(map(len, rows.responses), np.int32, len(rows.responses))
        return np.full(len(rows.steps), UNKNOWN, np.int32)

    def _position(self, mark: int, key: bytes, answer: bytes) -> int:
        place = self._place.get(mark)
        return self._new(mark, key, answer) if place is None else place

    def _new(self, mark: int, key: bytes, answer: bytes) -> int:
        place = self._place[mark] = len(self._ids)
        name = key.decode("utf-8", "replace") if self.named else _digest(key, answer)
        self._ids.append(name)
        self._categories.append("")
        if not self.named and len(self.texts) < MOST_TEXTS:
            self.texts[name] = _readable(key)
        if answer:
            first = self._prompts.setdefault(hash(key), place)
            if first != place:
                other = self._ids[first]
                self.conflicts[name] = f"the prompt of {other}, with another reference"
        return place

    def describe(self, problem: bytes, text: str) -> None:
        """Note the text of a problem that is known by the trainer's key."""
        name = problem.decode("utf-8", "replace")
        if len(self.texts) < MOST_TEXTS and name not in self.texts:
            self.texts[name] = text[:TEXT_CHARACTERS]

    def finish(self, passes_at: float | None = None) -> tuple[History, Reading]:
        """Form the groups from all rollouts that were added.

        Args:
            passes_at: least reward that counts as passed; None = use what the log says, or else guess from the rewards.

        Returns:
            the groups, and how they were read.
        """
        reward_R = np.frombuffer(self._columns.rewards, np.float32).astype(np.float64)
        passed_R: NDArray[Any] = np.frombuffer(self._columns.passed, np.int8)
        if passes_at is not None or (passed_R == UNKNOWN).any() or not len(passed_R):
            at, why = guessed_threshold(reward_R) if passes_at is None else (passes_at, "")
            self.guesses |= {why: None} if why else {}
            above_R = reward_R >= at - EQUAL
            passed_R = above_R if passes_at is not None else np.where(passed_R == UNKNOWN, above_R, passed_R)
            passes_at = at
        history = self._groups(reward_R, passed_R.astype(np.bool_))
        self._contradictions(reward_R)
        self._check_groups(history)
        reading = replace(
            self._reading,
            guesses=tuple(self.guesses),
            traps=tuple(self.traps),
            dropped=dict(self.dropped),
            measure=self.measure,
            identified=self.identified,
            keeps_silent=self.keeps_silent,
            passes_at=passes_at,
        )
        return history, reading

    def shown_texts(self) -> Mapping[str, str]:
        """The beginnings of prompts by problem id, without the beginning that all of them share."""
        if len(self.texts) < 2:
            return dict(self.texts)
        first, last = min(self.texts.values()), max(self.texts.values())
        shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
        return {name: text[shared:].strip() for name, text in self.texts.items()}

    def _groups(self, reward_R: NDArray[np.float64], passed_R: Flags) -> History:
        kept = self._columns
        group_R, problem_R = np.frombuffer(kept.groups, np.int64), np.frombuffer(kept.problems, np.int32)
        step_R, tokens_R = np.frombuffer(kept.steps, np.int64), np.frombuffer(kept.tokens, np.int32)
        # Rollouts of one group are mostly adjacent, so stretches of them (suffix S) are sorted rather than rollouts.
        start_S = np.flatnonzero(np.append(True, group_R[1:] != group_R[:-1])[: len(group_R)])
        _, run_G, index_S = np.unique(group_R[start_S], return_index=True, return_inverse=True)
        first_G, count = start_S[run_G], len(run_G)

        def total_G(values_R: NDArray[Any]) -> NDArray[np.float64]:
            sums_S = np.add.reduceat(values_R, start_S, dtype=np.float64) if count else np.zeros(0)
            return np.asarray(np.bincount(index_S, sums_S, count), np.float64)

        lowest_G, highest_G = np.full(count, np.inf), np.full(count, -np.inf)
        if count:
            np.minimum.at(lowest_G, index_S, np.minimum.reduceat(reward_R, start_S))
            np.maximum.at(highest_G, index_S, np.maximum.reduceat(reward_R, start_S))
        size_G = np.bincount(index_S, np.diff(start_S, append=len(group_R)), count)
        passed_G, spent_G = total_G(passed_R).astype(np.int32), total_G(tokens_R).astype(np.int64)
        unsaid_G = total_G(tokens_R == UNKNOWN) > 0
        order_V = np.lexsort((first_G, step_R[first_G])) if count else np.zeros(0, np.int64)
        first_V = first_G[order_V]
        return History(
            problems=tuple(self._ids),
            category_P=tuple(self._categories),
            problem_V=problem_R[first_V].astype(np.int32),
            step_V=step_R[first_V].astype(np.int64),
            passed_V=passed_G[order_V],
            size_V=size_G[order_V].astype(np.int32),
            silent_V=(highest_G - lowest_G <= EQUAL)[order_V],
            tokens_V=np.where(unsaid_G, UNKNOWN, spent_G)[order_V],
            fresh_V=np.ones(count, np.bool_),
            outcome_V=np.full(count, UNKNOWN, np.int8),
            lost_V=np.zeros(count, np.int32),
        )

    def _contradictions(self, reward_R: NDArray[np.float64]) -> None:
        """Note the problems that have identical responses with different rewards."""
        problem_R = np.frombuffer(self._columns.problems, np.int32)
        response_R = np.frombuffer(self._columns.responses, np.int64)
        if not response_R.any():
            return
        order_R = np.lexsort((response_R, problem_R))
        problem_R, response_R, reward_R = problem_R[order_R], response_R[order_R], reward_R[order_R]
        same_R: Flags = (problem_R[1:] == problem_R[:-1]) & (response_R[1:] == response_R[:-1]) & (response_R[1:] != 0)
        apart_R = same_R & (np.abs(np.diff(reward_R)) > EQUAL)
        places, counts = np.unique(problem_R[1:][apart_R], return_counts=True)
        for place, number in zip(places.tolist(), counts.tolist(), strict=True):
            self.conflicts[self._ids[place]] = f"{number} responses have another reward than an identical response"

    def _check_groups(self, history: History) -> None:
        if not len(history):
            return
        usual = history.group_size
        larger = int((history.size_V > usual).sum())
        if self._grouped_by_problem and larger:
            self.trap(
                f"{larger} groups have more than {usual} rollouts: the log has no group key, so all rollouts of "
                "one problem in one step were read as one group"
            )
        if usual == 1:
            self.trap(
                "most groups have one rollout: the log does not say which rollouts form a group, or it is a "
                "validation log"
            )
        elif len(history) >= ENOUGH and not history.silent_V.any():
            self.keeps_silent = False
            self.trap("no group is silent, so silent groups must have been filtered before the log was written")


def guessed_threshold(reward_R: NDArray[np.float64]) -> tuple[float, str]:
    """Guess the least reward that counts as passed, and say how: halfway between the lowest and the highest reward.

    If all rewards are equal, they count as passed if they are above 0.
    """
    if not len(reward_R):
        return 1.0, "no rewards, so nothing passes"
    low, high = float(reward_R.min()), float(reward_R.max())
    if high - low <= EQUAL:
        at = low if low > 0 else low + 1.0
        return (
            at,
            f"every reward is {low:g}, counted as {'passed' if low > 0 else 'failed'}; --passes-at overrides this",
        )
    middle = (low + high) / 2
    values = np.unique(np.round(reward_R[:100_000], 6))
    what = "two rewards" if len(values) == 2 else f"rewards of {len(values)} values" if len(values) < 20 else "rewards"
    return middle, f"{what} from {low:g} to {high:g}: {middle:g} or more counts as passed; --passes-at overrides this"


def _floats(values: Sequence[float | None] | NDArray[Any]) -> NDArray[np.float32]:
    """The values as the 32-bit floats that are kept: None becomes NaN, and numbers that are too large infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float64).astype(np.float32)


def _missing(found: Sequence[int | None]) -> list[int]:
    """The indices at which the position is still None."""
    return [i for i, place in enumerate(found) if place is None] if None in found else []


def _encoded(key: object) -> bytes:
    return key if isinstance(key, bytes) else str(key).encode("utf-8", "replace")


def _sane(rows: RolloutColumns, i: int) -> bool:
    """Whether the i-th rollout's step and number of tokens fit the columns that keep them."""
    tokens = 0 if rows.tokens is None else rows.tokens[i]
    return abs(rows.steps[i]) <= MOST_STEPS and abs(tokens) <= MOST_TOKENS


def _picked(rows: RolloutColumns, chosen: Sequence[int]) -> RolloutColumns:
    columns = {name: getattr(rows, name) for name in RolloutColumns.__dataclass_fields__}
    picked: dict[str, Any] = {name: c if c is None else [c[i] for i in chosen] for name, c in columns.items()}
    return RolloutColumns(**picked)


def _digest(key: bytes, answer: bytes) -> str:
    return hashlib.blake2b(key + b"\0" + answer, digest_size=8).hexdigest()


def _readable(key: bytes) -> str:
    """The beginning of a prompt as readable text, whether it stands in the file as a JSON string or as plain text."""
    text = key[: 4 * TEXT_CHARACTERS].decode("utf-8", "replace")
    if text[:1] == '"':
        try:
            text = json.loads(
                text if text.endswith('"') and len(key) <= 4 * TEXT_CHARACTERS else text.rstrip("\\") + '"'
            )
        except ValueError:
            text = text[1:]
    return " ".join(str(text)[:TEXT_CHARACTERS].split())
