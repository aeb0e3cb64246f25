"""The decision log: one JSON record per group, in a format that any trainer can write and any tool can read.

Each line is an object with these fields; a field that does not apply is null, and no field is left out.

| field | type | meaning |
|---|---|---|
| step | int | training step, from 0 |
| round | int | round of rollouts within the step, from 0 |
| problem | str | stable problem id; empty in a record of skipped problems |
| parent | str | id of the problem the prefix was cut from; null without a prefix |
| origin | str | "fresh", "prefix", "generated", "hinted" or "stored" |
| prefix_length, prefix_unit | int, str | length of the replayed prefix in "tokens" or "steps"; 0, null without |
| prefix_tokens | int | replayed tokens per rollout |
| parent_passed, parent_size | int | k and N of the group the prefix was cut from |
| parent_success | bool | the prefix is from a success (a head start) or from a failure (a handicap) |
| decisions | [[str, str]] | (member, action) of every chain member that decided on the request, in order |
| k, n | int | successes and scored rollouts; null if the problem was skipped |
| tokens | int | tokens generated for the group in this step: replayed and stored tokens are not counted |
| policy_version | int | learner updates behind the weights that generated it, the oldest of several; null if none did |
| outcome | str | "trained", "zero_variance", "surplus", "carried", "waiting", "empty", "declined" or "skipped" |
| reason | str | why it was skipped: the member and what it said; else null |
| dropped | {str: int} | rollouts lost, by reason (for example a replay that diverged) |

These fields are there only where they apply:

| field | type | meaning |
|---|---|---|
| hint_share, hint_place | float, str | part of the reference solution given, and where: "prompt" or "response" |
| policy_versions | [int] | of a group that several weights generated: all of them, oldest first |
| lag | int | updates by which the learner was ahead of the weights that generated it, if it was |
| late | int | failed rollouts whose time was over before they had ended |
| weights | [float] | factor on the loss of each rollout, if a controller gave any |
| earlier_k, earlier_n | int | successes and rollouts of a group that has waited, in the records of earlier steps |
| problems | [str] | ids of the problems that were skipped, see below |
| replayed_responses | int | executed once more by the environment to replay a prefix; steps.jsonl has their seconds |

Skipped problems are those refused before any rollout. All that one round refused for one reason are in one record: its
`problem` is empty, and `problems` lists their ids. A group "carried" out of a step appears once more in the
step that trains it. A group that is "waiting" at the end of a step appears again in the step that continues it, with
the rollouts of that step. Nothing in the log depends on the clock, so equal runs write equal bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from halfway.curriculum.groups import Group
from halfway.curriculum.plan import Skip
from halfway.curriculum.prefix import ParentCount
from halfway.curriculum.rollouts import LATE
from halfway.curriculum.signals import NEAR_HALF

UNUSED = ("zero_variance", "surplus", "declined")
"""Outcomes of groups whose rollouts train nothing, in this step or a later one."""
MOST_ROLLOUTS, MOST_STEPS = 2**17, 2**53
"""Bounds of the numbers in a record, checked on reading."""


def group_record(group: Group, step: int, round_index: int, outcome: str) -> Mapping[str, Any]:
    """The record of a rolled-out group."""
    request, prefix, latest = group.request, group.request.prefix, group.latest
    return {
        "step": step,
        "round": round_index,
        "problem": request.problem.id,
        "parent": request.problem.id if prefix else None,
        "origin": str(request.origin),
        "prefix_length": prefix.length if prefix else 0,
        "prefix_unit": prefix.unit if prefix else None,
        "prefix_tokens": prefix.num_tokens if prefix else 0,
        "parent_passed": prefix.parent_passed if prefix else None,
        "parent_size": prefix.parent_size if prefix else None,
        "parent_success": prefix.parent_success if prefix else None,
        "decisions": [list(decision) for decision in request.decisions],
        "k": latest.num_passed,
        "n": latest.size,
        "tokens": 0 if request.stored else latest.num_generated,
        "policy_version": group.policy_version if group.policy_versions else None,
        "outcome": outcome,
        "reason": None,
        "dropped": dict(group.dropped),
        **_where_it_applies(group),
    }


def _where_it_applies(group: Group) -> Mapping[str, Any]:
    """The fields that only some records have."""
    hint, weights, versions, cost = group.request.hint, group.weights, group.policy_versions, group.replay_cost
    fields: dict[str, Any] = {"hint_share": hint.share, "hint_place": hint.place} if hint else {}
    fields |= {"policy_versions": list(versions)} if len(versions) > 1 else {}
    fields |= {"replayed_responses": cost.responses} if cost else {}
    fields |= {"lag": group.lag} if group.lag else {}
    late = sum(rollout.late for rollout in group.latest.rollouts)
    fields |= {LATE: late} if late else {}
    if group.earlier:
        fields |= {"earlier_k": group.num_passed - group.latest.num_passed, "earlier_n": group.earlier}
    return fields | ({"weights": weights.weights_N.tolist()} if weights else {})


def skip_records(skips: Sequence[tuple[int, Skip]], step: int) -> list[Mapping[str, Any]]:
    """The records of skipped problems, one for each round, member and reason."""
    refused: dict[tuple[int, str, str], list[str]] = {}
    for round_index, skip in skips:
        refused.setdefault((round_index, skip.member, skip.reason), []).append(skip.problem_id)
    return [_skip_record(step, round_, f"{member}: {why}", ids) for (round_, member, why), ids in refused.items()]


def _skip_record(step: int, round_index: int, reason: str, problems: list[str]) -> Mapping[str, Any]:
    start = {"step": step, "round": round_index, "problem": "", "parent": None, "origin": "fresh"}
    prefix = {"prefix_length": 0, "prefix_unit": None, "prefix_tokens": 0}
    parent = dict.fromkeys(("parent_passed", "parent_size", "parent_success"))
    counts: dict[str, Any] = {"decisions": [], "k": None, "n": None, "tokens": 0, "policy_version": None}
    end = {"outcome": "skipped", "reason": reason, "dropped": {}, "problems": problems}
    return {**start, **prefix, **parent, **counts, **end}


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """One line of the log, with the fields that reports use."""

    step: int
    problem: str
    origin: str
    outcome: str
    k: int | None
    n: int | None
    tokens: int
    prefix_tokens: int = 0
    prefix_length: int = 0
    prefix_unit: str | None = None
    parent: str | None = None
    parent_passed: int | None = None
    parent_size: int | None = None
    parent_success: bool | None = None
    policy_version: int | None = None
    reason: str | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    decisions: tuple[tuple[str, str], ...] = ()
    hint_share: float | None = None
    weights: tuple[float, ...] = ()
    earlier_k: int = 0
    earlier_n: int = 0
    problems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for impossible numbers, so that decoding such a line fails."""
        passed, size, lost = self.k or 0, self.size, sum(self.dropped.values())
        if not (0 <= passed <= size < MOST_ROLLOUTS and 0 <= lost < MOST_ROLLOUTS):
            raise ValueError(f"{passed} of {size} rollouts passed and {lost} were lost")
        if not 0 <= self.earlier_k <= self.earlier_n < MOST_ROLLOUTS:
            raise ValueError(f"{self.earlier_k} of {self.earlier_n} earlier rollouts passed")
        if not (0 <= self.step < MOST_STEPS and 0 <= self.tokens < MOST_STEPS):
            raise ValueError(f"step {self.step} with {self.tokens} tokens")

    @property
    def size(self) -> int:
        """Scored rollouts; 0 for a skipped problem."""
        return self.n or 0

    @property
    def scored(self) -> bool:
        return self.size > 0

    @property
    def pass_rate(self) -> float:
        """Share of passing rollouts. Only for a scored group."""
        assert self.k is not None and self.n, "only a scored group has a pass rate"
        return self.k / self.n

    @property
    def zero_variance(self) -> bool:
        """True if all rollouts passed or none did, including those of earlier steps if the group has waited."""
        return self.scored and (self.k or 0) + self.earlier_k in (0, self.size + self.earlier_n)

    @property
    def near_half(self) -> bool:
        """True if the pass rate lies in `NEAR_HALF`."""
        return self.scored and NEAR_HALF[0] <= self.pass_rate <= NEAR_HALF[1]

    @property
    def fresh(self) -> bool:
        """True for a group on a problem of the data set, from its beginning: no prefix, not generated."""
        return self.origin == "fresh"

    @property
    def prefixed(self) -> bool:
        return self.origin == "prefix"

    @property
    def generated(self) -> bool:
        return self.origin == "generated"

    @property
    def parent_count(self) -> ParentCount | None:
        """k and N of the parent group that the prefix was cut from."""
        if self.parent_passed is None or self.parent_size is None:
            return None
        return ParentCount(self.parent_passed, self.parent_size)

    @property
    def key(self) -> tuple[Any, ...]:
        """Identifies a group that was carried or waited in its later records."""
        counts = (self.k, self.n, self.earlier_k, self.earlier_n)
        return (self.problem, self.origin, self.prefix_tokens, self.policy_version, *counts)

    @property
    def begun_key(self) -> tuple[Any, ...]:
        """The key of the earlier records of a group that has waited."""
        return replace(self, k=self.earlier_k, n=self.earlier_n, earlier_k=0, earlier_n=0).key

    def after(self, begun: "GroupRecord | None") -> "GroupRecord":
        """Merge the records of earlier steps into the record of a group that has waited."""
        assert begun is not None, "a group that waited is continued once"
        lost = {
            reason: self.dropped.get(reason, 0) + begun.dropped.get(reason, 0)
            for reason in self.dropped | begun.dropped
        }
        k, n = (self.k or 0) + self.earlier_k, self.size + self.earlier_n
        tokens = self.tokens + begun.tokens
        return replace(self, k=k, n=n, tokens=tokens, dropped=lost, earlier_k=0, earlier_n=0)


