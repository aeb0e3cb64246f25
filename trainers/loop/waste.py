"""Warns, once per kind and in one line, that a run wastes its budget, with a remedy."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from halfway.trainers.rollouts.rollout_options import GAP_ROUNDED

STEPS = 10
"""A warning is based on the sum over this many consecutive steps, so that one bad batch gives none."""
STEPS_WITHOUT_REWARD = 5
"""A warning is given after this many consecutive steps in which every reward was 0."""
ZERO_VARIANCE, TRUNCATED, LOST, UNJUDGED = 0.8, 0.2, 0.1, 0.02
"""Shares above which a warning is given: of groups for the first, of responses for the others."""
STALL_SECONDS, STALL_FACTOR = 60.0, 10.0
"""A step has stalled after this many seconds and this multiple of the mean of earlier steps."""

Record = Mapping[str, Any]

HELP = {
    "no_reward": "docs/troubleshooting.md#all-rewards-are-0",
    "zero_variance": "docs/troubleshooting.md#zero-variance",
    "truncated": "docs/troubleshooting.md#responses-are-cut",
    "lost": "docs/troubleshooting.md#lost-or-not-judged",
    "judge": "docs/troubleshooting.md#lost-or-not-judged",
    "mismatch": "docs/troubleshooting.md#engine-and-learner-differ",
    "stalled": "docs/troubleshooting.md#a-step-has-stalled",
}
"""The page that explains each kind of warning."""


class Waste:
    """A recorder that gives each warning once.

    Args:
        say: called with each warning, one line without a newline.
        largest_gap: mean |log-probability of the learner - of the engine| in nats per token that rounding can explain.
        clock: seconds; replaced by tests.
        stalls: true = also warn of a step that takes far longer than earlier steps.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        largest_gap: float = GAP_ROUNDED,
        clock: Callable[[], float] = time.monotonic,
        stalls: bool = True,
    ):
        self.say, self.largest_gap, self.clock = say, largest_gap, clock
        self.recent: deque[Record] = deque(maxlen=STEPS)
        self.given: set[str] = set() if stalls else {"stalled"}
        self.last = clock()
        self.seconds: deque[float] = deque(maxlen=STEPS)
        self.timer: threading.Timer | None = None

    def step(self, record: Record) -> None:
        now = self.clock()
        self.seconds.append(now - self.last)
        self.last = now
        first = not self.recent
        self.recent.append(record)
        if first and (wrong := gap_warning([record], self.largest_gap)):
            self.tell("mismatch", wrong)  # of thousands of tokens, and every step would be wasted
        if rewardless := _without_reward(list(self.recent)[-STEPS_WITHOUT_REWARD:]):
            self.tell("no_reward", rewardless)
            self.given.add("zero_variance")  # the same, said with its cause
        if len(self.recent) == STEPS:
            for kind, warning in warnings(self.recent, self.largest_gap):
                self.tell(kind, warning)
        self._watch()

    def evaluation(self, record: Record) -> None:
        self.last = self.clock()

    def close(self, state: str) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def tell(self, kind: str, warning: str) -> None:
        """Give a warning, unless one of the same kind was given before."""
        if kind not in self.given:
            self.given.add(kind)
            self.say(f"{warning} ({HELP[kind]})")

    def look(self) -> None:
        """Warn if the running step has taken far longer than those before it."""
        waited, usual = self.clock() - self.last, sum(self.seconds) / len(self.seconds)
        if waited >= max(STALL_SECONDS, STALL_FACTOR * usual):
            timing = self.recent[-1]["timing"]
            longest = max(timing, key=lambda part: float(timing[part]), default="rollout")
            self.tell(
                "stalled",
                f"no step has ended for {waited:.0f} s, usual are {usual:.1f} s, mostly of {longest}; look at the "
                "engine, judges and disk, or stop with Ctrl-C and resume",
            )

    def _watch(self) -> None:
        """Schedule a check for the time at which the next step would have stalled; evaluations restart this time."""
        if self.timer is not None:
            self.timer.cancel()
        if "stalled" not in self.given:
            limit = max(STALL_SECONDS, STALL_FACTOR * sum(self.seconds) / len(self.seconds))
            self.timer = threading.Timer(limit + 1, self.look)
            self.timer.daemon = True
            self.timer.start()


