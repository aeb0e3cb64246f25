"""Collects columns of rollouts into groups; keeps 38 bytes per rollout and the beginnings of some prompts."""

import hashlib
import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from halfway.experiments.audit.database import Tables
from halfway.experiments.audit.history import UNKNOWN, History, Reading

EQUAL = 1e-6
"""Largest difference of equal rewards: trainers add more than this to the standard deviation."""

UNLIKELY = 1e-3
"""If a log without zero-variance groups is less likely than this, such groups seem to have been left out."""

MANY = 0.05
"""Share of rollouts or groups from which a remark decides the finding."""

COPIED, SIGNS = 0.9, 8
"""Share of groups that must hold each rollout several times before copies are left out; the number of responses beyond
the first of each group."""

SAMPLE = 20_000
"""Number of rollouts in which different rewards are counted."""

ERROR, NOT_FINITE = "rollout that ended in an error", "rollout without a finite reward"
EMPTY = frozenset((b"", b'""', b"[]", b"null", b"[[]]", b'[""]'))
"""Responses without content, as written in files."""

SHORT = 64
"""Bytes below which a response may be a conversation without content."""

MOST_STEPS, MOST_TOKENS = 2**53, 2**31 - 1
MOST_TEXTS, TEXT_CHARACTERS = 20_000, 600

ROLLOUT = np.dtype([
    *(("step", "i8"), ("problem", "i4"), ("family", "i8"), ("reward", "f4")),
    *(("response", "i8"), ("tokens", "i4"), ("passed", "i1"), ("silent", "i1")),
])  # fmt: skip
"""The stored fields of a rollout. Its group (`family`) and its response are hashes, 0 for no response; `silent` says
whether its advantage is 0."""

GROUPS = f"""
    SELECT arg_min(problem, place) AS problem_V, arg_min(step, place) AS step_V,
        sum(passed::INT)::INT AS passed_V, count(*)::INT AS size_V,
        max(reward)::DOUBLE - min(reward)::DOUBLE <= {EQUAL} AS zero_variance_V,
        count(*) > 1 AND min(response) = max(response) AND min(response) <> 0 AS one_text_V,
        min(silent)::TINYINT AS silent_V,
        CASE WHEN bool_or(tokens = {UNKNOWN}) THEN {UNKNOWN} ELSE sum(tokens) END::BIGINT AS tokens_V
    FROM rollouts GROUP BY family ORDER BY step_V, min(place)
"""
CONTRADICTIONS = f"""
    SELECT problem, count(*) FROM (
        SELECT problem, reward, lag(reward) OVER (PARTITION BY problem, response ORDER BY place) AS earlier
        FROM rollouts WHERE response <> 0)
    WHERE abs(reward::DOUBLE - earlier::DOUBLE) > {EQUAL} GROUP BY problem ORDER BY problem
"""
Keys = Sequence[bytes] | Sequence[str]
Row = TypeVar("Row")