class Records(NamedTuple):
    """The records of a decision log, sorted.

    Attributes:
        groups: every group once, in the step that rolled it out (or, for a stored group, trained it again) and with its
            last outcome, which is "carried" if no finished step trained it. A group that waited is in the latest step
            that gave it rollouts, with all of them; its outcome is "waiting" if no later step continued it.
        skips: problems refused before any rollout.
        unfinished: number of records of steps that were not finished.
    """

    groups: list[GroupRecord]
    skips: list[GroupRecord]
    unfinished: int


def sort_records(records: Sequence[GroupRecord], last_step: int | None = None) -> Records:
    """Sort the records of one run.

    Args:
        records: all records, in the order of the log.
        last_step: the last finished step; a run that is still writing may have logged groups of the step after it.
            None = all steps are finished.
    """
    finished = [record for record in records if last_step is None or record.step <= last_step]
    groups = _each_once(record for record in finished if record.outcome != "skipped")
    skipped = [record for record in finished if record.outcome == "skipped"]
    skips = [
        replace(record, problem=problem, problems=())
        for record in skipped
        for problem in record.problems or (record.problem,)
    ]
    return Records(groups, skips, len(records) - len(finished))


def _each_once(records: Iterable[GroupRecord]) -> list[GroupRecord]:
    """Merge the records of each group: the outcome comes from the last step, as do the rollouts of a group that
    waited."""
    groups: list[GroupRecord | None] = []
    carried: dict[tuple[Any, ...], list[int]] = {}
    waiting: dict[tuple[Any, ...], list[int]] = {}
    for record in records:
        key = record.key  # as it is logged again, without the rollouts of earlier steps
        earlier = next((i for i in carried.get(key, ()) if _step(groups[i]) < record.step), None)
        if earlier is not None and (group := groups[earlier]):
            groups[earlier] = replace(group, outcome=record.outcome)
            if record.outcome != "carried":
                carried[key].remove(earlier)
            continue
        if record.earlier_n and (begun := waiting.get(record.begun_key)):
            place = begun.pop(0)
            record, groups[place] = record.after(groups[place]), None
        if record.outcome == "carried":
            carried.setdefault(key, []).append(len(groups))
        if record.outcome == "waiting":
            waiting.setdefault(record.key, []).append(len(groups))
        groups.append(record)
    return [group for group in groups if group is not None]


def _step(record: GroupRecord | None) -> int:
    return record.step if record else MOST_STEPS