def warnings(records: Sequence[Record], largest_gap: float) -> Iterator[tuple[str, str]]:
    """Find waste in these steps: the kind of each, and one line with a remedy."""
    groups = _sum(records, "groups", "rolled_out")
    zero_variance = _sum(records, "groups", "zero_variance")
    if groups and zero_variance / groups >= ZERO_VARIANCE:
        yield "zero_variance", _zero_variance(records, zero_variance, groups)
    responses = sum(_sum(records, "responses", name) for name in ("scored", "lost"))
    if not responses:
        return
    cut, lost = (_sum(records, "responses", name) for name in ("truncated", "lost"))
    if cut / responses >= TRUNCATED:
        remedy = "raise rollouts.max_response_tokens, or ask for shorter answers in the prompt"
        yield "truncated", f"{100 * cut / responses:.0f} % of the answers were cut by a limit; {remedy}"
    if lost / responses >= LOST:
        yield (
            "lost",
            f"{100 * lost / responses:.0f} % of the rollouts were lost; decisions.jsonl says why under `dropped`",
        )
    failed = [record.get("unjudged", {}) for record in records]
    if sum(sum(counts.values()) for counts in failed) / responses >= UNJUDGED:
        reasons = {reason: sum(counts.get(reason, 0) for counts in failed) for counts in failed for reason in counts}
        reason = max(reasons, key=reasons.__getitem__)
        share = sum(reasons.values()) / responses
        failing = f"{100 * share:.1f} % of the answers could not be judged and count as failures"
        yield "judge", f"{failing}; most common reason: {reason}"
    if wrong := gap_warning(records, largest_gap):
        yield "mismatch", wrong


def gap_warning(records: Sequence[Record], largest_gap: float) -> str:
    """The warning that engine and learner differ by more than rounding; empty if they do not."""
    learned = [record.get("learner", {}) for record in records]
    gaps = [each["engine_gap"] for each in learned if "engine_gap" in each]
    if not gaps or (gap := sum(gaps) / len(gaps)) < largest_gap:
        return ""
    remedy = "compare weights, temperature, prompt template and dtype of both"
    if not any("mismatch_weight" in each for each in learned):
        remedy += ", or correct for it with learner.mismatch=token_truncated"
    differ = f"engine and learner differ by {gap:.3g} nats a token that is not late"
    return f"{differ}, more than the {largest_gap:g} of rounding; {remedy}"


def _without_reward(records: Sequence[Record]) -> str:
    """The warning about steps in which every reward is 0; empty if there are too few such steps."""
    scored = _sum(records, "responses", "scored")
    some = any(record.get("reward", {}).get("mean", 0.0) for record in records)
    if len(records) < STEPS_WITHOUT_REWARD or not scored or some:
        return ""
    return (
        f"all {scored:.0f} rewards of {len(records)} steps are 0, so nothing is learned; read some answers and what "
        "the verifier makes of them (`halfway survey`), raise the limit of tokens, or take easier problems"
    )


def _zero_variance(records: Sequence[Record], zero_variance: float, groups: float) -> str:
    """The warning about zero-variance groups; says whether they fail or pass, and whether their texts differ."""
    fresh = [counts for record in records if (counts := record["fresh_counts"])]
    failed, passed = (sum(counts[end] for counts in fresh) for end in (0, -1))
    repeated = _sum(records, "responses", "repeated")
    text = f"{100 * zero_variance / groups:.0f} % of the groups of {len(records)} steps had zero variance"
    if repeated > zero_variance / 2:
        return f"{text}, {repeated:.0f} of {zero_variance:.0f} with one text repeated; raise rollouts.temperature"
    if passed > failed:
        return f"{text}, mostly since all pass; skip what is solved (greso, retire), or take harder problems"
    return (
        f"{text}, mostly since all fail, with texts that differ; add prefix_sampling or hints to the controllers, or "
        "take easier problems (`halfway survey`)"
    )


def _sum(records: Sequence[Record], part: str, name: str) -> float:
    return sum(float(record.get(part, {}).get(name, 0)) for record in records)