@dataclass(slots=True)
class RolloutColumns:
    """Rollouts from one batch of lines, by column; columns that a format lacks are None.

    Attributes:
        steps: training step of each rollout.
        problems: each rollout's problem: the prompt as written in the file, or the trainer's key.
        rewards: each rollout's reward; rollouts with a reward of None or not finite are counted and left out.
        answers: the reference answer as written in the file. Equal prompts with different references count as different
            problems, and are reported as suspicious.
        groups: the key of each rollout's group; None = all rollouts of one problem in one step form a group.
        responses: the policy's response as written in the file.
        tokens: number of generated tokens.
        categories: the kind of problem.
        passed: the log's own verdict, if it has one apart from the reward; None for rollouts without one.
        advantages: the trainer's advantages, to check how the rewards were read.
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
    advantages: Sequence[float | None] | None = None

    def picked(self, chosen: Sequence[int]) -> "RolloutColumns":
        """Select the rollouts at these indices."""
        columns: dict[str, Any] = {}
        for each in fields(self):
            column = getattr(self, each.name)
            columns[each.name] = None if column is None else [column[i] for i in chosen]
        return RolloutColumns(**columns)


class HistoryBuilder:
    """Collects rollouts in any order, and makes a `History` from them.

    Attributes:
        reading: how the log is read; the reader adds to it, and may correct it.
        texts: the beginning of each problem's prompt, by problem id.
        conflicts: contradictions in a problem's rewards, in words, by problem id.
    """

    def __init__(self, reading: Reading, named: bool = False):
        """
        Args:
            reading: facts about every log in the format.
            named: whether problems have the trainer's own keys; otherwise their prompts are hashed.
        """
        self.reading, self._named = reading, named
        self.texts: dict[str, str] = {}
        self.conflicts: dict[str, str] = {}
        self._parts: list[NDArray[np.void]] = [np.empty(0, ROLLOUT)]
        self._places: dict[Hashable, int] = {}  # indices of problems by key, or by the hash of prompt and reference
        self._ids: list[str] = []
        self._categories: list[str] = []
        self._prompts: dict[int, int] = {}
        self._grouped_by_problem = False
        self._empty = 0

    def guess(self, text: str) -> None:
        """Note an assumption; repeating it changes nothing."""
        _note(self.reading.guesses, text)

    def trap(self, text: str) -> None:
        """Note something that the log hides; repeating it changes nothing."""
        _note(self.reading.traps, text)

    def doubt(self, text: str) -> None:
        """Note something that decides the finding; repeating it changes nothing."""
        _note(self.reading.doubts, text)

    def drop(self, reason: str, count: int = 1) -> None:
        self.reading.dropped[reason] += count

    def keep(self, rows: Sequence[Row], holds: Callable[[Row], object], reason: str) -> list[Row]:
        """Select the rows for which `holds` is true, and count the others as dropped."""
        kept = [row for row in rows if holds(row)]
        if len(kept) < len(rows):
            self.drop(reason, len(rows) - len(kept))
        return kept

    def describe(self, problem: bytes, prompt: bytes | msgspec.Raw) -> None:
        """Note the prompt, as written in the file, of a problem that is known by the trainer's key."""
        name = problem.decode("utf-8", "replace")
        if len(self.texts) < MOST_TEXTS and name not in self.texts:
            self.texts[name] = _readable(bytes(prompt))

    def add(self, rows: RolloutColumns) -> None:
        """Add the rollouts of one batch; rollouts without a finite reward are counted as dropped."""
        finite_R = np.isfinite(_floats(rows.rewards))
        if not finite_R.all():
            self.drop(NOT_FINITE, int((~finite_R).sum()))
            rows = rows.picked(np.flatnonzero(finite_R).tolist())
        try:
            self._add(rows)
        except OverflowError:
            reason = "rollout with a number that no trainer writes"
            self._add(rows.picked(self.keep(range(len(rows.steps)), lambda i: _sane(rows, i), reason)))

    def _add(self, rows: RolloutColumns) -> None:
        count = len(rows.steps)
        part = np.zeros(count, ROLLOUT)
        part["step"], part["tokens"] = np.asarray(rows.steps, np.int64), self._tokens(rows)
        places = self._places_of(rows.problems, rows.answers)
        part["problem"], part["reward"] = places, _floats(rows.rewards)
        if rows.groups is None:
            self._grouped_by_problem |= count > 0
            part["family"] = (part["step"] << 32) ^ part["problem"]  # one group per step and problem
        else:
            part["family"] = np.fromiter(map(hash, rows.groups), np.int64, count)
        if rows.responses is not None:
            part["response"] = np.fromiter(map(hash, rows.responses), np.int64, count)
            length_R = part["tokens"] if rows.tokens is None else np.fromiter(map(len, rows.responses), np.int32, count)
            self._empty += sum(_is_empty(rows.responses[i]) for i in np.flatnonzero(length_R < SHORT).tolist())
        part["passed"] = part["silent"] = UNKNOWN
        if rows.advantages is not None:
            advantage_R = _floats(rows.advantages)
            part["silent"] = np.where(np.isfinite(advantage_R), np.abs(advantage_R) <= EQUAL, UNKNOWN)
        if rows.passed is not None:
            part["passed"] = [UNKNOWN if passed is None else passed for passed in rows.passed]
        if rows.categories is not None:
            for place, category in zip(places, rows.categories, strict=True):
                self._categories[place] = category
        self._parts.append(part)

    def _tokens(self, rows: RolloutColumns) -> NDArray[np.int32] | int:
        if rows.tokens is not None:
            self.reading.measure = "tokens"
            return np.asarray(rows.tokens, np.int32)
        if rows.responses is not None:
            self.reading.measure = "bytes" if self.reading.measure == "nothing" else self.reading.measure
            return np.fromiter(map(len, rows.responses), np.int32, len(rows.responses))
        return UNKNOWN

    def _places_of(self, keys: Keys, answers: Sequence[bytes] | None) -> list[int]:
        """Index of each rollout's problem; a new problem gets the next index."""
        hashed = answers is not None or not self._named
        marks: Sequence[Hashable] = keys
        if hashed:
            marks = list(map(hash, keys if answers is None else zip(keys, answers, strict=True)))
        places = list(map(self._places.get, marks))
        for i in [i for i, place in enumerate(places) if place is None]:
            key = _encoded(keys[i])
            mark = marks[i] if hashed else key  # a key may be text or bytes
            if (place := self._places.get(mark)) is None:
                place = self._places[mark] = self._new(key, answers[i] if answers else b"")
            places[i] = self._places[marks[i]] = place
        return places  # type: ignore[return-value]  # no position is None any more

    def _new(self, key: bytes, answer: bytes) -> int:
        place = len(self._ids)
        name = key.decode("utf-8", "replace") if self._named else _digest(key, answer)
        self._ids.append(name)
        self._categories.append("")
        if not self._named and len(self.texts) < MOST_TEXTS:
            self.texts[name] = _readable(key)
        if answer:
            first = self._prompts.setdefault(hash(key), place)
            if first != place:
                self.conflicts[name] = f"the prompt of {self._ids[first]}, with another reference"
        return place

    def finish(self, passes_at: float | None = None) -> History:
        """Form the groups from all added rollouts.

        Args:
            passes_at: lowest reward that counts as passed; None = the log's own verdicts, otherwise a guess from the
                rewards.
        """
        columns = {name: np.concatenate([part[name] for part in self._parts]) for name in ROLLOUT.names or ()}
        self._parts.clear()
        columns = self._without_copies(columns)
        reward_R, passed_R = columns["reward"].astype(np.float64), columns["passed"]
        values = len(np.unique(np.round(reward_R[:SAMPLE], 6)))
        if passes_at is not None or (passed_R == UNKNOWN).any() or not len(passed_R):
            at, why = guess_threshold(reward_R, values) if passes_at is None else (passes_at, "")
            if why:
                self.guess(why)
            above_R = columns["reward"] >= np.float32(at - EQUAL)  # rounded like the rewards
            columns["passed"] = above_R if passes_at is not None else np.where(passed_R == UNKNOWN, above_R, passed_R)
            passes_at = at
        elif values == 2:
            self._check_verdicts(reward_R, passed_R)
        history = self._history(columns)
        self._check_groups(history, values)
        self._check_texts(history)
        self._check_losses(history)
        self.reading.passes_at, self.reading.values = passes_at, values
        return history

    def shown_texts(self) -> Mapping[str, str]:
        """The beginnings of prompts by problem id, without their common beginning."""
        if len(self.texts) < 2:
            return dict(self.texts)
        first, last = min(self.texts.values()), max(self.texts.values())
        shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
        return {name: text[shared:].strip() for name, text in self.texts.items()}

    def _without_copies(self, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Leave out the copies if nearly every group holds each response and reward several times, as if ranks copied.

        A group of one response is no sign of copies; one of two or more is the better a sign, the more they are.
        """
        if not len(columns["step"]) or not columns["response"].all():
            return columns
        with np.errstate(over="ignore"):
            key_R = (columns["family"] * 31 + columns["response"]) * 31 + columns["reward"].view("i4")
        order_R = np.lexsort((key_R, columns["family"]))  # stable, so the first copy stays
        new_R = np.diff(key_R[order_R], prepend=key_R[order_R[0]] + 1) != 0
        start_K = np.flatnonzero(new_R)
        count_K = np.diff(start_K, append=len(order_R))
        family_K = columns["family"][order_R[start_K]]
        start_V = np.flatnonzero(np.diff(family_K, prepend=family_K[0] + 1) != 0)
        copies_V, kinds_V = np.gcd.reduceat(count_K, start_V), np.diff(start_V, append=len(family_K))
        copies = int(np.median(copies_V))
        copied_V = copies_V % copies == 0
        signs_V = copied_V * (kinds_V - 1)
        if copies < 2 or copied_V.mean() < COPIED or (signs_V > 0).mean() < 1 / 2 or signs_V.sum() < SIGNS:
            return columns
        times_K = np.where(np.repeat(copied_V, kinds_V), copies, 1)
        rank_R = np.arange(len(order_R)) - np.repeat(start_K, count_K)
        kept_R = np.sort(order_R[rank_R < np.repeat(count_K // times_K, count_K)])
        self.drop("row that repeats another", len(order_R) - len(kept_R))
        self.doubt(
            f"the log has every rollout {copies} times, with the same response and reward in the same group; each "
            "counts once. Perhaps every rank wrote all of them"
        )
        return {name: column[kept_R] for name, column in columns.items()}

    def _history(self, columns: Mapping[str, NDArray[Any]]) -> History:
        """Form the groups of all rollouts; note problems with identical responses but different rewards."""
        place_R = np.arange(len(columns["step"]))
        with Tables(rollouts={**columns, "place": place_R}) as tables:
            groups = tables.columns(GROUPS)
            self._check_advantages(groups["zero_variance_V"], groups.pop("silent_V"))
            for problem, count in tables.rows(CONTRADICTIONS):
                self.conflicts[self._ids[problem]] = f"{count} responses have another reward than an identical response"
        count = len(groups["step_V"])
        return History(
            problems=tuple(self._ids),
            category_P=tuple(self._categories),
            **groups,
            fresh_V=np.ones(count, np.bool_),
            outcome_V=np.full(count, UNKNOWN, np.int8),
            lost_V=np.zeros(count, np.int32),
        )

    def _check_advantages(self, zero_variance_V: NDArray[np.bool_], silent_V: NDArray[np.int8]) -> None:
        """Compare the groups of equal rewards with the groups in which the trainer's own advantages are 0."""
        known_V = silent_V != UNKNOWN
        known, odd = int(known_V.sum()), int((known_V & (zero_variance_V != (silent_V == 1))).sum())
        if not odd:
            return
        if (silent_V[known_V] == 1).all():
            self.trap("every advantage in the log is 0, so advantages cannot confirm how the rewards were read")
        else:
            self.doubt(
                f"the trainer's own advantages contradict this reading in {odd:,} of {known:,} groups: equal rewards "
                "have advantages other than 0, or different rewards only advantages of 0; --reward may name another "
                "reward than the trained one, or advantages do not compare the rollouts of a group"
            )

    def _check_verdicts(self, reward_R: NDArray[np.float64], passed_R: NDArray[np.int8]) -> None:
        """Compare the log's own verdicts with its two rewards."""
        odd = int(((reward_R > (reward_R.min() + reward_R.max()) / 2) != passed_R).sum())
        if odd >= MANY * len(reward_R):
            self.doubt(
                f"the log's own verdicts contradict its rewards in {odd:,} of {len(reward_R):,} rollouts: the two may "
                "belong to different rollouts, or measure different things"
            )

    def _check_groups(self, history: History, values: int) -> None:
        if not len(history):
            return
        usual = history.group_size
        most = int(history.size_V.max())
        larger = int((history.size_V > usual).sum())
        if self._grouped_by_problem and usual > 1 and history.size_V.min() < most < 2 * usual:
            fewer = int((history.size_V < most).sum())
            self.trap(
                f"{fewer:,} of {len(history):,} groups have fewer rollouts than the largest, of {most}: rows were "
                "lost, or groups have several sizes"
            )
        elif self._grouped_by_problem and larger:
            self.trap(
                f"{larger} groups have more than {usual} rollouts: the log has no group key, so all rollouts of "
                "one problem in one step were read as one group"
            )
        if usual == 1:
            some = int((history.size_V > 1).sum())
            self.doubt(
                f"{'most groups have' if some else 'every group has'} one rollout: this is a log of an evaluation or "
                "of a trainer without groups, its step counts rollouts, or another column names the problem "
                "(--problem NAME)"
            )
        elif values <= 2 and not history.zero_variance_V.any() and self.reading.keeps_zero_variance:
            expected = expected_zero_variance(history.passed_V, history.size_V)
            if np.exp(-expected) < UNLIKELY:
                self.reading.keeps_zero_variance = False
                self.doubt(
                    f"none of the {len(history):,} groups has zero variance, where at least {expected:.0f} more would "
                    "be expected beside them, so such groups seem to have been left out before the log was written"
                )

    def _check_texts(self, history: History) -> None:
        """Note empty responses, and groups that repeat one text."""
        rollouts, repeated = history.num_rollouts, int(history.one_text_V.sum())
        if self._empty and self._empty >= MANY * rollouts:
            count = "every response is" if self._empty == rollouts else f"{self._empty:,} of {rollouts:,} responses are"
            self.doubt(f"{count} empty: the model or its server failed, or the log has no responses")
        elif repeated and repeated >= MANY * len(history):
            self.doubt(
                f"{repeated:,} of {len(history):,} groups repeat one response word for word: sampling has no "
                "randomness there (temperature, seeds), or the log repeats rows"
            )

    def _check_losses(self, history: History) -> None:
        """Note if much of the log has no verdict."""
        for reason in (ERROR, NOT_FINITE):
            count = self.reading.dropped[reason]
            if count and count >= MANY * (history.num_rollouts + count):
                self.doubt(f"{count:,} of {history.num_rollouts + count:,} rollouts have no verdict: {reason}")


def expected_zero_variance(passed_V: NDArray[np.int32], size_V: NDArray[np.int32]) -> float:
    """Lower bound on the zero-variance groups beside these mixed groups, if each group's rollouts are independent.

    With c_k groups of k passes among n, the moments of any distribution of pass rates satisfy
    (c_1 / n)^2 <= c_0 c_2 / (n (n - 1) / 2) by Cauchy and Schwarz, so c_0 >= (n - 1) / 2n * c_1^2 / c_2, and
    likewise for c_n. In groups of two, at least half have zero variance.
    """
    expected = 0.0
    for n in np.unique(size_V[size_V > 1]).tolist():
        count_K = np.bincount(passed_V[size_V == n], minlength=n + 1).astype(float)
        if n == 2:
            expected += count_K[1] * float(np.log(2))
            continue
        for one, two in ((1, 2), (n - 1, n - 2)):  # c (c - 1) and 1 / (c + 1) are unbiased for Poisson counts
            expected += (n - 1) / (2 * n) * count_K[one] * (count_K[one] - 1) / (count_K[two] + 1)
    return expected


def guess_threshold(reward_R: NDArray[np.float64], values: int) -> tuple[float, str]:
    """Guess the lowest reward that counts as passed, halfway between the lowest and the highest; returns it and how.

    If all rewards are equal, they count as passed if they are above 0.

    Args:
        values: number of different rewards.
    """
    if not len(reward_R):
        return 1.0, "no rewards, so nothing passes"
    low, high = float(reward_R.min()), float(reward_R.max())
    if high - low <= EQUAL:
        at, said = (low, "passed") if low > 0 else (low + 1.0, "failed")
        return at, f"every reward is {low:g}, counted as {said}; --passes-at overrides this"
    middle = (low + high) / 2
    what = "two rewards" if values == 2 else f"rewards of {values} values" if values < 20 else "rewards"
    return middle, f"{what} from {low:g} to {high:g}: {middle:g} or more counts as passed; --passes-at overrides this"


def _note(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)


def _floats(values: Sequence[float | None] | NDArray[Any]) -> NDArray[np.float32]:
    """Convert values to the stored 32-bit floats: None becomes NaN, and too large numbers become infinite."""
    with np.errstate(over="ignore"):
        try:
            return np.asarray(values, np.float64).astype(np.float32)
        except OverflowError:
            return np.asarray([None if value is None else bound(value) for value in values], np.float32)


def bound(value: Any) -> float:
    """A number; infinite if it has more digits than a float can hold."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_empty(response: bytes) -> bool:
    return response in EMPTY or b'"content":""' in response.replace(b" ", b"")


def _encoded(key: object) -> bytes:
    return key if isinstance(key, bytes) else str(key).encode("utf-8", "replace")


def _sane(rows: RolloutColumns, i: int) -> bool:
    """True if the i-th rollout's step and number of tokens fit their columns."""
    tokens = 0 if rows.tokens is None else rows.tokens[i]
    return abs(rows.steps[i]) <= MOST_STEPS and abs(tokens) <= MOST_TOKENS


def _digest(key: bytes, answer: bytes) -> str:
    return hashlib.blake2b(key + b"\0" + answer, digest_size=8).hexdigest()


def _readable(key: bytes) -> str:
    """The beginning of a prompt as readable text, from a JSON string or plain text."""
    text = key[: 4 * TEXT_CHARACTERS].decode("utf-8", "replace")
    if text[:1] == '"':
        whole = text.endswith('"') and len(key) <= 4 * TEXT_CHARACTERS
        try:
            text = json.loads(text if whole else text.rstrip("\\") + '"')
        except ValueError:
            text = text[1:]
    return " ".join(str(text)[:TEXT_CHARACTERS].split())
